"""Stored values as the user declared them: structs become records again.

Arrow returns a struct as a dict and every collection as a list. `maker` returns the function that
makes a value of the declared type of that; None where nothing has to be done.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections import deque
from collections.abc import Callable
from typing import Any

Maker = Callable[[Any], Any]
_COLLECTIONS: dict[Any, Any] = {set: set, frozenset: frozenset, tuple: tuple}


def maker(kind: Any) -> Maker | None:
    """The function that makes a stored value what the user declared."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in args if a is not type(None)]
        return maker(rest[0]) if len(rest) == 1 else None
    if origin is typing.Annotated:
        return maker(args[0])
    if origin is dict:
        return _none_or(_of_map(maker(args[1])))
    if origin in (list, *_COLLECTIONS):
        return _none_or(_of_list(maker(args[0]), _COLLECTIONS.get(origin)))
    return _none_or(_of_record(kind)) if is_record(kind) else None


def like(start: Any) -> Maker | None:
    """How a stored value becomes a thing of the same type as `start`."""
    if isinstance(start, deque):
        most = start.maxlen
        return _none_or(lambda stored: deque(stored, most))
    return _none_or(_COLLECTIONS.get(type(start))) or maker(type(start))


def is_record(kind: Any) -> bool:
    """A dataclass or a typed named tuple: made of a struct's fields by name."""
    if not isinstance(kind, type) or typing.get_origin(kind) is not None:
        return False
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def bare(kind: Any) -> Any:
    """The type without Optional and Annotated: `Rec` for `Rec | None`."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return bare(args[0])
    rest = [a for a in args if a is not type(None)]
    union = origin in (typing.Union, types.UnionType)
    return bare(rest[0]) if union and len(rest) == 1 else kind


def element_of(kind: Any) -> Any:
    """The type of what a list or a map holds, if it is declared."""
    args = [a for a in typing.get_args(bare(kind)) if a is not ...]  # tuple[int, ...]
    return args[-1] if args else None


def may_be_none(kind: Any) -> bool:
    return kind in (Any, None) or type(None) in typing.get_args(kind)


def parts_of(kind: Any) -> dict[str, Any]:
    """The types of a record's fields."""
    return typing.get_type_hints(kind) if is_record(kind) else {}


def starts_of(kind: Any) -> dict[str, Any]:
    """The defaults of a record's fields, by name."""
    if not dataclasses.is_dataclass(kind):
        return dict(getattr(kind, "_field_defaults", {}))
    defaults = {}
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
    return defaults


def _of_record(kind: Any) -> Maker:
    inner = {name: make for name, part in parts_of(kind).items() if (make := maker(part))}

    def build(stored: Any) -> Any:
        fields = {n: inner[n](v) if n in inner else v for n, v in stored.items()}
        return kind(**fields)

    return build if inner else lambda stored: kind(**stored)


def _of_map(inner: Maker | None) -> Maker | None:
    return None if inner is None else lambda stored: {k: inner(v) for k, v in stored.items()}


def _of_list(inner: Maker | None, collection: Any) -> Maker | None:
    if inner is None:
        return collection  # type: ignore[no-any-return]
    build = collection or list
    return lambda stored: build(map(inner, stored))


def _none_or(make: Maker | None) -> Maker | None:
    return None if make is None else lambda stored: None if stored is None else make(stored)
