"""One site of the guide, the decisions and an API reference, in build/site.

The pages are copied as they are, with the files they link to; the sidebar follows docs/README.md.
Sphinx reads the copy: whatever it warns of (a link that leads nowhere, a name without entry) fails.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sphinx.cmd.build import main as sphinx
from tools.site.pages import write_pages

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
SITE = ROOT / "build" / "site"
LINKED = ("LICENSE", "docs", "examples")  # what pages link to, besides other pages
CODES = "Error codes <docs/codes>"

LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)\.md\)")
FRONT = '<!doctype html><meta charset="utf-8"><title>Headrace</title>\
<meta http-equiv="refresh" content="0; url=README.html"><a href="README.html">Headrace</a>\n'


def build(site: Path) -> int:
    """Build the site anew; what Sphinx returns."""
    shutil.rmtree(site, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="headrace-site-") as scratch:
        pages = Path(scratch) / "pages"
        stage(pages)
        strict = ["--quiet", "--fail-on-warning", "--keep-going"]
        places = ["--conf-dir", str(HERE), "--doctree-dir", f"{scratch}/doctrees"]
        failed = sphinx(["--builder", "html", *strict, *places, str(pages), str(site)])
    if not failed:
        (site / "index.html").write_text(FRONT, encoding="utf-8")
    return failed


def stage(pages: Path) -> None:
    """What Sphinx reads: the pages of the repository, those of the reference, and the sidebar."""
    pages.mkdir()
    for place in (*ROOT.glob("*.md"), *(ROOT / name for name in LINKED)):
        if place.is_dir():
            shutil.copytree(place, pages / place.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(place, pages)
    write_pages(pages / "api")
    sections = sections_of((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    decisions = [page for listed in sections.values() for page in listed if is_decision(page)]
    (pages / "decisions.md").write_text(
        f"# Decisions\n\nChoices that were hard, a page for each.\n\n{toctree(decisions)}",
        encoding="utf-8",
    )
    with (pages / "README.md").open("a", encoding="utf-8") as front:
        front.writelines(sidebar(sections))


def sections_of(readme: str) -> dict[str, list[str]]:
    """The pages under each heading of docs/README.md, for toctrees: each where it comes first."""
    parts = re.split(r"^\*\*(\w+)\*\*$", readme, flags=re.MULTILINE)[1:]
    sections: dict[str, list[str]] = {}
    seen: set[str] = set()
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        found = {target(path): text for text, path in LINK.findall(body)}
        new = {path: text for path, text in found.items() if path not in seen}
        sections[title] = [f"{text[0].upper()}{text[1:]} <{path}>" for path, text in new.items()]
        seen |= new.keys()
    return sections


def target(path: str) -> str:
    """A page as Sphinx calls it, from what docs/README.md calls it."""
    return posixpath.normpath(posixpath.join("docs", path))


def is_decision(page: str) -> bool:
    return "<docs/decisions/" in page


def sidebar(sections: dict[str, list[str]]) -> Iterator[str]:
    """The sections, with the reference before the last, which gets what else there is."""
    yield "\n" + toctree(["Overview <self>", "All pages <docs/README>"])
    *first, last = sections
    shown = {
        title: [p for p in sections[title] if not is_decision(p) and p != CODES]
        for title in sections
    }
    yield from (toctree(shown[title], title) for title in first)
    yield toctree(["api/index", CODES], "Reference")
    yield toctree([*shown[last], "decisions", "Changes <CHANGELOG>"], last)


def toctree(listed: list[str], caption: str = "") -> str:
    options = ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), ""]
    return "\n".join([*options, *listed, "```", "", ""])


if __name__ == "__main__":
    site = Path(sys.argv[1]).resolve() if sys.argv[1:] else SITE
    if failed := build(site):
        sys.exit(failed)
    print(f"headrace: the site is in {site}: open {site / 'index.html'}")
