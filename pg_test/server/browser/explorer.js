// Uses docs/explorer.html in Chromium, as explorer.rs asks for it on standard input, and prints what the page shows.
// Arguments: the page, and a folder for screenshots if there is one. scripts/companions installs what it needs beside it.
const { chromium } = require("playwright-core");
const { readFileSync } = require("fs");
const { pathToFileURL } = require("url");

const [page, folder] = process.argv.slice(2);
const address = pathToFileURL(page).href;

// In the page: enters values as a user does, and reads what it then shows.
function enter(entries) {
    const texts = ids => Object.fromEntries(ids.map(id => [id, document.getElementById(id).textContent]));
    return entries.map(({ values, shown }) => {
        for (const [id, value] of values) {
            document.getElementById(id).value = value;
        }
        document.getElementById(values.at(-1)[0]).dispatchEvent(new Event("input", { bubbles: true }));
        return texts(shown);
    });
}

// What is wrong with the page in the eyes of axe.
async function faults(tab) {
    await tab.addScriptTag({ path: require.resolve("axe-core") });
    const { violations } = await tab.evaluate(() => axe.run());
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(node => node.html).join(" ")}`);
}

(async () => {
    const browser = await chromium.launch({
        executablePath: "/usr/bin/chromium",
        chromiumSandbox: process.getuid() !== 0,
        args: ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync"],
    });
    const problems = [];
    const shown = { problems };
    for (const [width, colorScheme] of [[360, "light"], [360, "dark"], [1280, "light"], [1280, "dark"]]) {
        const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme, timezoneId: "UTC", bypassCSP: true });
        const tab = await context.newPage();
        tab.on("pageerror", error => problems.push(String(error)));
        tab.on("console", message => message.type() === "error" && problems.push(message.text()));
        tab.on("request", request => request.url().startsWith("file:") || problems.push(`a request: ${request.url()}`));
        await tab.goto(address);
        if (folder) await tab.screenshot({ path: `${folder}/${width}-${colorScheme}.png`, fullPage: true });
        const overflow = await tab.evaluate(() => document.documentElement.scrollWidth) - width;
        if (overflow > 0) problems.push(`at ${width} px the page is ${overflow} px too wide`);
        problems.push(...await faults(tab));
        await context.close();
    }

    const tab = await browser.newPage();
    await tab.goto(address);
    shown.entries = await tab.evaluate(enter, JSON.parse(readFileSync(0, "utf8")));

    // By keyboard: four more bits of time come from the sequence; then the address leads to the same page.
    await tab.reload();
    await tab.focus("#time");
    for (let bit = 0; bit < 4; bit++) await tab.keyboard.press("ArrowRight");
    await tab.click("#use");
    shown.moved = await tab.inputValue("#layout");
    const copy = await browser.newPage();
    await copy.goto(tab.url());
    shown.restored = [await copy.inputValue("#layout"), await copy.getAttribute("#bar", "aria-label")];
    await copy.check("#safe");
    shown.safe = await copy.textContent("#exact");
    await browser.close();
    console.log(JSON.stringify(shown));
})();
