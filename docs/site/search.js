// Adds to Sphinx's search what a manual of errors needs: numbers, the texts of errors with their values, and words that
// people type in place of the pages' words. conf.py calls it with [text, page, section] for each, where "…" stands for
// any value.
"use strict";

function extendSearch(answers) {
    const words = text => splitQuery(text.toLowerCase()).join(" ");

    // The text's words are in the query, in this order; or at least three words of the query are in the text.
    function isAnswered(text, query) {
        const asked = ` ${words(query)} `;
        if (asked.split(" ").length > 4 && ` ${words(text)} `.includes(asked)) return true;
        let at = 0;
        for (const part of text.split("…").map(words).filter(part => part)) {
            at = asked.indexOf(` ${part} `, at) + 1;
            if (at === 0) return false;
            at += part.length;
        }
        return true;
    }

    function resultOf([text, page, section]) {
        const { docnames, filenames, titles, alltitles } = Search._index;
        const file = docnames.indexOf(page);
        const [, id] = alltitles[section].find(([other]) => other === file);
        const title = id ? `${titles[file]} > ${section}` : titles[file];
        return [page, title, id ? `#${id}` : "", null, text.length, filenames[file], SearchResultKind.index];
    }

    const parse = Search._parseQuery;
    Search._parseQuery = query => {
        const parsed = parse(query);
        splitQuery(query).filter(term => /^\d+$/.test(term)).forEach(term => parsed[1].add(term));
        return parsed;
    };

    // The last result is shown first: the longest text that answers, then the manual, then other pages.
    const search = Search._performSearch;
    Search._performSearch = (query, ...terms) => {
        const isManual = ([page]) => page === "README" || page.startsWith("docs/");
        const found = search(query, ...terms);
        const answering = answers.filter(([text]) => isAnswered(text, query)).map(resultOf);
        answering.sort((a, b) => a[4] - b[4]);
        const all = [...found.filter(result => !isManual(result)), ...found.filter(isManual), ...answering];
        const place = ([page, , id]) => page + id;
        return all.filter((result, at) => !all.slice(at + 1).some(later => place(later) === place(result)));
    };
}
