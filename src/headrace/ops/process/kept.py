"""What may be kept per key: a value, a list, a map, the last so many, a running result.

A declaration is a value: the column's type, what a new key starts with, how the stored
thing becomes what the user's code sees and how that is stored again. With `ttl` it is
forgotten when it has not been written for so long, by event time or by the clock. Users
make them with the functions in `declare.py`.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.records import Maker, maker


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """One thing kept per key."""

    type: pa.DataType
    default: Any = None
    kind: Any = None  # the Python type it was declared with, or that of its elements
    ttl: int | None = None
    by_clock: bool = False
    was: str | None = None  # its name in an earlier version of the program
    was_fields: Mapping[str, str] = field(default_factory=dict)  # the same of its fields
    make: Maker | None = field(init=False)

    word = "value"  # what people call it
    at_rest = "Kept"  # never changes

    def __post_init__(self) -> None:
        object.__setattr__(self, "make", maker(self.kind))

    @property
    def mutable(self) -> bool:
        """Whether it may be changed in place: a touch then counts as a write."""
        return bool(pa.types.is_nested(self.type))

    @property
    def whole(self) -> Any:
        """The Python type of all of it, where `kind` is that of its elements."""
        if self.word in ("list", "last"):
            return list[self.kind]  # type: ignore[name-defined]
        if self.word in ("map", "shared map"):
            return dict[Any, self.kind]  # type: ignore[name-defined]
        return self.kind

    def loaded(self, stored: Any) -> Any:
        """The stored thing as the user's code knows it."""
        return stored if self.make is None else self.make(stored)

    def start(self) -> Any:
        """A fresh start, so that no two keys share a list."""
        return copy.deepcopy(self.default)

    def stored(self, held: Any) -> Any:
        """What to store of what the user's code left."""
        return held


class KeptList(Kept):
    """A list; elements may be records."""

    __slots__ = ()
    word = "list"
    at_rest = "KeptList"  # never changes

    def loaded(self, stored: Any) -> Any:
        made = stored or []
        return made if self.make is None else list(map(self.make, made))

    def start(self) -> Any:
        return []


class KeptMap(Kept):
    """A dict."""

    __slots__ = ()
    word = "map"
    at_rest = "KeptMap"  # never changes

    def loaded(self, stored: Any) -> Any:
        found = dict(stored or {})
        return found if self.make is None else {k: self.make(v) for k, v in found.items()}

    def start(self) -> Any:
        return {}


@dataclass(frozen=True, slots=True, eq=False)
class KeptLast(Kept):
    """The last `size` things: a deque."""

    size: int = 1

    word = "last"
    at_rest = "KeptLast"  # never changes

    def loaded(self, stored: Any) -> Any:
        made = stored or []
        return deque(made if self.make is None else map(self.make, made), maxlen=self.size)

    def start(self) -> Any:
        return deque(maxlen=self.size)

    def stored(self, held: Any) -> Any:
        return list(held)[-self.size :]


@dataclass(slots=True)
class Running:
    """A running result: `add` takes something in, `value` is what came of all."""

    fold: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    state: Any
    empty: bool

    def add(self, item: Any) -> None:
        self.state, self.empty = self.fold(self.state, item), False

    @property
    def value(self) -> Any:
        return None if self.empty else self.result(self.state)


@dataclass(frozen=True, slots=True, eq=False)
class KeptRunning(Kept):
    """A reducing or aggregating state."""

    zero: Callable[[], Any] = lambda: None
    fold: Callable[[Any, Any], Any] = lambda state, item: item
    result: Callable[[Any], Any] = lambda state: state

    word = "running result"
    at_rest = "KeptRunning"  # never changes

    @property
    def mutable(self) -> bool:
        return True

    def loaded(self, stored: Any) -> Any:
        if stored is None:
            return self.start()
        state = stored if self.make is None else self.make(stored)
        return Running(self.fold, self.result, state, empty=False)

    def start(self) -> Any:
        return Running(self.fold, self.result, self.zero(), empty=True)

    def stored(self, held: Any) -> Any:
        return None if held.empty else held.state


class KeptShared(Kept):
    """A dict that every task knows, changed by control rows only."""

    __slots__ = ()
    word = "shared map"
    at_rest = "KeptShared"  # never changes

    def start(self) -> Any:
        return {}
