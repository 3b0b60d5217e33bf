"""Which columns a row function looks at, so that only those become Python objects.

Read from its byte code, and only where there is no doubt: the row is used for nothing but
`row.column`. Anything else (`row[0]`, `f(row)`, `row._replace`, a closure) means all columns.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

_ALL_SEEING = {"locals", "vars", "eval", "exec"}


def columns_read(fn: Callable[..., Any], names: Sequence[str]) -> list[str]:
    """The columns that a function of one row reads, in the order of `names`."""
    read = _attributes(fn)
    if not read or not read <= set(names):
        return list(names)
    return [n for n in names if n in read]


def _attributes(fn: Callable[..., Any]) -> set[str] | None:
    """The attributes it reads of its only argument; None if it may do more with it."""
    if not isinstance(fn, types.FunctionType):
        return None
    code = fn.__code__
    only_argument = code.co_argcount == 1 and not code.co_kwonlyargcount and not code.co_flags & 0xC
    if not only_argument or _ALL_SEEING & set(code.co_names):
        return None
    row = code.co_varnames[0]
    found: set[str] = set()
    for step, after in pairwise(dis.get_instructions(code)):
        if step.opcode not in dis.haslocal and step.opcode not in dis.hasfree:
            continue
        touched = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if row not in touched:
            continue
        plain = step.opname.startswith("LOAD_FAST") and touched.index(row) == len(touched) - 1
        if not plain or after.opname != "LOAD_ATTR":
            return None
        found.add(after.argval)
    return found
