"""A bolt as a step: its tasks are keys, and its groupings deal the rows out to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, integers
from headrace.chunk import HASH
from headrace.clock import MAX_TIME, Duration, millis, pretty
from headrace.hashing import hash_keys
from headrace.ops.contract import EpochStep, Operator, Place
from headrace.ops.process.function import NO_TIME, Call
from headrace.ops.process.operator import ProcessOperator, ProcessSpec
from headrace.ops.process.rows_by_key import seen
from headrace.ops.topology.bolt import Collector
from headrace.ops.topology.groupings import TO, StreamGrouping, task_keys
from headrace.rows import row_copier
from headrace.state.table import KeyedTable

TASK = "__task"  # a hidden column: the key of the task
NOTHING = pa.schema([("nothing", pa.bool_())])  # of a bolt that declares no output


@dataclass(frozen=True, eq=False, kw_only=True)
class BoltSpec(ProcessSpec):
    """A user's bolt over named inputs, each dealt out by its grouping."""

    tasks: int
    groupings: tuple[StreamGrouping, ...]
    component: str
    labels: tuple[tuple[str, str], ...]  # the component and the stream of each input

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
        return {**shape, "tasks": self.tasks, "groupings": self._groupings()}

    def regrouped(self, old: Mapping[str, Any]) -> Iterator[str]:
        """Why the state of its tasks, described by `old`, is not that of its tasks now."""
        if not len(self.state) or "tasks" not in old:
            return
        if old["tasks"] != self.tasks:
            yield f"it had {_tasks(old['tasks'])} and has {self.tasks}, and has state by task"
        was, now = dict(old["groupings"]), dict(self._groupings())
        gone = [was[name] for name in was if name not in now]
        for name, grouping in now.items():
            before = was.get(name, grouping if grouping in gone or not gone else gone[0])
            if before != grouping:
                yield f"it read {name!r} by {before} and reads it by {grouping}"

    def _groupings(self) -> list[list[str]]:
        return [[n, str(g)] for n, g in zip(self.names, self.groupings, strict=True)]

    def operator(self, place: Place) -> Operator:
        return BoltOperator(self, place)


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

    def unfit(self, port: int, rows: pa.Table) -> tuple[Mask, list[str]] | None:
        return self._spec.groupings[port].unfit(rows, self._spec.tasks)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """The rows dealt out to the tasks."""
        rows, tasks = self._spec.groupings[port].deal(rows, self._spec.tasks)
        keys = pa.array(self._keys[tasks])
        rows = rows.append_column(TASK, keys)
        return rows.append_column(HASH, pa.array(hash_keys([keys], len(keys))))

    def _seen(
        self, inputs: Sequence[pa.Table | None], handlers: Sequence[Any]
    ) -> list[pa.Table | None]:
        return seen(inputs, [self._kind.process] * len(inputs))

    def _call(self, step: EpochStep) -> Call:
        kind = self._kind
        call = Collector(
            step.before,
            step.clock,
            self._side_copiers,
            self._spec.component,
            self._labels,
            self._numbers,
            frozenset(kind.direct),
            None if kind.output is None else self._copier,
        )
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
