"""State that user functions return, copied so that no two keys share an object.

A function may return one dict for every key, changed in place, or put one list into the state of
each. What it was called with belongs to the key, and so do its parts; anything else that can be
changed in place may be part of another key's state, and is copied. A copy has the type of what
it is a copy of: the function is called with it next time.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from sys import getrefcount
from typing import Any

import pyarrow as pa

from headrace.rows import LEAVES, changeable, values_of

Copy = Callable[[Any], Any]


def state_copier(kind: pa.DataType) -> Copy | None:
    """How a value of this type is copied; None if it cannot be changed in place."""
    if not changeable(kind):
        return None
    return state_copy if _deep(kind) else shallow_copy


def state_copy(value: Any) -> Any:
    """A copy of the containers of a value, at every depth."""
    kind = type(value)
    if kind in LEAVES:
        return value
    if kind is list:
        return [state_copy(inner) for inner in value]
    if kind is dict:
        return {key: state_copy(inner) for key, inner in value.items()}
    if kind is tuple:
        return tuple(map(state_copy, value))
    if kind is deque:
        return deque(map(state_copy, value), value.maxlen)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*map(state_copy, value))
    if dataclasses.is_dataclass(value):
        twin = shallow_copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(twin, field.name, state_copy(getattr(value, field.name)))
        return twin
    try:
        return copy.deepcopy(value)
    except Exception:  # it holds what cannot be copied, and is refused when it is stored
        return value


def starting(zero: Callable[[], Any]) -> Callable[[], Any]:
    """A start value of its own for each key, even if the user's function returns one for all."""
    copies = isinstance(zero, partial) and zero.func is copy.deepcopy
    return zero if copies or isinstance(zero, type) else lambda: state_copy(zero())


def shallow_copy(value: Any) -> Any:
    """A copy of a value whose parts cannot be changed."""
    kind = type(value)
    if kind in LEAVES or kind is tuple:
        return value
    if kind in _COPYABLE:
        return value.copy()
    try:
        return copy.copy(value)
    except Exception:
        return value


_COPYABLE = frozenset({list, dict, set, bytearray})


def _deep(kind: pa.DataType) -> bool:
    """Whether a value of this type has parts that can be changed in place."""
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inner = [kind.key_type, kind.item_type]
    return any(map(changeable, inner))


class StateOwner:
    """What a fold function returns, made its key's own.

    `columns` are those of the state; with `scalar` the state is the value of the only one.
    """

    def __init__(self, columns: pa.Schema, scalar: bool) -> None:
        self._names, self._scalar = tuple(columns.names), scalar
        kinds = {i: f.type for i, f in enumerate(columns) if changeable(f.type)}
        self._places = list(kinds)
        self._copies = [
            (state_copier(kind) or shallow_copy, _deep(kind)) for kind in kinds.values()
        ]
        # a list of numbers has no parts that can be changed, and need not be searched for them
        self.has_parts = any(map(_deep, kinds.values())) if scalar else bool(kinds)

    def parts(self, state: Any) -> Sequence[Any]:
        """The parts of a state that can be changed in place."""
        if self._scalar:
            return (state,)
        values = values_of(state, self._names)
        return [values[i] for i in self._places]

    def own(self, returned: Any, before: Any, parts: Sequence[Any], fresh: bool) -> Any:
        """What a function returned that was called with `before`, which had these parts.

        `fresh`: nothing else refers to it; nor is a part copied to which only it refers.
        """
        now = self.parts(returned)
        changed: dict[int, Any] = {}
        for i, (copy_of, deep) in enumerate(self._copies):
            part = now[i]
            if deep or not (
                part is parts[i]
                or (fresh and getrefcount(part) <= OWN_PART)
                or any(part is own for own in parts)
            ):
                twin = copy_of(part)  # of a deep one always: it may have got a part of another
                if twin is not part:
                    changed[i] = twin
        if self._scalar:
            return changed.get(0, returned)
        if not changed and (fresh or returned is before):
            return returned
        return self._with(returned, changed)

    def _with(self, record: Any, changed: dict[int, Any]) -> Any:
        """A copy of a record with these parts in place of its own."""
        if isinstance(record, tuple):
            if not changed:
                return record
            where = _columns_of(record, self._names)
            values = list(record)
            for i, value in changed.items():
                values[where.index(self._names[self._places[i]])] = value
            return type(record)(*values) if hasattr(record, "_fields") else tuple(values)
        twin = shallow_copy(record)
        for i, value in changed.items():
            name = self._names[self._places[i]]
            if dataclasses.is_dataclass(twin):
                object.__setattr__(twin, name, value)
            else:
                twin[name] = value
        return twin


def _columns_of(record: Any, names: tuple[str, ...]) -> Sequence[str]:
    return getattr(record, "_columns", getattr(record, "_fields", names))


def _count_of_own() -> int:
    fresh: list[Any] = []
    return getrefcount(fresh)


def _count_of_own_part() -> int:
    fresh: Any = ([],)
    now = [fresh[0]]
    part = now[0]
    return getrefcount(part)


OWN = _count_of_own()  # references of an object that only one local variable refers to
OWN_PART = _count_of_own_part()  # of a part of such an object, within `StateOwner.own`
