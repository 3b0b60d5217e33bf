"""Keyed process functions: what a user writes to see one key's rows, one at a time.

The class only declares: what is kept per key, the rows it gives, a method per input. The
runtime makes `self.<name>` hold the current key's state before each call and keeps what it
holds afterwards; nothing here reads or writes a table.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Protocol, Self, cast

import pyarrow as pa

from headrace.errors import PlanError, call_site
from headrace.ops.process.kept import Kept, KeptShared
from headrace.reads import deletes
from headrace.schema import SchemaLike, schema_of

HELD = "$held"  # in an object's dict: values that are looked up when they are asked for


class Context(Protocol):
    """What a process function may ask about the call it is in, and ask for."""

    @property
    def key(self) -> Any: ...  # the key: a value, or a tuple when there are several columns
    @property
    def input(self) -> str: ...  # the name of the input the row came from; "" in a timer
    @property
    def time(self) -> int | None: ...  # the row's (or timer's) time in ms; None without
    @property
    def by_clock(self) -> bool: ...  # in a timer: whether it was set by the clock
    @property
    def watermark(self) -> int: ...  # no row older than this is expected, in ms
    @property
    def clock(self) -> int: ...  # the clock of this batch, in ms

    def timer(self, at: int) -> None: ...  # call on_timer when the watermark passes `at` ms
    def cancel(self, at: int) -> None: ...  # forget that timer
    def clock_timer(self, at: int) -> None: ...  # call on_timer when the clock passes `at` ms
    def cancel_clock(self, at: int) -> None: ...
    def emit(self, output: str, row: Any) -> None: ...  # a row for one of `outputs`
    def count(self, name: str, n: int = 1) -> None: ...  # a figure of your own, for the run


class Declared(ABCMeta):
    """What a class of process functions declares, told by the class and not by its objects:
    so a value may have any name, `state` or `values` as well."""

    _kept: dict[str, Kept]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **more: Any
    ) -> Declared:
        """Declarations are no attributes: what is kept lies in the object's dict.

        Values that are deleted or held back are looked for. Only classes with such values pay
        for it: with these methods every attribute takes four times as long.
        """
        own = {n: v for n, v in namespace.items() if isinstance(v, Kept)}
        rest = {n: v for n, v in namespace.items() if n not in own}
        if any(v.ttl is not None for v in own.values()) or any(map(deletes, rest.values())):
            rest = {"__getattr__": _found, "__delattr__": _forget, **rest}
        made = super().__new__(mcs, name, bases, rest, **more)
        inherited = [getattr(base, "_kept", {}) for base in reversed(bases)]
        made._kept = {n: v for kept in (*inherited, own) for n, v in kept.items()}
        return made

    @property
    def values(cls) -> dict[str, Kept]:
        """What is kept per key."""
        return {n: v for n, v in cls._kept.items() if not isinstance(v, KeptShared)}

    @property
    def shared(cls) -> dict[str, KeptShared]:
        """What every task knows, whatever the key."""
        return {n: v for n, v in cls._kept.items() if isinstance(v, KeptShared)}

    def state(cls) -> pa.Schema:
        """What is kept per key, as columns."""
        return pa.schema([(name, declared.type) for name, declared in cls.values.items()])

    def sides(cls) -> dict[str, pa.Schema]:
        """The side outputs and their columns."""
        said: Any = cls.outputs  # type: ignore[attr-defined]
        if not isinstance(said, Mapping):
            raise PlanError(
                "HR-PROCESS-011",
                f"the side outputs of {cls.__name__} are {said!r}",
                'Give each its columns: outputs = {"name": "column type, ..."}.',
                site=call_site(),
            )
        return {name: schema_of(spec) for name, spec in said.items()}

    def handlers(cls) -> tuple[str, ...]:
        """The inputs that have a method of their own; "row" is the one for all others."""
        names = (n for n in dir(cls) if n.startswith("on_") and callable(getattr(cls, n)))
        return tuple(n.removeprefix("on_") for n in names if n not in ("on_timer", "on_chunk"))

    def timed(cls) -> bool:
        """Whether it may set timers."""
        return callable(getattr(cls, "on_timer", None))

    def chunked(cls) -> bool:
        """Whether it sees the rows of all keys at once."""
        return callable(getattr(cls, "on_chunk", None))

    def forgets(cls) -> bool:
        """Whether everything it keeps is forgotten some time."""
        return bool(cls.values) and all(v.ttl is not None for v in cls.values.values())


class KeyedProcess(metaclass=Declared):
    """Subclass me: declare what is kept, then `on_row`, or `on_<input>` for each input.

    A method gets the row (a named tuple) and a context, and gives nothing, a row, a list of
    rows, or yields rows. `output` says what those rows are: a dataclass, DDL, a mapping;
    `outputs` names side outputs and what their rows are. `on_timer(time, ctx)` is called for
    timers that the context set. `del self.<name>` forgets what is kept under a name.
    With `on_chunk(chunk, ctx)` instead, it sees the rows of all keys at once, as Arrow.
    """

    output: ClassVar[SchemaLike] = None
    outputs: ClassVar[dict[str, SchemaLike]] = {}

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """An object that nobody runs, in a test of the class, has every value's start."""
        made = super().__new__(cls)
        vars(made).update({n: v.start() for n, v in cls._kept.items() if v.ttl is None})
        return made


def own_attributes(function: KeyedProcess) -> dict[str, Any]:
    """What an object has besides what it keeps."""
    return {n: v for n, v in vars(function).items() if n not in type(function)._kept}


def _found(self: KeyedProcess, name: str) -> Any:
    """A value that is not in the object's dict: held back, or not there."""
    declared = type(self)._kept.get(name)
    if declared is None:
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
    held = self.__dict__.get(HELD)
    found = held[name] if held and name in held else declared.start()
    if held is None or declared.mutable:  # it may be changed in place: that is a write
        self.__dict__[name] = found
    return found


def _forget(self: KeyedProcess, name: str) -> None:
    if name not in type(self)._kept:
        object.__delattr__(self, name)
        return
    self.__dict__.pop(name, None)
    self.__dict__.get(HELD, {}).pop(name, None)


@lru_cache(maxsize=64)
def keyless(kind: type[KeyedProcess]) -> type[KeyedProcess]:
    """The class, of objects that have no key now: whoever asks for what is kept is told."""

    def asked(self: KeyedProcess, name: str) -> Any:
        if name in kind.values:
            raise no_key(kind.__name__, name)
        raise AttributeError(f"{kind.__name__} has no attribute {name!r}")

    made: Any = Declared(kind.__name__, (kind,), {"__getattr__": asked})
    return cast("type[KeyedProcess]", made)


def no_key(title: str, name: str) -> PlanError:
    return PlanError(
        "HR-PROCESS-013",
        f"{title}.{name} is kept per key, and a control row has none",
        "Keep what control rows say in a hr.shared_map; read it in on_row.",
    )
