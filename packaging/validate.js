// Checks the bills of materials that are its arguments against CycloneDX's schema, which scripts/companions installs
// beside a copy of this.
const { readFileSync } = require("fs");
const { Validation } = require("@cyclonedx/cyclonedx-library");

(async () => {
    for (const file of process.argv.slice(2)) {
        const text = readFileSync(file, "utf8");
        const faults = await new Validation.JsonStrictValidator(JSON.parse(text).specVersion).validate(text);
        if (faults) {
            console.error(`${file}:`, faults);
            process.exitCode = 1;
        }
    }
})();
