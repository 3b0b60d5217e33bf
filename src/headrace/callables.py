"""A user's function or class: what messages call it, where it is written, what it consists of.

Nothing here calls the function. A digest tells two functions apart and says nothing of what
they do: it goes over code, constants, defaults and what the function closes over, as far as
these are plain values. Another version of Python compiles the same text to other code, so
digests are compared only where nothing else tells two steps apart.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import Site


@dataclass(frozen=True, slots=True, eq=False)
class PyFunction:
    """A user's Python function, and why it runs as Python."""

    fn: Callable[..., Any]
    site: Site | None
    reason: str = "a Python function"

    def __str__(self) -> str:
        where = f" ({self.site})" if self.site else ""
        return f"{title(self.fn)}{where}: {self.reason}"


def is_lambda(fn: object) -> bool:
    return inspect.isfunction(fn) and fn.__name__ == "<lambda>"


def title(fn: object) -> str:
    """How messages and plans name a function."""
    if is_lambda(fn):
        return "a lambda"
    if (said := vars(fn).get("title") if hasattr(fn, "__dict__") else None) is not None:
        return str(said)
    return str(getattr(unwrapped(fn), "__qualname__", type(fn).__name__)).split("<locals>.")[-1]


def site_of(fn: object) -> Site | None:
    """Where the user wrote the function."""
    code = getattr(unwrapped(fn), "__code__", None)
    return Site(code.co_filename, code.co_firstlineno) if code else None


def unwrapped(fn: object) -> Any:
    """The function under partials, decorators and callable objects."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn) if callable(fn) else fn
    if inspect.isroutine(fn) or isinstance(fn, type) or not callable(fn):
        return fn
    return type(fn).__call__


_ABOUT = ("__module__", "__doc__", "__firstlineno__")  # where a class is, not what it does
_LONG = 1_000  # longer lists are told apart by their length only
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis))


# What classes of ours are called in digests at rest, where they have another name today.
_AT_REST = {
    "CountWindow": "Count",
    "DeltaWindow": "Delta",
    "UntilWindow": "Until",
    "CustomTrigger": "Custom",
    "CustomWatermark": "Custom",
    "ValueState": "Kept",
    "ListState": "KeptList",
    "MapState": "KeptMap",
    "LastState": "KeptLast",
    "SharedMapState": "KeptShared",
}


def digest(fn: object) -> str:
    """Sixteen hexadecimal digits; equal for the same text with the same plain values."""
    return hashlib.sha256("\n".join(_parts(fn, 0)).encode()).hexdigest()[:16]


def settings(thing: object, base: type) -> dict[str, str]:
    """The attributes of an object and of its classes below `base`, as text."""
    kinds = [k for k in type(thing).__mro__ if k not in base.__mro__]
    attributes: dict[str, Any] = {}
    for kind in reversed(kinds):
        attributes |= {n: v for n, v in vars(kind).items() if _is_setting(n, v)}
    attributes |= {n: v for n, v in getattr(thing, "__dict__", {}).items()}
    return {name: "\n".join(_parts(attributes[name], 0)) for name in sorted(attributes)}


def _is_setting(name: str, value: object) -> bool:
    hidden = name.startswith("__") or callable(value)
    return not hidden and not isinstance(value, staticmethod | classmethod | property)


def _parts(thing: object, depth: int) -> Iterator[str]:
    if isinstance(thing, _PLAIN):
        yield repr(thing)
    elif depth > 8:
        yield type(thing).__qualname__
    elif isinstance(thing, functools.partial):
        yield "partial"
        yield from _each((thing.func, thing.args, thing.keywords), depth)
    elif isinstance(thing, types.MethodType):
        yield from _each((thing.__func__, thing.__self__), depth)
    elif isinstance(thing, types.FunctionType):
        yield thing.__qualname__
        closed = [_cell(cell) for cell in thing.__closure__ or ()]
        yield from _each((thing.__code__, thing.__defaults__, thing.__kwdefaults__, closed), depth)
    elif isinstance(thing, types.CodeType):
        yield thing.co_code.hex()
        yield from _each((thing.co_names, thing.co_consts), depth)
    else:
        yield from _compound(thing, depth)


def _compound(thing: object, depth: int) -> Iterator[str]:
    if isinstance(thing, list | tuple):
        yield f"{type(thing).__name__} of {len(thing)}"
        yield from _each(thing[:_LONG], depth)
    elif isinstance(thing, dict):
        yield f"dict of {len(thing)}"
        yield from _each(list(thing.items())[:_LONG], depth)
    elif isinstance(thing, set | frozenset):
        yield from sorted("\n".join(_parts(item, depth + 1)) for item in thing)
    elif isinstance(thing, type):
        yield f"class {thing.__qualname__}"
        yield from _each(_members(thing), depth)
    elif callable(thing):
        yield f"object of {type(thing).__qualname__}"
        passing = getattr(type(thing), "undigested", ())
        attributes = {n: v for n, v in getattr(thing, "__dict__", {}).items() if n not in passing}
        yield from _each((_members(type(thing)), attributes), depth)
    else:
        name = type(thing).__qualname__
        yield _AT_REST.get(name, name)  # nothing that is sure to be the same in another process


def _members(kind: type) -> list[tuple[str, Any]]:
    """The functions and plain values of a user's class; none for classes of Python and ours."""
    if kind.__module__ == "builtins" or kind.__module__.startswith("headrace."):
        return []
    kinds = (*_PLAIN, types.FunctionType)
    members = {n: v for n, v in vars(kind).items() if isinstance(v, kinds) and n not in _ABOUT}
    return sorted(members.items())


def _each(things: Any, depth: int) -> Iterator[str]:
    for thing in things:
        yield from _parts(thing, depth + 1)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
