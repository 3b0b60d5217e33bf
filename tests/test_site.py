"""The site of `make docs`: built without a network, it can be read and searched without one.

Sphinx fails by itself on a link in a page that leads nowhere, and on a name in a signature that
has no entry; here the built pages are looked at.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import pytest
from tools.site import reference
from tools.site.docstrings import restructured
from tools.site.signatures import signature

import headrace as hr
from headrace import testing, triggers

ROOT = Path(__file__).resolve().parents[1]
LOADED = {("link", "href"), ("img", "src"), ("script", "src"), ("source", "src"), ("iframe", "src")}
CSS_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(HTMLParser):
    """What a page refers to, what can be referred to in it, and the signatures it shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.signatures: list[str] = []
        self._shows = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[a] for a in ("id", "name") if a in given}
        self.targets += [given[a] for a in ("href", "src") if a in given]
        self.loaded += [given[a] for t, a in LOADED if t == tag and a in given]
        if tag == "dt":
            self._shows = "sig" in given.get("class", "").split()
            self.signatures += [""] if self._shows else []

    def handle_endtag(self, tag: str) -> None:
        self._shows = self._shows and tag != "dt"

    def handle_data(self, data: str) -> None:
        if self._shows:
            self.signatures[-1] += data


def pages_of(site: Path) -> dict[Path, Page]:
    found = sorted(site.rglob("*.html"))
    return {path: Page(path.read_text(encoding="utf-8")) for path in found}


def broken(pages: dict[Path, Page]) -> list[str]:
    """Links inside the site to files or anchors that are not there."""
    return [
        f"{path.name}: {target}"
        for path, page in pages.items()
        for target in page.targets
        if is_local(target) and not leads_somewhere(pages, path, target)
    ]


def is_local(target: str) -> bool:
    return not urlsplit(target).scheme and not target.startswith("//")


def leads_somewhere(pages: dict[Path, Page], page: Path, target: str) -> bool:
    parts = urlsplit(target)
    file = Path(os.path.normpath(page.parent / unquote(parts.path))) if parts.path else page
    if file not in pages:
        return file.is_file()
    return not parts.fragment or unquote(parts.fragment) in pages[file].anchors


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "built"
    command = [sys.executable, "-m", "tools.site", str(folder)]
    made = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert str(folder / "index.html") in made.stdout
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return pages_of(site)


def test_every_link_of_the_site_leads_somewhere(pages):
    assert len(pages) > 50
    assert broken(pages) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    text = '<a id="here"><a href="#here"><a href="#gone"><img src="no.png"><a href="http://x/#y">'
    (tmp_path / "page.html").write_text(text + '<a href="page.html?q=1#here">')
    assert broken(pages_of(tmp_path)) == ["page.html: #gone", "page.html: no.png"]


def test_no_page_loads_anything_from_elsewhere(site, pages):
    assert [t for page in pages.values() for t in page.loaded if not is_local(t)] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    used = ["".join(found) for style in styles for found in CSS_URL.findall(style)]
    assert [u for u in used if not u.startswith("data:") and not is_local(u)] == []


def test_every_page_of_the_repository_is_on_the_site(site):
    written = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    there = [site / p.relative_to(ROOT).with_suffix(".html") for p in written]
    assert [p.name for p in there if not p.exists()] == []


# the reference


def public_names() -> Iterator[str]:
    yield from (f"headrace.{name}" for name in hr.__all__)
    yield from (f"headrace.triggers.{name}" for name in triggers.__all__)
    yield from (f"headrace.testing.{name}" for name in testing.__all__)


def test_every_public_name_has_an_entry_and_so_have_the_methods_of_classes(pages):
    anchors = {a.removeprefix("module-") for p in pages for a in pages[p].anchors}
    assert [name for name in public_names() if name not in anchors] == []
    methods = [f"{e.path}.{m}" for e in reference.every_entry() for m in e.members()]
    assert "headrace.Stream.join" in methods and "headrace.Run.stop" in methods
    assert [name for name in methods if name not in anchors] == []


def test_no_name_has_two_entries():
    paths = [entry.path for entry in reference.every_entry()]
    assert sorted(set(paths)) == sorted(paths)


def test_every_public_name_has_a_docstring():
    assert reference.gaps() == []


def test_a_name_without_a_docstring_is_found():
    @dataclasses.dataclass
    class Silent:
        rows: int

    class Heir(hr.Stream):
        pass

    assert not reference._documented(Silent)
    assert not reference._documented(Heir)
    assert not reference._documented(lambda row: row)
    assert reference._documented(hr.Job)


def test_signatures_have_no_type_variables_and_no_modules_of_headrace(pages):
    shown = [s for page in pages.values() for s in page.signatures]
    assert len(shown) > 300
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("headrace")]
    variables = {n for m in modules for n, v in vars(m).items() if isinstance(v, TypeVar)}
    assert "TimedT" in variables
    names = "|".join(variables - {"T"})
    words = re.compile(rf"\b({names})\b|[( ]T\b|headrace\.(?!testing|functions)")
    assert [s for s in shown if words.search(s)] == []


def test_signatures_read_as_a_user_calls_the_method():
    arguments, returns = signature(hr.Stream.top, hr.Stream)
    assert arguments.startswith("(rows: int, *, by: str, ")
    assert arguments.endswith("name: str | None = None, was: str | None = None)")
    assert returns.endswith(".TimedResult")
    assert signature(hr.KeyedStream.window, hr.KeyedStream)[1].endswith(".WindowedStream")
    assert signature(hr.Stream, None) == ("", "")  # nobody makes one
    assert signature(hr.Job, None)[0].startswith("(name: str")


def test_docstrings_become_what_sphinx_reads():
    text = "As `hr.sum`s of *rows*, `as_`:\n\n    x = `y`\n\nThen name_ is it."
    assert restructured(text) == [
        r"As ``hr.sum``\ s of \*rows\*, ``as_``:", "", ".. code-block:: python", "",
        "    x = `y`", "", r"Then name\_ is it.",
    ]  # fmt: skip


# search


def search_index(site: Path) -> Any:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))


def test_the_search_knows_words_of_the_guide_and_names_of_the_reference(site):
    index = search_index(site)
    found = [*index["terms"]["watermark"], *index["titleterms"]["watermark"]]
    assert {"docs/guide/time", "docs/glossary"} <= {index["docnames"][i] for i in found}
    names = {entry[4] for entry in index["objects"]["headrace"]}
    assert {"Job", "tumbling", "count_distinct"} <= names
    methods = {entry[4] for entry in index["objects"]["headrace.Stream"]}
    assert {"key_by", "window", "join"} <= methods
