"""Bolts: what a user writes to see the tuples of one task, one at a time.

A bolt is a process function whose key is the number of its task: its declared state is per task,
committed with the epoch. What is not declared would be lost with the batch, so it is refused:
where the code shows it when the program is built, otherwise when it happens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.clock import Duration, millis
from headrace.errors import HeadraceError, PlanError, StepError
from headrace.ops.process.function import EVENT as BY_EVENT
from headrace.ops.process.function import Call, KeyedProcess, ProcessMeta
from headrace.ops.topology.attributes import (
    CONTAINERS,
    changed,
    copied,
    of_class,
    restore,
    unwatched,
)
from headrace.ops.topology.groupings import TO
from headrace.ops.topology.waiting import TupleFailedError, Waiting
from headrace.reads import only_calls
from headrace.rows import RowCopier
from headrace.schema import SchemaLike

DEFAULT = "default"  # the stream of `output`
CLOCK, EVENT = "clock", "event"
_BEFORE = "$before"  # in an object's dict: its own attributes as they were before the batch


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Where a bolt runs: what `prepare` is called with."""

    component: str
    task: int
    tasks: int


class Collector(Call):
    """What a bolt may emit and read while it processes a tuple."""

    __slots__ = ("_default", "_direct", "_failed", "_labels", "_out", "_quick", "_tasks", "_tup",
                 "component", "ended", "epoch", "replays", "until")  # fmt: skip

    def __init__(
        self,
        watermark: int,
        clock: int,
        outputs: Mapping[str, RowCopier],
        component: str,
        labels: Mapping[str, tuple[str, str]],
        tasks: Mapping[int, int],
        direct: frozenset[str],
        default: RowCopier | None,
    ) -> None:
        super().__init__(watermark, clock, outputs)
        self.component, self._labels, self._tasks = component, labels, tasks
        self._direct, self._default = direct, default
        quick = default is not None and default.plain and DEFAULT not in direct
        self._quick = tuple if quick else None  # the type of tuples that stay as they are
        self.until, self.ended = watermark, False  # how far event time comes in this epoch
        self._out: list[Any] = []
        self._failed: str | None = None
        self._tup: Any = None
        self.epoch = ""  # a text that no other step of the bolt has
        self.replays: Mapping[int, Waiting] = {}  # by place: what is processed again

    @property
    def task(self) -> int:
        """The number of this task, from 0."""
        known = self._tasks.get(self.key)
        return self.key % len(self._tasks) if known is None else known  # of fewer tasks, or more

    @property
    def attempt(self) -> int:
        """How often the tuple has failed before: 0 the first time."""
        again = self.replays.get(self.place)
        return 0 if again is None else again.attempt

    @property
    def id(self) -> str:
        """What identifies the tuple in this bolt, also when it is processed again."""
        if self.place < 0:
            raise ValueError("a tick has no tuple, and so no id")
        return self.id_at(self.place)

    def id_at(self, place: int) -> str:
        """The id of the tuple of a call."""
        again = self.replays.get(place)
        return f"{self.epoch}.{self.key}.{place}" if again is None else again.id

    @property
    def tasks(self) -> int:
        """How many tasks the bolt has."""
        return len(self._tasks)

    @property
    def source(self) -> str:
        """The component that emitted the tuple."""
        return self._labels[self.input][0]

    @property
    def stream(self) -> str:
        """The stream that the tuple came by."""
        return self._labels[self.input][1]

    @property
    def has_one_stream(self) -> bool:
        """Whether the bolt can emit to nothing but `output`."""
        return not self._direct and not self.outputs

    def emit(self, values: Any, stream: str = DEFAULT, anchors: Any = None) -> None:
        """Emit a tuple: a tuple, list, dict or dataclass of the declared fields.

        Every tuple is anchored: see `anchors` in the guide. It is there for programs that name it.
        """
        if stream == DEFAULT and type(values) is self._quick:
            self._out.append(values)
            return
        if stream in self._direct:
            raise ValueError(f"the stream {stream!r} is direct: use emit_direct(task, values)")
        self._add(values, stream)

    def emit_direct(self, task: int, values: Any, stream: str = DEFAULT) -> None:
        """Emit a tuple to one task of the bolts that read a direct stream."""
        if stream not in self._direct:
            raise ValueError(
                f"the stream {stream!r} is not declared direct: direct = {(stream,)!r}"
            )
        if isinstance(values, Mapping):
            self._add({**values, TO: task}, stream)
        elif dataclasses.is_dataclass(values) and not isinstance(values, type):
            fields = {f.name: getattr(values, f.name) for f in dataclasses.fields(values)}
            self._add({**fields, TO: task}, stream)
        else:
            self._add((*values, task), stream)

    def _add(self, values: Any, stream: str) -> None:
        row = tuple(values) if type(values) is list else values
        if stream != DEFAULT:
            super().emit(stream, row)
        elif self._default is not None:
            self._out.extend(self._default.all([row]))
        else:
            raise ValueError("the bolt declares no output: output = 'field type, ...'")

    def ack(self, tup: Any) -> None:
        """The tuple is processed. Only a bolt that says `acks = True` must say so."""

    def reset_timeout(self, tup: Any) -> None:
        """Nothing: no tuple waits for an ack. It is there for programs that say it."""

    def fail(self, tup: Any, reason: str = "failed by its bolt") -> None:
        """The tuple cannot be processed now: nothing that was done for it in this call counts."""
        self._failed = str(reason)

    def taken(self) -> Any:
        """What the call emitted; raises if it failed the tuple."""
        if self._failed is not None:
            raise TupleFailedError(self._failed)
        return self._out

    def clear(self) -> None:
        """Forget what the call requested."""
        super().clear()
        self._failed = None


def arm_ticks(bolt: Bolt, ctx: Collector, due: Sequence[tuple[int, int]]) -> None:
    """Set the timers of the ticks that come in this epoch, and of the next one.

    Ticks are at multiples of their length, so the same one may be set again; all are set before the
    calls, so that one that fails does not end them. `due` are timers, with their domains.
    """
    assert bolt.tick_every is not None
    every = millis(bolt.tick_every)
    if bolt.tick_by == CLOCK:
        if not (ctx.ended and due):
            ctx.clock_timer((ctx.clock // every + 1) * every)
        return
    begins = [at - 1 for at, domain in due if domain == BY_EVENT]
    begins += [] if ctx.time is None else [max(ctx.time, ctx.watermark)]
    if begins:
        first, last = min(begins) // every + 1, max(min(begins), ctx.until) // every + 1
        for number in range(first, last + 1):
            ctx.timer(number * every)


def begin_task(bolt: Bolt, ctx: Collector, due: Sequence[tuple[int, int]]) -> None:
    """Before the calls of a task in an epoch. `ctx.time` is that of its first row."""
    if ctx.key not in ctx._tasks and ctx.place < 0:  # ticks of an earlier number of tasks
        return
    kind = type(bolt)
    try:
        bolt.prepare(TaskContext(ctx.component, ctx.task, ctx.tasks))
    except HeadraceError:
        raise
    except Exception as cause:
        raise StepError(
            "HR-TOPOLOGY-020",
            f"prepare of the bolt {ctx.component!r} failed in task {ctx.task}: "
            f"{type(cause).__name__}: {cause}",
            "It is called before the tuples of each batch: without it none can be processed.",
        ) from cause
    own = _undeclared(kind, vars(bolt))
    shared = {n: v for n, v in _undeclared(kind, of_class(kind, Bolt)).items() if n not in own}
    for name, value in (own | shared).items():
        if (part := unwatched(value)) is not None:
            raise not_watched(kind, name, part)
    held = {n: v for n, v in shared.items() if isinstance(v, CONTAINERS)}
    vars(bolt).update({n: copied(v) for n, v in (own | held).items() if isinstance(v, CONTAINERS)})
    vars(bolt)[_BEFORE] = own | held, shared, {n: copied(v) for n, v in held.items()}
    if kind.tick_every is not None:
        arm_ticks(bolt, ctx, due)


def not_watched(kind: type, name: str, part: Any) -> PlanError:
    """An attribute whose changes would be lost without an error."""
    return PlanError(
        "HR-TOPOLOGY-033",
        f"{kind.__name__} has self.{name}, which is or holds an object of {type(part).__name__}: "
        "if it changed, that would be lost with the batch",
        f"If it is only read, or may be lost, such as a client or a model, say transient = "
        f"({name!r},). What must not be lost is declared: {name} = hr.value(...).",
    )


def end_task(bolt: Bolt, ctx: Collector) -> None:
    """After the calls of a task in an epoch: refuse what would be lost now."""
    kind, now = type(bolt), vars(bolt)
    if _BEFORE not in now:
        return
    before, shared, copies = now.pop(_BEFORE)
    own, of_all = _undeclared(kind, now), of_class(kind, Bolt)
    replaced = {n for n, v in shared.items() if of_all.get(n) is not v}
    for name in (*own, *(n for n in before if n not in own), *replaced):
        gone = name not in before or name not in own
        if name in replaced or gone or changed(before[name], own[name]):
            for held, copy in copies.items():
                restore(shared[held], copy)  # so that the call fails as well when it is repeated
            raise StepError(
                "HR-TOPOLOGY-021",
                f"the bolt {ctx.component!r} changed self.{name} of {kind.__name__}, which it does "
                "not declare: the value would be lost with the batch",
                f"Declare it in the class, {name} = hr.value(...) or hr.map_of(...); or, if it may "
                f"be lost, such as a cache, say transient = ({name!r},).",
            )
    for name in shared.keys() & before.keys():
        del now[name]  # its own copy of what all objects share
    bolt.cleanup()


def _undeclared(kind: type[Bolt], attributes: Mapping[str, Any]) -> dict[str, Any]:
    known = {*kind._kept, *kind.transient}
    return {n: v for n, v in attributes.items() if n not in known}


def run_tuples(
    bolt: Bolt,
    ctx: Collector,
    tuples: Iterable[Any],
    times: Sequence[Any],
    inputs: Sequence[str] | None,
    outs: list[Any],
    places: list[int],
    first: int,
    apply: Callable[[int], None],
) -> None:
    """Process the tuples of a task. What is emitted goes to `outs` at once, and the number of its
    tuple, from `first` on, to `places`; `apply` takes what was emitted to other streams."""
    process, side_rows, done = type(bolt).process, ctx.side_rows, len(outs)
    called = zip(range(first, first + len(times)), tuples, times, strict=True)
    if bolt.acks:
        for ctx.place, tup, ctx.time in called:
            if inputs is not None:
                ctx.input = inputs[ctx.place - first]
            rows = bolt.on_row(tup, ctx)
            outs.extend(rows)
            places.extend([ctx.place] * len(rows))
            apply(ctx.place)
        return
    ctx._out = outs
    if inputs is None and ctx.has_one_stream and only_calls(process, "emit", place=2, count=3):
        _run_emitting(bolt, process, ctx, tuples, outs, places, first)
        return
    for place, tup, ctx.time in called:
        ctx.place = place
        if inputs is not None:
            ctx.input = inputs[place - first]
        if process(bolt, tup, ctx) is not None:
            raise TypeError("process returned something")
        if ctx._failed is not None:
            raise TupleFailedError(ctx._failed)
        if (count := len(outs)) != done:
            if count == done + 1:
                places.append(place)
            else:
                places.extend([place] * (count - done))
            done = count
        if side_rows:
            apply(place)


def _run_emitting(
    bolt: Bolt,
    process: Callable[..., Any],
    ctx: Collector,
    tuples: Iterable[Any],
    outs: list[Any],
    places: list[int],
    first: int,
) -> None:
    """The same where nothing but `emit` of the collector is used: it need not know the tuple."""
    emitter, done = _Emitter(ctx, outs), len(outs)
    for place, tup in enumerate(tuples, first):
        if process(bolt, tup, emitter) is not None:
            raise TypeError("process returned something")
        if (count := len(outs)) != done:
            if count == done + 1:
                places.append(place)
            else:
                places.extend([place] * (count - done))
            done = count


class _Emitter:
    """The `emit` of a collector, without the way to it."""

    __slots__ = ("emit",)

    def __init__(self, ctx: Collector, outs: list[Any]) -> None:
        quick, append, slowly = ctx._quick, outs.append, ctx.emit

        def emit(values: Any, stream: str = DEFAULT, anchors: Any = None) -> None:
            if type(values) is quick and stream == DEFAULT:
                append(values)
            else:
                slowly(values, stream, anchors)

        self.emit = emit


class BoltMeta(ProcessMeta):
    """Bolts have timers only if they need any."""

    def timed(cls) -> bool:
        return cls.tick_every is not None  # type: ignore[attr-defined]


class Bolt(KeyedProcess, metaclass=BoltMeta):
    """Subclass me: declare `output` and the state, then `process(self, tup, collector)`.

    `tup` is a named tuple of the fields. `outputs` names further streams and their fields, `direct`
    those of the streams whose tuples go to a task that the bolt chooses. State is declared as in
    a `hr.KeyedProcess`, and is that of the task. `prepare` is called before the tuples of a batch,
    `cleanup` after them; `tick(self, collector)` every `tick_every`, by the "clock" or by "event"
    time (`tick_by`).
    """

    direct: ClassVar[tuple[str, ...]] = ()
    tick_every: ClassVar[Duration | None] = None
    tick_by: ClassVar[str] = CLOCK
    acks: ClassVar[bool] = False
    transient: ClassVar[tuple[str, ...]] = ()
    output: ClassVar[SchemaLike] = None
    _life: ClassVar[Any] = (begin_task, end_task, run_tuples)

    def prepare(self, context: TaskContext) -> None:
        """Called in each task before the tuples of a batch: open what `process` needs."""

    def process(self, tup: Any, collector: Any) -> None:
        """Called with each tuple; emit with `collector.emit`."""
        raise NotImplementedError

    def tick(self, collector: Any) -> None:
        """Called every `tick_every`."""

    def cleanup(self) -> None:
        """Called in each task after the tuples of a batch."""

    # how the runtime of process functions calls it

    def on_row(self, row: Any, ctx: Any) -> Any:
        """Called by the runtime; write `process`."""
        ctx._out, ctx._tup = [], row
        returned = self.process(row, ctx)  # type: ignore[func-returns-value]
        if returned is not None:
            raise TypeError(f"process returned {returned!r}: emit it with collector.emit")
        return ctx.taken()

    def on_timer(self, time: int, ctx: Any) -> Any:
        """Called by the runtime; write `tick`."""
        if ctx.key not in ctx._tasks:  # of an earlier number of tasks
            return None
        ctx._out, ctx._tup = [], None
        returned = self.tick(ctx)  # type: ignore[func-returns-value]
        if returned is not None:
            raise TypeError(f"tick returned {returned!r}: emit it with collector.emit")
        return ctx.taken()
