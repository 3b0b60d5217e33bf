"""Keyed process functions: what a user writes to see one key's rows, one at a time.

The class only declares: its state per key, the rows it emits, a method per input. The runtime
lets `self.<name>` hold the current key's state before each call and stores what it holds
afterwards; nothing here reads or writes a table.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Protocol, Self, cast

import pyarrow as pa

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import PlanError, call_site
from headrace.ops.process.operator_kinds import OperatorKind
from headrace.ops.process.state_kinds import SharedMapState, ValueState
from headrace.ops.user_metrics import (
    UserCounter,
    UserGauge,
    UserHistogram,
    UserMetrics,
    WithMetrics,
)
from headrace.reads import deletes
from headrace.rows import RowCopier
from headrace.schema import SchemaLike, schema_of

HELD = "$held"  # in an object's dict: values with a TTL, which are looked up when they are read


class Context(Protocol):
    """What a process function may read about the call it is in, and request."""

    @property
    def key(self) -> Any:
        """The key: a value, or a tuple when there are several columns."""

    @property
    def input(self) -> str:
        """The name of the input the row came from; "" in a timer."""

    @property
    def time(self) -> int | None:
        """The time of the row, or of the timer, in ms; None without."""

    @property
    def by_clock(self) -> bool:
        """In a timer: whether it was set by the clock."""

    @property
    def watermark(self) -> int:
        """No row older than this is expected, in ms."""

    @property
    def clock(self) -> int:
        """The clock of this batch, in ms."""

    def timer(self, at: int) -> None:
        """Call `on_timer` when the watermark passes `at` ms."""

    def cancel(self, at: int) -> None:
        """Forget the timer that `timer` set for `at`."""

    def clock_timer(self, at: int) -> None:
        """Call `on_timer` when the clock passes `at` ms."""

    def cancel_clock(self, at: int) -> None:
        """Forget the timer that `clock_timer` set for `at`."""

    def emit(self, output: str, row: Any) -> None:
        """Emit a row to one of `outputs`."""

    def counter(self, name: str) -> UserCounter:
        """A figure of your own that grows: `ctx.counter("seen").add()`."""

    def gauge(self, name: str) -> UserGauge:
        """A figure of your own that goes up and down: `ctx.gauge("waiting").set(3)`."""

    def histogram(self, name: str) -> UserHistogram:
        """How numbers of your own are distributed: `ctx.histogram("price").record(9.99)`."""


class ProcessMeta(ABCMeta):
    """What a class of process functions declares. These are methods of the class and not of its
    objects, so a value may have any name, `state` or `values` as well."""

    _kept: dict[str, ValueState]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **more: Any
    ) -> ProcessMeta:
        """Declarations are not attributes of the class: state is in the object's dict.

        Values that are deleted or have a TTL are looked up by `__getattr__`. Only classes with
        such values get it, because with it every attribute takes four times as long.
        """
        own = {n: v for n, v in namespace.items() if isinstance(v, ValueState)}
        rest = {n: v for n, v in namespace.items() if n not in own}
        if any(v.ttl is not None for v in own.values()) or any(map(deletes, rest.values())):
            rest = {"__getattr__": _held_value, "__delattr__": _forget, **rest}
        cls = super().__new__(mcs, name, bases, rest, **more)
        inherited = [getattr(base, "_kept", {}) for base in reversed(bases)]
        cls._kept = {n: v for stored in (*inherited, own) for n, v in stored.items()}
        return cls

    @property
    def values(cls) -> dict[str, ValueState]:
        """The state per key."""
        others = (SharedMapState, OperatorKind)
        return {n: v for n, v in cls._kept.items() if not isinstance(v, others)}

    @property
    def shared(cls) -> dict[str, SharedMapState]:
        """The maps that all tasks share, whatever the key."""
        return {n: v for n, v in cls._kept.items() if isinstance(v, SharedMapState)}

    @property
    def by_task(cls) -> dict[str, OperatorKind]:
        """The operator state: per task, whatever the key."""
        return {n: v for n, v in cls._kept.items() if isinstance(v, OperatorKind)}

    def state(cls) -> pa.Schema:
        """The state per key, as columns."""
        return pa.schema([(name, declared.type) for name, declared in cls.values.items()])

    def sides(cls) -> dict[str, pa.Schema]:
        """The side outputs and their columns."""
        outputs: Any = cls.outputs  # type: ignore[attr-defined]
        if not isinstance(outputs, Mapping):
            raise PlanError(
                "HR-PROCESS-011",
                f"the side outputs of {cls.__name__} are {outputs!r}",
                'Give each its columns: outputs = {"name": "column type, ..."}.',
                site=call_site(),
            )
        return {name: schema_of(spec) for name, spec in outputs.items()}

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
        """Whether all of its state expires."""
        return bool(cls.values) and all(v.ttl is not None for v in cls.values.values())


class KeyedProcess(metaclass=ProcessMeta):
    """Subclass me: declare the state, then `on_row`, or `on_<input>` for each input.

    A method gets the row (a named tuple) and a context, and gives nothing, a row, a list of
    rows, or yields rows. `output` says what those rows are: a dataclass, DDL, a mapping;
    `outputs` names side outputs and what their rows are. `on_timer(time, ctx)` is called for
    timers that the context set. `del self.<name>` forgets what is stored under a name.
    With `on_chunk(chunk, ctx)` instead, it sees the rows of all keys at once, as Arrow; then
    `on_timer(times, ctx)` sees a timer of each of several keys.
    """

    output: ClassVar[SchemaLike] = None
    outputs: ClassVar[dict[str, SchemaLike]] = {}

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """An object outside a job, in a test of the class, has every value's start."""
        one = super().__new__(cls)
        vars(one).update({n: v.start() for n, v in cls._kept.items() if v.ttl is None})
        return one


def own_attributes(function: KeyedProcess) -> dict[str, Any]:
    """The attributes of an object that are not state."""
    return {n: v for n, v in vars(function).items() if n not in type(function)._kept}


def _held_value(self: KeyedProcess, name: str) -> Any:
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


# Both are methods of users' classes, so their names and code are part of digests at rest.
_held_value.__qualname__, _forget.__qualname__ = "_found", "_forget"


@lru_cache(maxsize=64)
def keyless(kind: type[KeyedProcess]) -> type[KeyedProcess]:
    """The class for objects without a current key: reading their state is refused."""

    def refuse(self: KeyedProcess, name: str) -> Any:
        if name in kind.values or name in kind.by_task:
            raise no_key(kind, name)
        raise AttributeError(f"{kind.__name__} has no attribute {name!r}")

    without_key: Any = ProcessMeta(kind.__name__, (kind,), {"__getattr__": refuse})
    return cast("type[KeyedProcess]", without_key)


def no_key(kind: type[KeyedProcess], name: str) -> PlanError:
    whose = "of a key, and a control row has no key"
    if name in kind.by_task:
        whose = "of a task, and a control row belongs to all tasks"
    return PlanError(
        "HR-PROCESS-013",
        f"{kind.__name__}.{name} is state {whose}",
        "Put what control rows carry in a hr.shared_map; read it in on_row.",
    )


# The context of a call: what a process function may read, and what it requested.


EVENT, CLOCK = 0, 1
NO_ON_TIMER = "the class has no on_timer"
NO_TIME = "its input has no event time"


class Call(WithMetrics):
    """The context of all calls of an epoch; its attributes are set before each.

    `no_timer` and `no_event_timer` say why timers cannot be set, where they cannot.
    """

    __slots__ = (
        "by_clock", "clock", "input", "key", "metrics", "no_event_timer",
        "no_timer", "outputs", "place", "side_rows", "time", "timer_requests", "watermark",
    )  # fmt: skip

    def __init__(
        self, watermark: int, clock: int, outputs: Mapping[str, RowCopier] | None = None
    ) -> None:
        self.watermark, self.clock, self.outputs = watermark, clock, outputs or {}
        self.no_timer = self.no_event_timer = ""
        self.key: Any = None
        self.input = ""
        self.place = -1  # the number of the row among those of the block; -1 without
        self.time: int | None = None
        self.by_clock = False  # in a timer: whether it was set by the clock
        self.timer_requests: list[tuple[int, int, bool]] = []
        self.side_rows: list[tuple[str, Any]] = []
        self.metrics = UserMetrics()

    def timer(self, at: int) -> None:
        """Call on_timer when the watermark passes `at`, in ms."""
        self._request_timer(EVENT, at, True)

    def cancel(self, at: int) -> None:
        """Forget the timer at `at`."""
        self._request_timer(EVENT, at, False)

    def clock_timer(self, at: int) -> None:
        """Call on_timer when the clock passes `at`, in ms."""
        self._request_timer(CLOCK, at, True)

    def cancel_clock(self, at: int) -> None:
        """Forget the timer that the clock would have fired at `at`."""
        self._request_timer(CLOCK, at, False)

    def _request_timer(self, domain: int, at: int, arm: bool) -> None:
        why_not = self.no_timer or (self.no_event_timer if domain == EVENT else "")
        if why_not:
            raise PlanError(
                "HR-PROCESS-010",
                f"a timer cannot be set here: {why_not}",
                "See docs/guide/state-and-process.md, Timers.",
            )
        if not MIN_TIME < (at := int(at)) < MAX_TIME:
            raise ValueError(f"a timer at {at} ms would never fire: times are within ±2**62")
        self.timer_requests.append((domain, at, arm))

    def emit(self, output: str, row: Any) -> None:
        """Emit a row to a side output."""
        if output not in self.outputs:
            raise PlanError(
                "HR-PROCESS-011",
                f"there is no side output {output!r}; there is "
                f"{', '.join(map(repr, self.outputs)) or 'none'}",
                'Declare it in the class: outputs = {"name": "column type, ..."}.',
            )
        self.side_rows.extend((output, row) for row in self.outputs[output].all([row]))

    def settle(self) -> None:
        """The call counts: what it did is final."""

    def rescued(self) -> tuple[list[Any], list[tuple[str, Any]]]:
        """What a call that failed has emitted nevertheless, also to side outputs."""
        return [], []

    def clear(self) -> None:
        self.timer_requests.clear()
        self.side_rows.clear()
