"""Which columns a function looks at, so that only those become Python objects.

Read from its byte code, and only where there is no doubt: the row is used for nothing but
`row.column`. Anything else (`row[0]`, `f(row)`, `row._replace`, a closure) means all columns.
A list of rows may be iterated over and counted with `len`; nothing else.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

_ALL_SEEING = {"locals", "vars", "eval", "exec"}
_LOOPS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


def columns_read(
    fn: Callable[..., Any], names: Sequence[str], place: int = 0, count: int = 1
) -> list[str]:
    """The columns that a function reads of a row, in the order of `names`.

    The row is argument number `place` of `count`.
    """
    read = _attributes(fn, place, count)
    if not read or not read <= set(names):
        return list(names)
    return [n for n in names if n in read]


def columns_of_rows(fn: Callable[..., Any], names: Sequence[str], place: int) -> list[str]:
    """The columns that a function reads of the rows that are its argument number `place`."""
    if not isinstance(fn, types.FunctionType) or fn.__code__.co_argcount <= place:
        return list(names)
    code = fn.__code__
    loops = [c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name in _LOOPS]
    around = _ALL_SEEING & {name for c in (code, *loops) for name in c.co_names}
    if around or not _only_iterated(code, code.co_varnames[place]):
        return list(names)
    attributes = [_item_attributes(c) for c in (code, *loops)]
    read = set[str]().union(*(f for f in attributes if f is not None))
    if None in attributes or not read <= set(names):
        return list(names)
    return [n for n in names if n in read] or list(names[:1])


def ignores(fn: Callable[..., Any], place: int, count: int) -> bool:
    """Whether a function surely does nothing with its argument number `place` of `count`."""
    return _attributes(fn, place, count) == set()


def only_calls(fn: Callable[..., Any], method: str, place: int, count: int) -> bool:
    """Whether a function surely does nothing with its argument number `place` of `count` but call
    this method of it."""
    return _attributes(fn, place, count, ("LOAD_ATTR", "LOAD_METHOD")) == {method}


def deletes(fn: Any) -> bool:
    """Whether a function, or one within it, deletes attributes."""
    code = fn if isinstance(fn, types.CodeType) else getattr(fn, "__code__", None)
    if not isinstance(code, types.CodeType):
        return False
    named = {"delattr", "__delattr__"} & {*code.co_names}
    steps = (step.opname == "DELETE_ATTR" for step in dis.get_instructions(code))
    return bool(named) or any(steps) or any(map(deletes, code.co_consts))


def _only_iterated(code: types.CodeType, rows: str) -> bool:
    """Whether the list is used only for loops and for `len`."""
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "PUSH_NULL")]
    for before, step, after in zip([steps[0], *steps], steps, steps[1:], strict=False):
        if not _touches(step, rows):
            continue
        called = after.opname in ("PRECALL", "CALL") and after.argval == 1
        counted = called and before.argval == "len" and before.opname.startswith("LOAD_GLOBAL")
        if step.opname != "LOAD_FAST" or not (counted or after.opname == "GET_ITER"):
            return False
    return True


def _item_attributes(code: types.CodeType) -> set[str] | None:
    """The attributes read of what loops run over; None if more may be done with it."""
    steps = list(dis.get_instructions(code))
    items: set[str] = set()
    for step, after in pairwise(steps):
        if step.opname == "FOR_ITER":
            if after.opname != "STORE_FAST":
                return None
            items.add(after.argval)
    attributes: set[str] = set()
    for step, after in pairwise(steps):
        for item in items:
            if _touches(step, item) and not step.opname.startswith("STORE_FAST"):
                if step.opname != "LOAD_FAST" or after.opname != "LOAD_ATTR":
                    return None
                attributes.add(after.argval)
    return attributes


def _touches(step: dis.Instruction, name: str) -> bool:
    if step.opcode not in dis.haslocal and step.opcode not in dis.hasfree:
        return False
    return name in (step.argval if isinstance(step.argval, tuple) else (step.argval,))


def _attributes(
    fn: Callable[..., Any], place: int, count: int, reading: Sequence[str] = ("LOAD_ATTR",)
) -> set[str] | None:
    """The attributes it reads of the row; None if it may do more with it."""
    if not isinstance(fn, types.FunctionType):
        return None
    code = fn.__code__
    expected = code.co_argcount == count and not code.co_kwonlyargcount and not code.co_flags & 0xC
    if not expected or _ALL_SEEING & set(code.co_names):
        return None
    row = code.co_varnames[place]
    attributes: set[str] = set()
    for step, after in pairwise(dis.get_instructions(code)):
        if not _touches(step, row):
            continue
        touched = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        plain = step.opname.startswith("LOAD_FAST") and touched.index(row) == len(touched) - 1
        if not plain or after.opname not in reading:
            return None
        attributes.add(after.argval)
    return attributes
