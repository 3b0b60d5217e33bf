"""What Sphinx asks while it reads: how signatures, docstrings and names are shown."""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from tools.site.docstrings import restructured
from tools.site.reference import classes, every_entry
from tools.site.signatures import owner_of, signature
from tools.site.themes import MODULES, READ

FIELD = re.compile(r"^    (\w+): ([^#=\n]+?)(?: = [^#\n]+)?(?:  # (.*))?$", re.MULTILINE)
CALLED = re.compile(r"\(.*\)$", re.DOTALL)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-bases", _bases)
    app.connect("doctree-read", _read)
    for kind, path in classes().items():  # else Sphinx calls it an alias
        kind.__name__ = path.rpartition(".")[2]
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _signature(
    app: Sphinx, what: str, path: str, thing: Any, options: Any, arguments: str, returns: str
) -> tuple[str, str]:
    if isinstance(thing, property) or not callable(thing):
        return arguments, returns
    return signature(thing, owner_of(what, path))


def _docstring(
    app: Sphinx, what: str, path: str, thing: Any, options: Any, lines: list[str]
) -> None:
    text = "\n".join(lines)
    name = path.rpartition(".")[2]
    real = getattr(thing, "__name__", name)
    if what == "method" and real != name:
        text = f"The same as `{real}`."
    made = restructured(text)
    if what == "class" and name in READ:
        made += ["", *restructured(_fields(thing))]
    lines[:] = [*made, ""]


def _fields(kind: type) -> str:
    """The fields of a dataclass, as a list: name, type, and the comment beside it."""
    found = FIELD.findall(inspect.getsource(kind))
    listed = ((f"- `{name}` (`{of}`)", said) for name, of, said in found)
    return "\n".join(f"{what}: {said}" if said else what for what, said in listed)


def _bases(app: Sphinx, path: str, kind: type, options: Any, bases: list[Any]) -> None:
    """Only the classes that have entries."""
    bases[:] = [b for b in bases if b in classes()]


# Every page, when it has been read.


def _read(app: Sphinx, page: nodes.document) -> None:
    for module in page.findall(addnodes.desc_addname):
        _shorten(module)
    for code in list(page.findall(nodes.literal)):
        target = _entry_of(code.astext())
        if target and not _linked(code):
            _link(code, target)


def _shorten(module: addnodes.desc_addname) -> None:
    """What stands before a name: `hr.`, another module that users import, or nothing."""
    text = module.astext()
    if text.startswith("headrace."):
        shown = MODULES.get(text.removesuffix("."))
        module.children = [nodes.Text(f"{shown}.")] if shown else []


@cache
def _entries() -> dict[str, str]:
    """Where code in a text may lead: `hr.count`, `hr.triggers.every`, `Stream.window`."""
    found = {}
    for entry in every_entry():
        found[re.sub(r"^headrace\.", "hr.", entry.path)] = entry.path
        found |= {f"{entry.name}.{m}": f"{entry.path}.{m}" for m in entry.members()}
    return found


def _entry_of(text: str) -> str | None:
    return _entries().get(CALLED.sub("", text))


def _linked(code: nodes.literal) -> bool:
    """Whether it is in a link already, or in a heading."""
    around: Any = code.parent
    while around is not None:
        if isinstance(around, nodes.reference | nodes.title | addnodes.pending_xref):
            return True
        around = around.parent
    return False


def _link(code: nodes.literal, target: str) -> None:
    link = addnodes.pending_xref(
        "", refdomain="py", reftype="obj", reftarget=target, refexplicit=True, refwarn=True
    )
    code.replace_self(link)
    link += code
