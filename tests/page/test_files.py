"""The files of the page, without a browser: what is vendored and packed, what they may not do."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest
from tools import vendored

from headrace.server.page_files import page_files

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "src/headrace/server/page"
OWN = [p for p in PAGE.rglob("*.js") if "vendor" not in p.parts]


def test_what_is_vendored_is_as_noted() -> None:
    assert vendored.unlike_notes() == []
    assert [note.licence for note in vendored.notes()] == ["MIT"]


def test_a_vendored_file_that_was_changed_is_noticed(tmp_path: Path) -> None:
    folder = shutil.copytree(vendored.FOLDER, tmp_path / "vendor")
    with (folder / "uPlot.esm.js").open("a") as file:
        file.write("\n")
    (folder / "more.js").write_text("")
    assert [line.partition(":")[0] for line in vendored.unlike_notes(folder)] == [
        "more.js",
        "uPlot.esm.js",
    ]


def test_what_is_vendored_is_what_its_package_has() -> None:
    for note in vendored.notes():
        try:
            assert vendored.unlike_package(note) == []
        except vendored.NoPackage as reason:
            pytest.skip(f"the package cannot be had: {reason}"[:200])


def test_every_file_is_served_and_every_import_leads_to_one() -> None:
    served = page_files()
    files = {p.relative_to(PAGE).as_posix() for p in PAGE.rglob("*") if p.is_file()}
    assert {name.partition("/")[2].partition("/")[2] for name in served if name} == files - {
        "index.html"
    }
    links = re.findall(r'(?:href|src)="(page/[^"]+)"', served[""].content.decode())
    assert len(links) > 20 and set(links) <= set(served)
    index = (PAGE / "index.html").read_text()
    preloaded = set(re.findall(r'modulepreload" href="([^"]+)"', index))
    modules = {
        f"page/{p.relative_to(PAGE).as_posix()}" for p in [*OWN, PAGE / "vendor/uPlot.esm.js"]
    }
    assert preloaded == modules - {"page/js/main.js"}  # fetched at once, not one after the other
    for path in OWN:
        for name in re.findall(r'from "([^"]+)"', path.read_text()):
            assert (path.parent / name).resolve().is_file(), f"{path.name} imports {name}"


def test_addresses_are_others_as_soon_as_any_file_is(tmp_path: Path) -> None:
    folder = shutil.copytree(PAGE, tmp_path / "page")
    (before,) = {name.split("/")[1] for name in page_files(folder) if name}
    with (folder / "js" / "format.js").open("a") as file:
        file.write("\n")
    (after,) = {name.split("/")[1] for name in page_files(folder) if name}
    (folder / "js" / "format.js").rename(folder / "js" / "formats.js")
    (renamed,) = {name.split("/")[1] for name in page_files(folder) if name}
    assert len({before, after, renamed}) == 3


def test_no_text_becomes_markup_or_code_and_nothing_comes_from_elsewhere() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|https?://(?!www\.w3\.org)"
    )
    for path in [*OWN, *PAGE.rglob("*.html"), *(PAGE / "css").glob("*.css")]:
        assert not forbidden.search(path.read_text()), path.name
    assert not re.search(
        r"<style|style=|<script(?![^>]* src=)|\son\w+=", (PAGE / "index.html").read_text()
    )


def test_the_package_carries_the_page() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    assert "src/headrace" in built["wheel"]["packages"] and "/src" in built["sdist"]["include"]
    ignored = (ROOT / ".gitignore").read_text().splitlines()  # hatch leaves out what git ignores
    assert not {"vendor", "vendor/", "*.js", "*.css", "page/"} & set(ignored)
