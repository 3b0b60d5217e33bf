"""A bolt as a step: its tasks are keys, and its groupings deal the rows out to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, integers
from headrace.chunk import HASH
from headrace.clock import MAX_TIME, Duration, millis, pretty
from headrace.hashing import hash_family, hash_keys
from headrace.ops.contract import EpochStep, Fault, Operator, Place
from headrace.ops.process.function import NO_TIME, Call
from headrace.ops.process.operator import ProcessOperator, ProcessSpec
from headrace.ops.process.rows_by_key import RowOrigins, RowsByKey, seen
from headrace.ops.topology.acking import AckingCollector
from headrace.ops.topology.bolt import DEFAULT, Collector
from headrace.ops.topology.groupings import TO, StreamGrouping, task_keys
from headrace.ops.topology.waiting import (
    Reliability,
    Replays,
    TupleFailedError,
    Waiting,
    WaitingTuples,
)
from headrace.rows import row_copier
from headrace.state.table import KeyedTable, TableSpec

TASK = "__task"  # a hidden column: the key of the task
NOTHING = pa.schema([("nothing", pa.bool_())])  # of a bolt that declares no output


@dataclass(frozen=True, eq=False, kw_only=True)
class BoltSpec(ProcessSpec):
    """A user's bolt over named inputs, each dealt out by its grouping."""

    tasks: int
    groupings: tuple[StreamGrouping, ...]
    component: str
    labels: tuple[tuple[str, str], ...]  # the component and the stream of each input
    reliability: Reliability

    at_rest = "Bolt"
    kind = "bolt"
    spreads = False

    @property
    def endless(self) -> bool:
        return False  # one entry for each task

    @property
    def by_event_time(self) -> bool:
        kind = type(self.function)
        timed = kind.timed() and kind.tick_by == "event"
        return timed or any(v.ttl is not None and not v.by_clock for v in kind._kept.values())

    @property
    def runs_user_code(self) -> bool:
        return any(g.function is not None for g in self.groupings)

    @property
    def python(self) -> str:
        return f"{type(self.function).__name__}: a bolt, tuple by tuple"

    def dealt_by(self, port: int) -> tuple[str, ...]:
        return self.groupings[port].fields if len(self.state) else ()

    def dealt(self, port: int) -> str:
        return f"{self.groupings[port]}, to {_tasks(self.tasks)}"

    def detail(self, keyed_by: str, processing: bool) -> str:
        return str(self)

    def __str__(self) -> str:
        dealt = zip(self.names, self.groupings, strict=True)
        inputs = "; ".join(f"{name} by {grouping}" for name, grouping in dealt)
        return f"{self.title}, {_tasks(self.tasks)}: {inputs}{self._ticks()}"

    @property
    def title(self) -> str:
        return type(self.function).__name__

    def _ticks(self) -> str:
        every: Duration | None = type(self.function).tick_every
        return "" if every is None else f"; a tick every {pretty(millis(every))}"

    def state_shape(self, place: Place) -> dict[str, Any]:
        """The number of tasks and the groupings say whose state it is, where there is any."""
        shape = {"kind": self.at_rest, **self.values_shape()}
        if not len(self.state):
            return shape
        return {**shape, "tasks": self.tasks, "groupings": self._groupings(place)}

    def regrouped(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
        """Why the state of its tasks, described by `old`, is not that of its tasks now."""
        if not len(self.state) or "tasks" not in old:
            return
        if old["tasks"] != self.tasks:
            yield f"it had {_tasks(old['tasks'])} and has {self.tasks}, and has state by task"
        was, now = (dict(_by_input(shape["groupings"])) for shape in (old, new))
        gone = [was[name] for name in was if name not in now]
        for name, dealt in now.items():
            same = [one for one in gone if one[0] == dealt[0]]
            before = was.get(name, dealt if dealt in gone else (*same, *gone, dealt)[0])
            if before[0] != dealt[0]:
                yield f"it read {name!r} by {before[0]} and reads it by {dealt[0]}"
                continue
            fields = self.groupings[self.names.index(name)].fields
            for column, *of in zip(fields, before[1], dealt[1], strict=False):  # none were stored
                if of[0] != of[1]:
                    yield (
                        f"the field {column!r} of {name} had {of[0]} and has {of[1]}, which are "
                        "dealt out in another way"
                    )

    def renamed(self, moves: Mapping[str, str]) -> dict[str, str]:
        """What the inputs are called now, by the names under which tuples of renamed components
        wait; `moves` has the names of components before, by those now."""
        found = {}
        for name, (component, stream) in zip(self.names, self.labels, strict=True):
            if component in moves:
                before = moves[component]
                found[before if stream == DEFAULT else f"{before}.{stream}"] = name
        return found

    def _groupings(self, place: Place) -> list[list[Any]]:
        """How each input is dealt out, and, if by fields, by which types: these decide as well."""
        dealt = zip(self.names, self.groupings, place.inputs, strict=True)
        return [
            [name, str(g), *(hash_family(rows.field(f).type) for f in g.fields if self.tasks > 1)]
            for name, g, rows in dealt
        ]

    def operator(self, place: Place) -> Operator:
        return BoltOperator(self, place)


@dataclass
class TaskBlock:
    """Some tasks of an epoch: their rows, which of them are processed again, and the last pass."""

    rows: RowsByKey
    again: Mapping[int, Waiting]
    call: Any = None
    unacked: Mapping[int, str] = field(default_factory=dict)  # by a process, which it names


class BoltOperator(ProcessOperator):
    def __init__(self, spec: BoltSpec, place: Place) -> None:
        self._spec, self._kind = spec, type(spec.function)
        inputs = tuple(schema.append(pa.field(TASK, pa.int64())) for schema in place.inputs)
        keys = tuple((TASK,) for _ in inputs)
        super().__init__(spec.function, spec.names, replace(place, keys=keys, inputs=inputs))
        self._sides = stream_schemas(spec.function)
        self._side_copiers = {n: row_copier(s) for n, s in self._sides.items()}
        self._labels = dict(zip(spec.names, spec.labels, strict=True))
        self._keys = task_keys(spec.tasks)
        self._numbers = {int(key): task for task, key in enumerate(self._keys)}
        self._waiting = WaitingTuples(spec.reliability, spec.names, place.timed)
        self._schemas = place.inputs
        self._emitted = {DEFAULT: place.output, **self._sides}
        self._round, self._blocks = 0, list[TaskBlock]()
        self._replays: Replays

    def tables(self) -> tuple[TableSpec, ...]:
        return (*super().tables(), *self._waiting.tables())

    def step(self, step: EpochStep) -> None:
        """The tuples of the epoch and those that are due again; at the end of the input these go
        round until none waits: none would be found later."""
        self._one_round(self._due(step), step.inputs, step)
        while step.after >= MAX_TIME and (left := self._waiting.take_all(step)):
            again = self._waiting.again(left, step, at_once=True)
            self._one_round(again, [None] * len(step.inputs), step)
        self._waiting.look_ahead(step)

    def _due(self, step: EpochStep) -> list[Waiting]:
        """Of what waits, the tuples to process now."""
        return self._waiting.again(self._waiting.take_due(step), step)

    def _one_round(
        self, again: list[Waiting], inputs: Sequence[pa.Table | None], step: EpochStep
    ) -> None:
        self._replays = Replays(again, inputs, self._spec.names, self._schemas, step)
        self._blocks = []
        if self._replays.failed:
            step.metrics.counters["replayed"] += self._replays.failed
        step.inputs = self._replays.inputs
        super().step(step)
        self._round += 1

    def _block(self, new_pass: Any, by_task: Any, block: RowsByKey, *more: Any) -> Any:
        again = self._replays.of(block.ports, block.indexes)
        self._blocks.append(TaskBlock(block, again))
        return super()._block(new_pass, by_task, block, *more)

    def _result(self, done: Any, block: RowsByKey, step: EpochStep) -> Any:
        self._blocks[-1].call = done._call
        return super()._result(done, block, step)

    def _store(self, parts: list[Any], work: Any, loaded: Any, step: EpochStep) -> None:
        waits: list[Waiting | None] = []
        for part, block in zip(parts, self._blocks, strict=True):
            waits += self._failures(part.faults, block, step)
            waits += self._acks(block, step)
        super()._store(parts, work, loaded, step)
        self._waiting.put([one for one in waits if one is not None], step)

    def _failures(
        self, faults: list[Fault], block: TaskBlock, step: EpochStep
    ) -> Iterator[Waiting | None]:
        """The tuples that failed, as they wait; calls without a tuple stay dead letters."""
        failed = [fault for fault in faults if fault.port >= 0]
        faults[:] = [fault for fault in faults if fault.port < 0]
        for fault in failed:
            yield self._waiting.failed(self._waits(block, fault.place, step), fault.error, step)

    def _waits(self, block: TaskBlock, place: int, step: EpochStep) -> Waiting:
        """The tuple of a call of this round."""
        again = block.again.get(place)
        if again is not None:
            return again
        row = block.rows.arrived(step.inputs, place)
        key, name = row[TASK][0].as_py(), self._spec.names[int(block.rows.ports[place])]
        id = f"{self._epoch_id(step)}.{key}.{place}"
        return Waiting(row, key, row[HASH][0].as_py(), id, 0, name)

    def _epoch_id(self, step: EpochStep) -> str:
        return f"{step.epoch}.{self._round}"

    def _acks(self, block: TaskBlock, step: EpochStep) -> Iterator[Waiting | None]:
        """What was acked, failed, and neither."""
        call, waiting = block.call, self._waiting
        if not isinstance(call, AckingCollector):
            return
        for unacked in call.unacked.values():
            waits = replace(self._waits(block, unacked.place, step), held=unacked.held)
            yield waiting.unacked(waits, step)
        for place, _, reason in call.failed_here:
            yield waiting.failed(self._waits(block, place, step), TupleFailedError(reason), step)
        for stream, rows, place in call.released:
            origins = RowOrigins([place] * rows.num_rows, [])
            self._emit(stream, block.rows.placed(rows, origins, step, self._timed), step)
        for one in self._earlier(list(call.before), call.repeated, step):
            why = call.before[one.task, one.id]
            if why is not None:
                yield waiting.failed(one, TupleFailedError(why), step)
                continue
            for stream, rows in waiting.emitted(one, self._emitted, step):
                self._emit(stream, rows, step)
        for one in self._earlier(sorted(call.longer - call.before.keys()), 0, step):
            yield waiting.unacked(one, step)

    def _earlier(
        self, sought: list[tuple[int, str]], repeated: int, step: EpochStep
    ) -> list[Waiting]:
        """Tuples of earlier epochs that wait for an ack; an ack of any other changes nothing."""
        keys = pa.array([key for key, _ in sought], pa.int64())
        hashes = hash_keys([keys], len(keys)).tolist() if sought else []
        full = [(h, key, id) for h, (key, id) in zip(hashes, sought, strict=True)]
        found = self._waiting.take(full, step)
        if without := len(sought) - len(found) + repeated:
            step.metrics.counters["acks without effect"] += without
        return found

    def _emit(self, stream: str, rows: pa.Table, step: EpochStep) -> None:
        if stream == DEFAULT:
            step.out.append(rows)
        else:
            step.sides.setdefault(stream, []).append(rows)

    def unfit(self, port: int, rows: pa.Table) -> tuple[Mask, list[str]] | None:
        return self._spec.groupings[port].unfit(rows, self._spec.tasks)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """The rows dealt out to the tasks."""
        spec = self._spec
        rows, tasks = spec.groupings[port].deal(rows, spec.tasks, stateful=len(spec.state) > 0)
        keys = pa.array(self._keys[tasks])
        rows = rows.append_column(TASK, keys)
        return rows.append_column(HASH, pa.array(hash_keys([keys], len(keys))))

    def _seen(
        self, inputs: Sequence[pa.Table | None], handlers: Sequence[Any]
    ) -> list[pa.Table | None]:
        return seen(inputs, [self._kind.process] * len(inputs))

    def _call(self, step: EpochStep) -> Call:
        kind = self._kind
        made = partial(AckingCollector, schemas=self._emitted) if kind.acks else Collector
        call = made(
            step.before,
            step.clock,
            self._side_copiers,
            self._spec.component,
            self._labels,
            self._numbers,
            frozenset(kind.direct),
            None if kind.output is None else self._copier,
        )
        call.epoch, call.replays = self._epoch_id(step), self._blocks[-1].again
        call.ended = step.after >= MAX_TIME
        call.until = step.newest if call.ended else step.after
        call.no_timer = "" if kind.timed() else "use tick_every and tick"
        call.no_event_timer = "" if self._timed else NO_TIME
        return call

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The state of each task, by its number."""
        rows = super().view(tables, since, until)
        numbers = pa.array(integers(rows.column(0)) % self._spec.tasks)
        shown = rows.set_column(0, "task", numbers)
        return shown.take(pa.array(np.argsort(numbers.to_numpy(), kind="stable")))


def _by_input(groupings: Sequence[Sequence[str]]) -> Iterator[tuple[str, tuple[str, list[str]]]]:
    yield from ((name, (text, list(families))) for name, text, *families in groupings)


def _tasks(count: int) -> str:
    return f"{count} task{'s' if count > 1 else ''}"


def stream_schemas(function: Any) -> dict[str, pa.Schema]:
    """The columns of the streams of a bolt but the default one, as they travel."""
    sides = type(function).sides()
    return {name: sent_schema(function, name, schema) for name, schema in sides.items()}


def sent_schema(function: Any, stream: str, schema: pa.Schema) -> pa.Schema:
    """The columns of a stream, and of a direct one the task that the bolt chose."""
    direct = stream in type(function).direct
    return schema.append(pa.field(TO, pa.int64())) if direct else schema
