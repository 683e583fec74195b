"""How Sphinx makes the site: the Markdown files that GitHub shows, as they are. scripts/site runs it."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

project = "snowflake_id"
html_title = project
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "*/README.md"]
exclude_patterns = ["target"]
myst_heading_anchors = 6  # named as GitHub names them
suppress_warnings = ["misc.highlighting_failure"]  # psql's commands and server logs are no language
smartquotes = False  # quotes may be part of a message
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False

# Files that are no pages are in the repository.
SOURCE = ROOT.as_uri()
if "GITHUB_REPOSITORY" in os.environ:
    SOURCE = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/blob/{GITHUB_REF_NAME}".format(**os.environ)


def navigation(pages):
    """One toctree per group of docs/index.md, and one of the pages that it does not have."""
    groups = [("Start", ["README", "docs/index"])]
    for group in (ROOT / "docs/index.md").read_text().split("\n## ")[1:]:
        links = re.findall(r"\]\(([^)#]+)\.md\)", group)
        groups.append((group.splitlines()[0], [os.path.normpath(f"docs/{link}") for link in links]))
    listed = {page for _, group in groups for page in group}
    groups.append(("Project", sorted(pages - listed)))
    return "\n\n".join(
        "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", *(f"/{page}" for page in group), "```"])
        for caption, group in groups
    ).replace("/README\n", "self\n", 1)


def adapt(app, page, source):
    """Badges are GitHub's. The explorer is a page without a theme. Other files are in the repository."""
    folder = (ROOT / page).parent

    def link(match):
        text, target = match.groups()
        path = folder / target
        if not path.exists() or path.suffix in (".md", ".svg"):
            return match[0]
        if path.suffix != ".html":
            target = f"{SOURCE}/{path.resolve().relative_to(ROOT)}"
        return f'<a href="{target}">{text}</a>'  # Markdown has no links to files of this machine

    text = re.sub(r"^\[?!\[.*(badge|shields).*\n", "", source[0], flags=re.MULTILINE)
    source[0] = re.sub(r"\[([^][]+)\]\(([^)#:\s]+)\)", link, text)
    if page == root_doc:
        source[0] += "\n\n" + navigation(set(app.env.found_docs))


def setup(app):
    app.connect("source-read", adapt)
