"""Keyed process functions: what a user writes to see one key's rows, one at a time.

The class only declares: named values per key, the rows it gives, a method per input. The
runtime makes `self.<value>` hold the current key's values before each call and keeps what
it holds afterwards; nothing here reads or writes state.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from headrace.errors import PlanError
from headrace.rows import table_of
from headrace.schema import SchemaLike, type_of


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """One value kept per key: its column type, and what a new key starts with."""

    type: pa.DataType
    default: Any = None
    kind: Any = None  # the dataclass that it is an instance of, if so

    def loaded(self, stored: Any) -> Any:
        """The value as the user's code knows it."""
        record = self.kind is not None and isinstance(stored, dict)
        return self.kind(**stored) if record else stored

    def start(self) -> Any:
        """A fresh start value, so that no two keys share a list."""
        return copy.deepcopy(self.default)


def value(kind: Any, default: Any = None) -> Any:
    """Declare a value kept per key: `hot = hr.value(bool, default=False)`."""
    column = type_of(kind)
    try:
        table_of([(default,)], pa.schema([("value", column)]))
    except ValueError as error:
        raise PlanError(
            f"the default {default!r} is not of the value's type {column}", code="HR-PLAN-030",
            hint="Give a default of the declared type, or leave it out to start with None.",
        ) from error  # fmt: skip
    return Value(column, default, kind if dataclasses.is_dataclass(kind) else None)


class Context(Protocol):
    """What a process function may ask about the call it is in."""

    @property
    def key(self) -> Any: ...  # the key: a value, or a tuple when there are several columns
    @property
    def input(self) -> str: ...  # the name of the input the row came from
    @property
    def time(self) -> int | None: ...  # the row's event time in ms; None without event time
    @property
    def watermark(self) -> int: ...  # no row older than this is expected, in ms


class KeyedProcess:
    """Subclass me: declare values, then `on_row`, or `on_<input>` for each input.

    A method gets the row (a named tuple) and a context, and gives nothing, a row, a list of
    rows, or yields rows. `output` says what those rows are: a dataclass, DDL, a mapping.
    """

    values: ClassVar[dict[str, Value]] = {}
    output: ClassVar[SchemaLike] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {n: v for n, v in vars(cls).items() if isinstance(v, Value)}
        for name in own:
            delattr(cls, name)  # reading one falls through to `__getattr__`: its start value
        cls.values = {**cls.values, **own}

    def __getattr__(self, name: str) -> Any:
        declared = type(self).values.get(name)
        if declared is None:
            raise AttributeError(f"{type(self).__name__} has no value or attribute {name!r}")
        setattr(self, name, declared.start())
        return getattr(self, name)

    @classmethod
    def state(cls) -> pa.Schema:
        """The declared values as columns."""
        return pa.schema([(name, declared.type) for name, declared in cls.values.items()])

    @classmethod
    def handlers(cls) -> tuple[str, ...]:
        """The inputs that have a method of their own; "row" is the one for all others."""
        names = (n for n in dir(cls) if n.startswith("on_") and callable(getattr(cls, n)))
        return tuple(n.removeprefix("on_") for n in names)
