"""A level task: all operators of one level, for the slots that this task holds.

It gathers the epoch's chunks, opens the state that the manifest before names, lets each
operator take one step over all its keys at once, writes one file of new state, and sends on
what the operators emit. Chunks for later levels pass untouched.
"""

from __future__ import annotations

import time as wall
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.chunk import SOURCE
from headrace.clock import MIN_TIME
from headrace.epoch.accounting import Passed, needs_tracking, passes_on
from headrace.epoch.branched_records import (
    fates_of_passed,
    filter_corrections,
    followed_splits,
    may_be_dropped,
    records_in_state,
    single_path_corrections,
)
from headrace.epoch.bundle import Bundle
from headrace.epoch.envelope import (
    CONTROL,
    HOLDS,
    REPORT,
    WATERMARKS,
    ChunkAssembler,
    Envelope,
    note,
)
from headrace.epoch.report import Report
from headrace.epoch.values import Epoch, held_back, hold_of, reached_by, upstream
from headrace.hashing import first_hash, slot_range
from headrace.ops.contract import EpochStep
from headrace.plan.nodes import OUT, Stateful
from headrace.state.faults import point
from headrace.state.manifest import Split, StepFacts, table_key
from headrace.state.runs import RunWriter, cache_of
from headrace.state.store import SlotState, open_table, store_changes
from headrace.state.table import KeyedTable, TableSpec
from headrace.task.dead_letters import DeadLetters, errors_named_by_step
from headrace.task.flow import Flow, Outputs
from headrace.task.letters import Reentry
from headrace.task.source_task import finish_dead


def run_level(bundle: Bundle, level: int, arrived: Iterable[Envelope]) -> Iterator[Envelope]:
    """Everything one task of `level` does, as the envelopes it sends."""
    control: dict[str, Any] | None = None
    reached: dict[str, int] = {}
    holds: dict[str, int] = {}
    chunks: dict[tuple[str, int], list[pa.Table]] = defaultdict(list)
    arriving, task = ChunkAssembler(), 0
    for envelope in arrived:
        if envelope.level > level:
            yield envelope
        elif envelope.op == CONTROL:
            control, task = envelope.note(), envelope.task
        elif envelope.op == WATERMARKS:
            for split, watermark in envelope.note().items():
                reached[split] = max(watermark, reached.get(split, watermark))
        elif envelope.op == HOLDS:
            for step, time in envelope.note().items():
                holds[step] = min(time, holds.get(step, time))
        else:
            chunk = arriving.add(envelope)
            if chunk is not None:
                chunks[envelope.op, envelope.port].append(chunk)
    arriving.finish()
    if control is not None:  # else the epoch is a replay, and there is nothing to do
        epoch = Epoch.from_json(control["epoch"])
        epoch = replace(epoch, splits=tuple(_advanced(s, reached) for s in epoch.splits))
        yield from _LevelTask(bundle, level, task, epoch, control["state"], holds).run(chunks)


def _advanced(split: Split, reached: dict[str, int]) -> Split:
    watermark = reached.get(str(split.id), MIN_TIME)
    return replace(split, watermark=max(split.watermark, watermark))


class _LevelTask:
    def __init__(
        self,
        bundle: Bundle,
        level: int,
        task: int,
        epoch: Epoch,
        state: dict[str, Any],
        holds: Mapping[str, int],
    ) -> None:
        program, self._holds = bundle.program, holds
        self._program, self._level, self._task, self._epoch = program, level, task, epoch
        unique = f"{epoch.number}-{level}-{task}-{uuid.uuid4().hex[:8]}"
        self._outputs = Outputs(bundle.sinks, epoch, unique)
        dead = DeadLetters(epoch, program.on_error, bundle.sources)
        self._flow = Flow(program, epoch, self._outputs, dead)
        slots = slot_range(task, epoch.tasks, epoch.slots)
        self._state = TaskState(epoch.folder, unique, slots, epoch.slots, state)
        self._homes = tuple(first_hash(slot, epoch.slots) for slot in range(*slots))
        self._report = Report(epoch.number, epoch.attempt)
        self._followed = followed_splits(program, epoch)

    def run(self, chunks: dict[tuple[str, int], list[pa.Table]]) -> Iterator[Envelope]:
        began = wall.perf_counter()
        for node in self._program.stateful_at(self._level):
            self._step(node, [chunks.get((node.name, i)) for i in range(len(node.inputs))])
        self._report.dead = self._flow.dead.places()
        self._report.examples = self._flow.dead.examples()
        finish_dead(self._program, self._flow, self._outputs)
        yield from self._flow.finish()
        self._outputs.finish()
        self._state.close()
        point("state.written")
        self._report.staged = dict(self._outputs.staged)
        self._report.rows = dict(self._outputs.rows)
        self._report.steps = {n: dict(c) for n, c in self._flow.steps.items()}
        self._report.timing = {f"level {self._level}": (wall.perf_counter() - began) * 1_000}
        yield from self._hold_back()
        yield note(self._program.depth + 1, self._task, REPORT, self._report.to_json())

    def _hold_back(self) -> Iterator[Envelope]:
        """What later steps must know of rows that wait in these."""
        waiting = {n: f.holds for n, f in self._report.ops.items() if f.holds is not None}
        for level in range(self._level + 1, self._program.depth + 1) if waiting else ():
            for task in range(self._epoch.tasks):
                yield note(level, task, HOLDS, waiting)

    def _newest(self, inputs: Iterable[str]) -> int:
        names = set(inputs)
        return max((s.watermark for s in self._epoch.splits if s.input in names), default=MIN_TIME)

    def _step(self, node: Stateful, chunks: list[list[pa.Table] | None]) -> None:
        operator = self._epoch.operator(node)
        specs = operator.tables()
        before = self._epoch.before.get(node.name, MIN_TIME)
        inputs = upstream(self._program, node.name)
        hold = hold_of(self._program, node.name)
        reached = reached_by(node.processing, inputs, self._epoch.splits, self._epoch.clock, hold)
        if not node.processing:
            reached = held_back(self._program, node.name, reached, self._holds)
        step = EpochStep(
            inputs=[c and pa.concat_tables(c, promote_options="default") for c in chunks],
            tables={s.name: self._state.open(node.name, s) for s in specs},
            before=before,
            after=max(before, reached),
            clock=self._epoch.clock,
            epoch=self._epoch.number,
            newest=self._newest(inputs),
            homes=self._homes,
            task=self._task,
        )
        with errors_named_by_step(node.name, node.site):
            operator.step(step)
        for fault in step.faults:
            self._flow.steps[node.name]["dead"] += fault.row.num_rows
            entry = Reentry(node.name, fault.port, fault.row) if fault.port >= 0 else None
            self._flow.dead.add(node.name, fault.row, [fault.error], entry=entry)
        if step.windows:
            self._flow.steps[node.name].update(step.windows)
        for rows in step.filtered:
            self._correct(filter_corrections(self._program, node.name, rows, self._epoch))
        for name, table in step.tables.items():
            if self._state.is_there(node.name, table):
                self._report.state[table_key(node.name, name)] = self._state.store(node.name, table)
        if step.counts:
            self._report.metrics[node.name] = dict(step.counts)
        rows_held = sum(t.rows_held for t in step.tables.values())
        tasks = self._epoch.tasks if operator.by_task else None
        facts = StepFacts(
            step.after,
            step.next,
            step.wake,
            rows_held,
            tasks=tasks,
            holds=step.holds,
            oldest=step.oldest,
        )
        self._report.ops[node.name] = facts
        for port, tables in step.sides.items():
            for rows in tables:
                self._send(node, port, rows)
        for rows in step.out:
            self._flow.steps[node.name]["out"] += rows.num_rows
            passed = self._send(node, OUT, rows)
            if passed is not None and len(self._followed) < len(self._epoch.splits):
                for fate, splits in passed.fates().items():
                    self._correct(
                        single_path_corrections(self._program, node.name, splits, fate, self._epoch)
                    )
        if self._followed and passes_on(node):
            self._report.branched += records_in_state(step, self._followed)

    def _send(self, node: Stateful, port: str, rows: pa.Table) -> Passed | None:
        """Send rows on; of those that are records of an input, see what becomes of them."""
        follow = passes_on(node) and (self._followed or may_be_dropped(self._program, node.name))
        if SOURCE not in rows.column_names or not follow:
            self._flow.push(node.name, port, rows)
            return None
        passed = Passed(rows, needs_tracking(self._program, node.name))
        counted, self._flow.fate = self._flow.fate, passed.mark
        self._flow.push(node.name, port, rows)
        self._flow.fate = counted
        self._report.branched += fates_of_passed(passed, self._followed)
        return passed

    def _correct(self, corrections: Mapping[str, Counter[str]]) -> None:
        for name, fates in corrections.items():
            counts = Counter(self._report.inputs.get(name, {}))
            counts.update(fates)
            self._report.inputs[name] = dict(counts)


class TaskState:
    """The tables of one task in one epoch: opened, changed, and written as one file."""

    def __init__(
        self,
        folder: str,
        unique: str,
        slot_range: tuple[int, int],
        slots: int,
        state: Mapping[str, Any],
    ) -> None:
        self._slot_range, self._slots, self._state = slot_range, slots, state
        self._cache = cache_of(folder)
        self._writer = RunWriter(folder, unique)

    def open(self, op: str, spec: TableSpec) -> KeyedTable:
        lo, hi = self._slot_range
        return open_table(spec, self._before(op, spec), lo, hi, self._slots, self._cache)

    def is_there(self, op: str, table: KeyedTable) -> bool:
        """Whether the table is to be at rest: an optional one only once it has had rows."""
        known = table_key(op, table.spec.name) in self._state
        return not table.spec.optional or known or table.rows_held > 0

    def store(self, op: str, table: KeyedTable) -> dict[str, Any]:
        """Write what changed; which runs make up this task's slots from now on."""
        lo, hi = self._slot_range
        before = self._before(op, table.spec)
        after = store_changes(table, before, lo, hi, self._slots, self._writer, self._cache)
        return after.to_json()

    def _before(self, op: str, spec: TableSpec) -> SlotState:
        stored = self._state.get(table_key(op, spec.name))
        return SlotState.from_json(stored) if stored else SlotState.empty(self._slots)

    def close(self) -> None:
        self._writer.close()
