// Starts Chromium, and says how long its pages may take.
const { chromium } = require("playwright-core");

const LIMIT = 300_000; // ms, on a machine that is busy

const launch = () => chromium.launch({
    executablePath: "/usr/bin/chromium",
    timeout: LIMIT,
    chromiumSandbox: process.getuid() !== 0,
    args: ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync"],
});

module.exports = { LIMIT, launch };
