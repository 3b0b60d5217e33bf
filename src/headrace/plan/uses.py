"""What the methods of a process function ask of their context, read from their code.

Only what a method asks of its own context argument is seen; what it hands the context on to
is not. So what is found is there, and what is not found may be there: the runtime refuses
the rest. Nothing is called.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from typing import Any


def asked_of_context(kind: type) -> set[str]:
    """The attributes that the methods of a class use of their context."""
    found: set[str] = set()
    for name in dir(kind):
        if name.startswith("on_"):
            code = getattr(getattr(kind, name), "__code__", None)
            if code is not None and code.co_argcount >= 3:
                found.update(_asked(code, code.co_varnames[2]))
    return found


def _asked(code: Any, context: str) -> Iterator[str]:
    before = None
    for step in dis.get_instructions(code):
        loads = step.opname in ("LOAD_ATTR", "LOAD_METHOD")
        if loads and before is not None and before.argval == context:
            yield str(step.argval)
        before = step if step.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) else None
    for inner in code.co_consts:
        if hasattr(inner, "co_code") and context in inner.co_freevars:
            yield from _asked(inner, context)
