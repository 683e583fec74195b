"""How Sphinx makes the site: the Markdown files that GitHub shows, as they are. scripts/site runs it."""

import json
import os
import re
from collections import Counter, defaultdict
from pathlib import Path

from sphinx.errors import ExtensionError
from sphinx.search.en import SearchEnglish

ROOT = Path(__file__).parents[2]

project = "snowflake_id"
html_title = project
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "SECURITY.md", "CHANGELOG.md", "docs/*.md", "examples/README.md"]  # those for users
myst_heading_anchors = 6  # named as GitHub names them
suppress_warnings = ["misc.highlighting_failure"]  # psql's commands and server logs are no language
smartquotes = False  # quotes may be part of a message
html_theme = "furo"
html_theme_options = {"light_css_variables": {"code-font-size": "74%"}}  # 97 characters fit into a window of 1280 px
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False

# Files that are no pages are in the repository.
SOURCE = ROOT.as_uri()
if "GITHUB_REPOSITORY" in os.environ:
    SOURCE = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/blob/{GITHUB_REF_NAME}".format(**os.environ)

# Words that people type, and the section that answers them.
WORDS = {
    ("docs/clients", "Use replicas and poolers"): "pooler, PgBouncer, pgcat, read replica",
    ("docs/clients", "JavaScript"): "precision, rounding, rounded, 2^53, BigInt, MAX_SAFE_INTEGER, 53 bits, 53 bit",
    ("docs/reliability", "Which policy to choose"): "NTP, ntpd, chrony, timesyncd, PTP, slew, leap second",
    ("docs/fleet", "Choose a worker"): "worker id, node id, machine id, same id, same worker",
    ("docs/high-availability", "CloudNativePG"): "Kubernetes, k8s, CNPG",
    ("docs/high-availability", "Standbys and failover"): "hot standby, switchover, promote",
    ("docs/installing", "Docker"): "docker compose, docker-compose, compose file",
    ("docs/installing", "Removing it"): "uninstall, remove extension, drop extension",
    ("docs/installing", "Upgrade PostgreSQL"): "pg_upgrade, major version",
    ("docs/operations", "A copied data directory"): "clone, cloned",
    ("docs/operations", "Dump and restore"): "pg_dump, pg_restore, dump, restore",
    ("docs/portable", "Generate IDs without the library"): "RDS, Aurora, Cloud SQL, Azure, Supabase, Neon, Heroku, "
    "managed, without extension, pg_tle, laptop, CI, local development",
    ("docs/reading", "Report by time with a BI tool"): "Metabase, Superset, Tableau, Power BI, Excel, spreadsheet",
    ("docs/reading", "Read the fields of an ID"): "in the future, wrong time",
    ("docs/reading", "Walk a table in parts"): "batch, batches, pagination, export, parallel export",
    ("docs/reliability", "How well are the IDs of two servers ordered?"): "order between servers, monotonic",
    ("docs/reliability", "What is not protected"): "duplicate ids, duplicates, collision",
    ("docs/settings", "layout"): "throughput, limit, IDs per second, overflow, lifetime, 2038, 2093, years, exhausted",
}


def answers():
    """[text, page, section] for what docs/site/search.js answers: the words above, the errors in the pages' tables, the
    objects of the SQL reference, and the metrics. A code of an error leads to the page that has most of its errors."""
    found, codes, sections = [], defaultdict(Counter), set()
    for (page, section), words in WORDS.items():
        found += [[word, page, section] for word in words.split(", ")]
    for path in sorted(ROOT.glob("docs/*.md")):
        page = f"docs/{path.stem}"
        for line in path.read_text().splitlines():
            if re.match("#+ ", line):
                section = re.sub(r"`|\[|\]\([^)]*\)", "", line.lstrip("# "))
                title = section if line.startswith("# ") else title
                sections.add((page, section))
            elif line.startswith("| "):
                cells = " ".join(line.split(" | ")[:2])
                found += [[text, page, section] for text in re.findall("`([^`]+ [^`]+ [^`]+)`", cells)]
                for code in re.findall(r"\b(?=\w*\d)[0-9A-Z]{5}\b(?=(?: \|)? `)", line):
                    codes[code][page, title] += 1
            if page == "docs/sql" and re.match("- |View ", line):
                found += [[name, page, section] for name in re.findall(r"`(snowflake_\w+)[(`]", line)]
    metrics = re.findall(r"^    - (\w+):", (ROOT / "docs/monitoring/postgres_exporter.yaml").read_text(), re.MULTILINE)
    found += [[f"snowflake_{metric}", "docs/monitoring", "Which metrics are there?"] for metric in metrics]
    if gone := WORDS.keys() - sections:
        raise ExtensionError(f"WORDS in conf.py names sections that are not there: {gone}")
    found += [[code, *pages.most_common(1)[0][0]] for code, pages in codes.items()]
    return found


class Words(SearchEnglish):
    """Numbers are words, too: Sphinx omits them."""

    def word_filter(self, word):
        return word not in self.stopwords


def extend_search(app, page, *_):
    if page == "search":
        code = (ROOT / "docs/site/search.js").read_text()
        call = f"document.addEventListener('DOMContentLoaded', () => extendSearch({json.dumps(answers())}));"
        app.add_js_file(None, body=code + call)


def navigation(pages):
    """One toctree per list of docs/index.md, and one of the pages that it does not have."""
    groups = [("Start", ["README", "docs/index"])]
    for group in (ROOT / "docs/index.md").read_text().split("\n## ")[1:]:
        links = re.findall(r"^- \[[^]]+\]\(([^)#]+)\.md\)", group, re.MULTILINE)
        if links:
            groups.append((group.splitlines()[0], [os.path.normpath(f"docs/{link}") for link in links]))
    listed = {page for _, group in groups for page in group}
    groups.append(("Project", sorted(pages - listed)))
    return "\n\n".join(
        "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", *(f"/{page}" for page in group), "```"])
        for caption, group in groups
    ).replace("/README\n", "self\n", 1)


def add_explorer(app, page, template, context, *_):
    """The explorer is a page without a theme, which no toctree has. In the sidebar it follows the page before it in the
    index."""
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "docs/index.md").read_text())
    before = links[links.index("explorer.html") - 1].removesuffix(".md")
    target = context["pathto"]("docs/explorer.html", 1)
    entry = f'<li class="toctree-l1"><a class="reference internal" href="{target}">Explorer</a></li>'
    tree = context["furo_navigation_tree"]
    here = r'href="#"' if page == f"docs/{before}" else rf'href="[^"]*{before}\.html"'
    place = rf'(<li class="toctree-l1[^<]*<a [^>]*{here}>.*?</li>)'
    context["furo_navigation_tree"], count = re.subn(place, rf"\1{entry}", tree)
    if count != 1:
        raise ExtensionError(f"{page}: the sidebar has no place for the explorer")


def adapt(app, page, source):
    """Badges are GitHub's. The explorer is a page without a theme. Files that are no pages are in the repository."""
    folder = (ROOT / page).parent

    def link(match):
        text, target, anchor = match.groups("")
        path = folder / target
        resolved = path.resolve()
        is_page = resolved.suffix == ".md" and str(resolved.relative_to(ROOT).with_suffix("")) in app.env.found_docs
        if not path.exists() or is_page or path.suffix == ".svg":
            return match[0]
        if path.suffix != ".html":
            target = f"{SOURCE}/{resolved.relative_to(ROOT)}{anchor}"
        return f'<a href="{target}">{text}</a>'  # Markdown has no links to files of this machine

    text = re.sub(r"^\[?!\[.*(badge|shields).*\n", "", source[0], flags=re.MULTILINE)
    source[0] = re.sub(r"\[([^][]+)\]\(([^)#:\s]+)(#[^)\s]+)?\)", link, text)
    if page == root_doc:
        source[0] += "\n\n" + navigation(set(app.env.found_docs))


def setup(app):
    app.add_search_language(Words)
    app.connect("source-read", adapt)
    app.connect("html-page-context", extend_search)
    app.connect("html-page-context", add_explorer, priority=900)  # after the theme's own
