"""One site of the guide, the decisions and an API reference, in build/site.

The pages are copied as they are, with the files they link to; the sidebar follows docs/README.md.
Sphinx reads the copy: whatever it warns of (a link that leads nowhere, a name without entry) fails.
"""

from __future__ import annotations

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
COPIED = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs", "examples")

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
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, pages / name)
    write_pages(pages / "api")
    sections = sections_of((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    decisions = [page for page in sections["Understand"] if "<docs/decisions/" in page]
    (pages / "decisions.md").write_text(
        f"# Decisions\n\nChoices that were hard, a page for each.\n\n{toctree(decisions)}",
        encoding="utf-8",
    )
    with (pages / "README.md").open("a", encoding="utf-8") as front:
        front.writelines(sidebar(sections, decisions))


def sections_of(readme: str) -> dict[str, list[str]]:
    """The pages under each heading of docs/README.md, for toctrees."""
    parts = re.split(r"^\*\*(\w+)\*\*$", readme, flags=re.MULTILINE)[1:]
    return {
        title: [
            f"{text[0].upper()}{text[1:]} <{target(path)}>" for text, path in LINK.findall(body)
        ]
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def target(path: str) -> str:
    return path.removeprefix("../") if path.startswith("../") else f"docs/{path}"


def sidebar(sections: dict[str, list[str]], decisions: list[str]) -> Iterator[str]:
    yield "\n" + toctree(["Overview <self>", "All pages <docs/README>"])
    for title, listed in sections.items():
        if title == "Understand":
            yield toctree(["api/index", "Error codes <docs/codes>"], "Reference")
        rest = [p for p in listed if p not in decisions and "<docs/codes>" not in p]
        if title == "Understand":
            rest += ["decisions", "Changes <CHANGELOG>"]
        yield toctree(rest, title)


def toctree(listed: list[str], caption: str = "") -> str:
    options = ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), ""]
    return "\n".join([*options, *listed, "```", "", ""])


if __name__ == "__main__":
    site = Path(sys.argv[1]).resolve() if sys.argv[1:] else SITE
    if failed := build(site):
        sys.exit(failed)
    print(f"headrace: the site is in {site}: open {site / 'index.html'}")
