"""The pages of the API reference, in reStructuredText: what Sphinx shows, in which order."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tools.site.docstrings import restructured
from tools.site.reference import Entry, classes, entries
from tools.site.themes import CONSTRUCTED, DATA, FAMILIES, MODULES, THEMES, TYPES, Theme

JSON, GOT = "JSON", "Objects that you get"
SEPARATE = [m for m in MODULES if m not in ("headrace", "headrace.testing")]
ABOVE = ("", *FAMILIES.values(), JSON, *(f"The module {MODULES[m]}" for m in SEPARATE), GOT)


def write_pages(folder: Path) -> None:
    """The reference's pages, for Sphinx to read."""
    folder.mkdir()
    for theme in THEMES:
        (folder / f"{theme.page}.rst").write_text("\n".join(_page(theme)), encoding="utf-8")
    (folder / "types.rst").write_text("\n".join(_types()), encoding="utf-8")
    (folder / "index.rst").write_text("\n".join(_overview()), encoding="utf-8")


def _page(theme: Theme) -> Iterator[str]:
    yield from (_heading(theme.title, "="), theme.text, "", ".. currentmodule:: headrace", "")
    for title, group in groupby(sorted(entries(theme), key=_place), _above):
        if title:
            yield _heading(title, "-")
        for entry in group:
            yield from _entry(entry)
    yield theme.more


def _place(entry: Entry) -> int:
    """Where an entry comes on its page: SQL functions by family, what users get last."""
    return [*ABOVE, _above(entry)].index(_above(entry))


def _above(entry: Entry) -> str:
    """The heading that an entry is under."""
    if any(entry.name in theme.got for theme in THEMES):
        return GOT
    module = entry.path if entry.kind == "module" else entry.path.rpartition(".")[0]
    if module in SEPARATE:
        return f"The module {MODULES[module]}"
    if "json" in entry.name and entry.kind == "function":
        return JSON
    family = getattr(entry.thing, "__module__", "").rpartition(".")[2]
    return FAMILIES.get(family, "") if entry.kind == "function" else ""


def _entry(entry: Entry) -> Iterator[str]:
    if entry.kind == "module":
        text = restructured((inspect.getdoc(entry.thing) or "").partition("\n\n")[0])
        yield from (f".. py:module:: {entry.path}", "", *text, "")
        yield from (".. currentmodule:: headrace", "")
        return
    if entry.kind == "data":
        yield from (f".. py:data:: {entry.name}", "   :type: str", "", f"   {DATA[entry.name]}", "")
        return
    hidden = entry.kind in ("class", "exception") and entry.name not in CONSTRUCTED
    yield f".. auto{entry.kind}:: {entry.path}{'()' if hidden else ''}"
    if entry.members():
        yield f"   :members: {', '.join(entry.members())}"
    if any(base in classes() for base in getattr(entry.thing, "__bases__", ())):
        yield "   :show-inheritance:"
    yield ""


def _types() -> Iterator[str]:
    yield from (_heading("Types in signatures", "="), "Names that stand for several types.", "")
    for name, text in TYPES.items():
        yield from (f".. py:type:: {name}", "", *(f"   {t}" for t in restructured(text)), "")


def _overview() -> Iterator[str]:
    yield from (
        _heading("API reference", "="),
        "Every public name, from signatures and docstrings. Programs begin with",
        "``import headrace as hr``. A class that is shown without ``hr.`` is that of objects that",
        "you get, and need not be imported.",
        "",
    )
    for theme in THEMES:
        links = " · ".join(f":py:obj:`{e.name} <{e.path}>`" for e in entries(theme))
        yield from (f":doc:`{theme.page}`", f"   {links}", "")
    yield from (":doc:`types`", "   Names that stand for several types.", "")
    yield from (".. toctree::", "   :hidden:", "")
    yield from (f"   {page}" for page in [*(t.page for t in THEMES), "types"])


def _heading(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n"
