// Looks at the manual's site in Chromium: asks its search what standard input says, and measures the first blocks of its
// first page in a window of 1280 px. Prints the first hits of each search, and how far the blocks are cut off.
// Argument: the folder of the site. scripts/companions installs what it needs beside it.
const { readFileSync } = require("fs");
const { pathToFileURL } = require("url");
const { LIMIT, launch } = require("./chromium.js");

const site = pathToFileURL(process.argv[2]).href;

async function search(tab, query) {
    await tab.goto(`${site}/search.html?q=${encodeURIComponent(query)}`);
    await tab.waitForFunction(() => /finished|did not match/.test(document.querySelector(".search-summary")?.innerText));
    return tab.evaluate(() => [...document.querySelectorAll("ul.search > li > a")].map(link => link.getAttribute("href")));
}

(async () => {
    const browser = await launch();
    const tab = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    tab.setDefaultTimeout(LIMIT);
    const hits = [];
    for (const query of JSON.parse(readFileSync(0, "utf8"))) hits.push((await search(tab, query)).slice(0, 2));
    await tab.goto(`${site}/index.html`);
    const cut = await tab.evaluate(() => [...document.querySelectorAll("pre")].slice(0, 3).map(block => block.scrollWidth - block.clientWidth));
    await browser.close();
    console.log(JSON.stringify({ hits, cut }));
})();
