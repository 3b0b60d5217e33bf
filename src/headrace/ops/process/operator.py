"""Keyed process functions: the user's code sees one key's rows, one at a time, in order.

The keys that have rows or timers in an epoch are processed one after the other: first in a pass
that trusts the user's code; only if a call fails, or returns what does not fit, again in one that
checks every call by itself. Rows and state are written by column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.arrays import Mask
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import PlanError
from headrace.ops.contract import EpochStep, Fault, Operator, Place, Spec
from headrace.ops.keys import key_schema, key_values
from headrace.ops.process.calls_by_key import CallChecks, KeyPass
from headrace.ops.process.chunks import ChunkOperator
from headrace.ops.process.function import (
    NO_ON_TIMER,
    NO_TIME,
    Call,
    KeyedProcess,
    own_attributes,
)
from headrace.ops.process.held_rows import HELD_ROWS, HeldRows, held_shape
from headrace.ops.process.key_state import (
    KeyState,
    LoadedState,
    NewState,
    Timer,
    Timers,
    seen_by_key,
)
from headrace.ops.process.operator_state import OperatorState, TaskValues
from headrace.ops.process.rows_by_key import PLACE, RowArranger, RowsByKey, seen, spread_hashes
from headrace.ops.process.shared_maps import KEY, SharedMapGuard, SharedMaps, table_name
from headrace.ops.process.state_kinds import ValueState
from headrace.ops.row_buffer import passed_by
from headrace.ops.tables import plain_view
from headrace.ops.user_metrics import UserMetrics
from headrace.reads import ignores
from headrace.rows import collector_paused, row_copier, table_of
from headrace.schema import ddl_type
from headrace.state.table import KeyedTable, TableSpec

BLOCK = 16_384  # rows that are Python objects at a time


@dataclass(frozen=True, slots=True)
class _BlockResult:
    """The result of the calls of some keys, as tables."""

    keys: pa.Table
    out: pa.Table | None
    sides: dict[str, pa.Table]
    state: NewState
    armed: set[Timer]
    cancelled: set[Timer]
    faults: list[Fault]
    metrics: UserMetrics
    by_task: TaskValues


class ProcessOperator(Operator):
    version = 3

    def __init__(
        self,
        function: KeyedProcess,
        names: Sequence[str],
        place: Place,
        *,
        together: bool = False,
        order: str = "",
    ) -> None:
        self._held = HeldRows(place) if order else None
        self._function, self._names, self._schema = function, names, place.output
        self._together = together
        self._timed, self._sides, self._by = place.timed, type(function).sides(), list(place.key)
        self._key = key_schema(place.key, place.input)
        self._arranger = RowArranger(self._key, place.keys)
        self._values = KeyState(function, self._key)
        self._timers = Timers(type(function).timed(), self._key, ordered=bool(order))
        self._shared = SharedMaps(function, names, place.broadcast)
        self._operator = OperatorState(function)
        self.by_task, self._keyed = bool(self._operator), bool(place.key)
        self._ignores_context = self._must_ignore_context()
        self._every_key = calls_every_key(type(function))
        self._copier = row_copier(place.output)
        self._side_copiers = {n: row_copier(s) for n, s in self._sides.items()}

    def _must_ignore_context(self) -> bool:
        """Whether rows come from one input, and its method surely ignores its context."""
        kind = type(self._function)
        plain = len(self._names) == 1 and not self._values.with_ttl
        at_once = getattr(kind, "rows_at_once", False)
        return plain and not at_once and ignores(_handler(kind, self._names[0]), place=2, count=3)

    def tables(self) -> tuple[TableSpec, ...]:
        by_key = (*self._values.tables(), *self._timers.tables())
        held = () if self._held is None else self._held.tables()
        return (*by_key, *self._shared.tables(), *self._operator.tables(), *held)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        """With `order` the rows that the watermark has passed; without, none is late."""
        return None if self._held is None else passed_by(rows, watermark)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """Without a key, rows are spread over the tasks, or are together in one."""
        return rows if self._keyed else spread_hashes(rows, () if self._together else PLACE)

    @collector_paused()
    def step(self, step: EpochStep) -> None:
        inputs, control = self._shared.split(step.inputs)
        inputs = inputs if self._held is None else self._held.due(inputs, step)
        self._limits = self._timers.limits(step)
        work = self._arrange(inputs, step)
        maps = self._shared.apply(control, step) if self._has_work(work, control) else {}
        if len(work):
            self._calls(work, inputs, self._shared.guard(maps, step), step)
        self._values.expire_keys(step)
        self._timers.look_ahead(step)
        if self._held is not None:
            self._held.look_ahead(step)

    def _arrange(self, inputs: Sequence[pa.Table | None], step: EpochStep) -> RowsByKey:
        if not self._keyed:
            return self._arranger.arrange_unkeyed(inputs, BLOCK)
        held = self._values.keys(step) if self._every_key else None
        return self._arranger.arrange(inputs, self._timers.due(step, self._limits), held)

    def _has_work(self, work: RowsByKey, control: Sequence[pa.Table | None]) -> bool:
        return len(work) > 0 or any(rows is not None for rows in control)

    def _calls(
        self,
        work: RowsByKey,
        inputs: Sequence[pa.Table | None],
        guard: SharedMapGuard,
        step: EpochStep,
    ) -> None:
        """All keys, a block at a time, so that the rows of a block stay in the cache."""
        kind, loaded = type(self._function), self._values.load(work.keys, step)
        handlers = [(_handler(kind, name), name) for name in self._names]
        columns = self._seen(inputs, [handler for handler, _ in handlers])
        own = {**own_attributes(self._function), **guard.maps}
        results, by_task = [], self._operator.load(step)
        for first, block in work.blocks(BLOCK):
            new_pass = partial(
                KeyPass,
                self._function,
                own,
                handlers,
                self._ignores_context,
                block,
                columns,
                step,
                self._limits,
                self._values,
                loaded.slice(first, len(block)),
                self._copier,
                self._operator,
            )
            results.append(self._block(new_pass, by_task, block, inputs, guard, step))
            by_task = results[-1].by_task
        self._store(results, work, loaded, step)
        self._operator.store(by_task, step)

    def _seen(
        self, inputs: Sequence[pa.Table | None], handlers: Sequence[Any]
    ) -> list[pa.Table | None]:
        """Of each input, only the columns that its method surely looks at."""
        return seen(inputs, handlers)

    def _block(
        self,
        new_pass: Callable[[TaskValues, Call], KeyPass],
        by_task: TaskValues,
        block: RowsByKey,
        inputs: Sequence[pa.Table | None],
        guard: SharedMapGuard,
        step: EpochStep,
    ) -> _BlockResult:
        keys = key_values(block.keys, self._key.names) if self._keyed else [None] * len(block)

        def run(checks: CallChecks | None) -> _BlockResult:
            one = new_pass(self._operator.copied(by_task), self._call(step))
            result = self._result(one.run(keys, checks), block, step)
            guard.check()
            return result

        arrived, blamed = partial(block.arrived, inputs), block.blamed
        try:
            return run(None)
        except Exception:  # the user's, or what it returned or stored does not fit
            guard.restore()
        try:
            return run(CallChecks(self._accept, arrived, blamed))
        except PlanError:  # a call changed what is shared: look for it after each
            guard.restore()
            return run(CallChecks(self._accept, arrived, blamed, guard))

    def _call(self, step: EpochStep) -> Call:
        call = Call(step.before, step.clock, self._side_copiers)
        call.no_timer = "" if type(self._function).timed() else NO_ON_TIMER
        call.no_event_timer = "" if self._timed else NO_TIME
        return call

    def _accept(self, rows: list[Any], sides: list[tuple[str, Any]]) -> None:
        """Refuse what does not fit its columns."""
        table_of(rows, self._schema)
        for name, row in sides:
            table_of([row], self._sides[name])

    def _result(self, done: KeyPass, block: RowsByKey, step: EpochStep) -> _BlockResult:
        """The result of a pass; refuses what does not fit, before anything is written."""
        out = table_of(done.outs, self._schema)
        sides = {
            name: block.placed(table_of(rows, self._sides[name]), places, step, self._timed)
            for name, (rows, places) in done.sides.items()
        }
        return _BlockResult(
            block.keys,
            block.placed(out, done.places, step, self._timed) if len(out) else None,
            sides,
            self._values.new_state(done.states, done.stamps, done.loaded),
            done.armed,
            done.cancelled,
            done.faults,
            done.metrics,
            self._fitting(done.by_task),
        )

    def _fitting(self, by_task: TaskValues) -> TaskValues:
        """The values of the task; refuses what does not fit."""
        if self._operator:
            self._operator.row(by_task)
        return by_task

    def _store(
        self, parts: list[_BlockResult], work: RowsByKey, loaded: LoadedState, step: EpochStep
    ) -> None:
        self._values.store(work.keys, loaded, [part.state for part in parts], step)
        for part in parts:
            self._timers.store(part.keys, part.armed, part.cancelled, step)
            step.faults.extend(part.faults)
            step.metrics.update(part.metrics)
            if part.out is not None:
                step.out.append(part.out)
            for name, table in part.sides.items():
                step.sides.setdefault(name, []).append(table)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """Keys by the names of the first input, and the state of each; without a key, tasks."""
        if not self._keyed:
            return self._operator.all_values(tables)
        return seen_by_key(tables, self._by, self._key, since, until)

    def side_views(self) -> Mapping[str, Sequence[str]]:
        shared = dict.fromkeys(type(self._function).shared, (KEY,))
        held = {} if self._held is None else self._held.side_views()
        return {**held, **shared, **dict.fromkeys(self._operator.names, ("task",))}

    def side_view(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
        if self._held is not None and name in self._held.side_views():
            return self._held.side_view(name, tables)
        if name in self._operator.names:
            return self._operator.one_value(name, tables)
        return plain_view(tables[table_name(name)], MIN_TIME, MAX_TIME)


def calls_every_key(kind: type) -> bool:
    """Whether each key that has state is called in every batch, with rows or without."""
    return bool(getattr(kind, "_every_key", False))


def _handler(kind: type, name: str) -> Any:
    handler = getattr(kind, f"on_{name}", None)
    return handler if handler is not None else kind.on_row  # type: ignore[attr-defined]


# The spec of a keyed process function.


@dataclass(frozen=True, eq=False)
class ProcessSpec(Spec):
    """A user's keyed process function over named inputs."""

    names: tuple[str, ...]  # of the inputs, as the function sees them
    function: Any  # an instance of the user's KeyedProcess
    state: pa.Schema  # its declared values
    together: bool = False  # without a key: whether all rows go to one task
    order: str = ""  # EVENT_TIME: rows are held until the watermark has passed them

    at_rest = "Process"
    widens_keys = True
    kind = "process"
    spreads = True

    @property
    def has_late(self) -> bool:
        return bool(self.order)

    @property
    def needs_time(self) -> bool:
        return bool(self.order)

    @property
    def endless(self) -> bool:
        return len(self.state) > 0 and not type(self.function).forgets()

    @property
    def bound(self) -> str:
        return 'unbounded=True; otherwise pass ttl="1h" for every value of its state.'

    @property
    def by_event_time(self) -> bool:
        kind = type(self.function)
        lives = {life_of(value) for value in kind._kept.values()}
        return bool(self.order) or kind.timed() or "event" in lives

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (type(self.function),)

    @property
    def user_code(self) -> list[Any]:
        return [type(self.function), vars(self.function)]

    @property
    def python(self) -> str:
        kind = type(self.function)
        path = "by chunk" if kind.chunked() else "row by row"
        every = "; called for every key in every batch" if calls_every_key(kind) else ""
        return f"{kind.__name__}: a process function, {path}{every}"

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.names

    def __str__(self) -> str:
        kind = type(self.function)
        every = ", cost of a batch grows with the keys held" if calls_every_key(kind) else ""
        order = ", in the order of event time" if self.order else ""
        return f"{kind.__name__} over {', '.join(self.names)}{order}{every}"

    def state_shape(self, place: Place) -> dict[str, Any]:
        shape = {"kind": self.at_rest, **self.values_shape()}
        return {**shape, HELD_ROWS: held_shape(self.names, place)} if self.order else shape

    def values_shape(self) -> dict[str, Any]:
        """The values of its state, as plain JSON."""
        kind = type(self.function)
        values = [[n, ddl_type(v.type), v.word, life_of(v)] for n, v in kind._kept.items()]
        return {"values": values, "timers": kind.timed()}

    def regrouped(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
        """Why state that is described by `old` is not by the same tasks as that of `new`; never,
        if by key."""
        yield from ()

    def operator(self, place: Place) -> Operator:
        if type(self.function).chunked():
            return ChunkOperator(self.function, place, order=self.order)
        return ProcessOperator(
            self.function, self.names, place, together=self.together, order=self.order
        )


def life_of(declared: ValueState) -> str:
    """By which time a value expires: "", "event", "clock"."""
    return "" if declared.ttl is None else "clock" if declared.by_clock else "event"
