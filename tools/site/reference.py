"""The entries of the API reference: what each name is, its methods, what has no docstring."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from tools.site.themes import INTERNAL, THEMES, TYPES, Theme


@dataclass(frozen=True)
class Entry:
    """One name of the reference: `path` is where Sphinx imports it from."""

    path: str
    thing: Any

    @cached_property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @cached_property
    def kind(self) -> str:
        if inspect.ismodule(self.thing):
            return "module"
        if not inspect.isclass(self.thing):
            return "function" if callable(self.thing) else "data"
        return "exception" if issubclass(self.thing, BaseException) else "class"

    def members(self) -> list[str]:
        return [] if self.kind not in ("class", "exception") else members(self.thing)


def imported(path: str) -> Any:
    """What is at a dotted path, through attributes: `headrace.triggers` is not a file."""
    thing: Any = sys.modules[path.partition(".")[0]]
    for name in path.split(".")[1:]:
        thing = getattr(thing, name)
    return thing


def class_named(name: str) -> type:
    """The class of that name, wherever it is defined: a class name is used once."""
    found = {
        vars(module)[name]
        for path, module in list(sys.modules.items())
        if path.startswith("headrace.") and getattr(vars(module).get(name), "__module__", 0) == path
    }
    if len(found) != 1:
        raise LookupError(f"{len(found)} classes are called {name}: correct `got` in THEMES")
    return found.pop()


@cache
def entries(theme: Theme) -> list[Entry]:
    named = [Entry(path, imported(path)) for path in theme.names]
    got = [class_named(name) for name in theme.got]
    return [*named, *(Entry(f"{kind.__module__}.{kind.__name__}", kind) for kind in got)]


@cache
def every_entry() -> list[Entry]:
    return [entry for theme in THEMES for entry in entries(theme)]


@cache
def index() -> dict[str, str]:
    """Where the classes of the reference are, and the aliases of types, by what they are called."""
    found = {name: name for name in TYPES}
    for kind, path in classes().items():
        found |= {kind.__name__: path, path.rpartition(".")[2]: path}
    return found


@cache
def classes() -> dict[type, str]:
    return {e.thing: e.path for e in every_entry() if e.kind in ("class", "exception")}


def members(kind: type) -> list[str]:
    """Methods and properties that belong on a class's own entry, in order of name."""
    return [name for name in sorted(dir(kind)) if _shown(kind, name)]


def _shown(kind: type, name: str) -> bool:
    owner = next((k for k in kind.__mro__ if name in vars(k)), object)
    if name.startswith(("_", "test_")) or not owner.__module__.startswith("headrace"):
        return False
    if _elsewhere(kind, owner):
        return False
    if any(name in INTERNAL.get(k.__name__, "").split() for k in kind.__mro__):
        return False
    found = inspect.getattr_static(kind, name)
    method = inspect.isroutine(found) or isinstance(found, property | cached_property)
    return method and not (inspect.getdoc(found) or "").startswith("Refused:")


def _elsewhere(kind: type, owner: type) -> bool:
    """Whether another entry, of a class that this one extends, has what `owner` defines."""
    return any(issubclass(base, owner) for base in kind.__mro__[1:] if base in classes())


def gaps() -> list[str]:
    """The names of the reference that have no docstring of their own."""
    named = [(e.path, e.thing) for e in every_entry() if e.kind != "data"]
    inside = [
        (f"{e.path}.{m}", inspect.getattr_static(e.thing, m))
        for e in every_entry()
        for m in e.members()
    ]
    return [path for path, thing in [*named, *inside] if not _documented(thing)]


def _documented(thing: Any) -> bool:
    text = (thing.__doc__ if inspect.isclass(thing) else inspect.getdoc(thing)) or ""
    generated = f"{getattr(thing, '__name__', '')}("  # by dataclasses: the signature again
    return bool(text) and not text.startswith(generated)
