// Enters into docs/explorer.html in Chromium what standard input says, and prints what the page shows. Without entries it
// looks at the page, and uses it by keyboard and mouse.
// Arguments: the page, and a folder for screenshots if there is one. scripts/companions installs what it needs beside it.
const { readFileSync } = require("fs");
const { pathToFileURL } = require("url");
const { LIMIT, launch } = require("./chromium.js");

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

async function open(browser, options = {}) {
    const tab = await browser.newPage(options);
    tab.setDefaultTimeout(LIMIT);
    return tab;
}

// What is wrong with the page in the eyes of axe.
async function faults(tab) {
    await tab.addScriptTag({ path: require.resolve("axe-core") });
    const { violations } = await tab.evaluate(() => axe.run());
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(node => node.html).join(" ")}`);
}

// The page at these widths, in light and dark: is it as wide as the screen, and can everybody read it?
async function look(browser) {
    const problems = [];
    for (const [width, colorScheme] of [[360, "light"], [380, "dark"], [1280, "light"], [1280, "dark"]]) {
        const tab = await open(browser, { viewport: { width, height: 900 }, colorScheme, bypassCSP: true });
        tab.on("pageerror", error => problems.push(String(error)));
        tab.on("console", message => message.type() === "error" && problems.push(message.text()));
        tab.on("request", request => request.url().startsWith("file:") || problems.push(`a request: ${request.url()}`));
        await tab.goto(address);
        if (folder) await tab.screenshot({ path: `${folder}/${width}-${colorScheme}.png`, fullPage: true });
        const overflow = await tab.evaluate(() => document.documentElement.scrollWidth) - width;
        if (overflow > 0) problems.push(`at ${width} px the page is ${overflow} px too wide`);
        // The page says where columns lie beside the screen, and only there.
        const isScrolled = await tab.evaluate(() => document.querySelector(".scroll").scrollWidth > document.querySelector(".scroll").clientWidth);
        if (isScrolled !== await tab.isVisible("#more")) problems.push(`at ${width} px the hint about more columns is wrong`);
        problems.push(...await faults(tab));
        await tab.close();
    }
    return problems;
}

// Moves four bits of the sequence to the time by keyboard, opens the address that the page then has, and copies.
async function use(browser) {
    const tab = await open(browser);
    await tab.goto(address);
    await tab.focus("#time");
    for (let bit = 0; bit < 4; bit++) await tab.keyboard.press("ArrowRight");
    await tab.click("#use");
    const moved = await tab.inputValue("#layout");
    const other = await open(browser);
    await other.goto(tab.url());
    const restored = [await other.inputValue("#layout"), await other.getAttribute("#bar", "aria-label")];
    await other.check("#safe");
    await other.click("#copy");
    await other.waitForFunction(() => document.getElementById("copied").textContent);
    const safe = await other.textContent("#exact");
    const proposed = [];
    for (const tick of ["1ms", "10ms", "1s"]) {
        await other.uncheck("#safe");
        await other.selectOption("#tick", tick);
        for (let bit = 0; bit < 30; bit++) await other.press("#sequences", "ArrowRight");
        await other.check("#safe");
        const shown = await Promise.all(["#settings", "#years", "#rate"].map(id => other.textContent(id)));
        proposed.push([shown[0].match(/layout = '(.*)'/)[1], tick, ...shown.slice(1)]);
    }
    return { moved, restored, safe, proposed };
}

(async () => {
    const browser = await launch();
    const entries = JSON.parse(readFileSync(0, "utf8"));
    const shown = entries.length ? {} : { problems: await look(browser), ...await use(browser) };
    const tab = await open(browser);
    await tab.goto(address);
    shown.entries = await tab.evaluate(enter, entries);
    await browser.close();
    console.log(JSON.stringify(shown));
})();
