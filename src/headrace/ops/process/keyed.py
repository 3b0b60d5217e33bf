"""Keyed process functions: what a user writes to see one key's rows, one at a time.

The class only declares: what is kept per key, the rows it gives, a method per input. The
runtime makes `self.<name>` hold the current key's state before each call and keeps what it
holds afterwards; nothing here reads or writes a table.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import pyarrow as pa

from headrace.ops.process.kept import Kept
from headrace.schema import SchemaLike, schema_of


class Context(Protocol):
    """What a process function may ask about the call it is in, and ask for."""

    @property
    def key(self) -> Any: ...  # the key: a value, or a tuple when there are several columns
    @property
    def input(self) -> str: ...  # the name of the input the row came from; "" in a timer
    @property
    def time(self) -> int | None: ...  # the row's (or timer's) time in ms; None without
    @property
    def watermark(self) -> int: ...  # no row older than this is expected, in ms
    @property
    def clock(self) -> int: ...  # the clock of this batch, in ms

    def timer(self, at: int) -> None: ...  # call on_timer when the watermark passes `at` ms
    def cancel(self, at: int) -> None: ...  # forget that timer
    def clock_timer(self, at: int) -> None: ...  # call on_timer when the clock passes `at` ms
    def cancel_clock(self, at: int) -> None: ...
    def emit(self, output: str, row: Any) -> None: ...  # a row for one of `outputs`


class KeyedProcess:
    """Subclass me: declare what is kept, then `on_row`, or `on_<input>` for each input.

    A method gets the row (a named tuple) and a context, and gives nothing, a row, a list of
    rows, or yields rows. `output` says what those rows are: a dataclass, DDL, a mapping;
    `outputs` names side outputs and what their rows are. `on_timer(time, ctx)` is called for
    timers that the context set.
    """

    values: ClassVar[dict[str, Kept]] = {}
    output: ClassVar[SchemaLike] = None
    outputs: ClassVar[dict[str, SchemaLike]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {n: v for n, v in vars(cls).items() if isinstance(v, Kept)}
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
        """What is kept per key, as columns."""
        return pa.schema([(name, declared.type) for name, declared in cls.values.items()])

    @classmethod
    def sides(cls) -> dict[str, pa.Schema]:
        """The side outputs and their columns."""
        return {name: schema_of(spec) for name, spec in cls.outputs.items()}

    @classmethod
    def handlers(cls) -> tuple[str, ...]:
        """The inputs that have a method of their own; "row" is the one for all others."""
        names = (n for n in dir(cls) if n.startswith("on_") and callable(getattr(cls, n)))
        return tuple(n.removeprefix("on_") for n in names if n != "on_timer")

    @classmethod
    def timed(cls) -> bool:
        """Whether it may set timers."""
        return callable(getattr(cls, "on_timer", None))

    @classmethod
    def forgets(cls) -> bool:
        """Whether everything it keeps is forgotten some time."""
        return bool(cls.values) and all(v.ttl is not None for v in cls.values.values())
