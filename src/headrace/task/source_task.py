"""A source task: read, decode, stamp with time, and run the program as far as it goes.

One task reads one or more ranges, runs every step that needs no shuffle, and sends on what
operators need. The first task of an epoch also carries the epoch's control notes: what each
level task must know, including the references to its state.
"""

from __future__ import annotations

import time as wall
import uuid
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import beyond, milliseconds
from headrace.chunk import OFFSET, SOURCE, TIME
from headrace.clock import MIN_TIME
from headrace.epoch.accounting import Tally, needs_tracking
from headrace.epoch.branched_records import OPEN, SURE, may_branch, pack_offsets
from headrace.epoch.bundle import DEAD, Bundle
from headrace.epoch.envelope import CONTROL, REPORT, WATERMARKS, Envelope, note
from headrace.epoch.report import Report
from headrace.epoch.values import Piece, SourceTask
from headrace.kernel import Kernel, SelectStep, compile_chain
from headrace.ops.agg.named import bare_sql
from headrace.ops.watermarks import ComputedTime, Ingestion, columns_watched
from headrace.plan.nodes import LATE, OUT, Read, Stateful
from headrace.plan.program import Program
from headrace.sources import Source
from headrace.sources.contract import MISFIT
from headrace.state.faults import point
from headrace.state.manifest import Split
from headrace.task.dead_letters import DeadLetters
from headrace.task.flow import Flow, Outputs
from headrace.task.watermark_trackers import Failures, tracker


def run_source(bundle: Bundle, task: SourceTask) -> Iterator[Envelope]:
    """Everything one source task does, as the envelopes it sends."""
    program, epoch = bundle.program, task.epoch
    report = Report(epoch.number, epoch.attempt, task.replay)
    if task.index == 0:
        report.end = epoch.end
    if not task.replay:
        yield from _controls(program, task)
        yield from _read(bundle, task, report)
    yield note(program.depth + 1, 0, REPORT, report.to_json())


def _controls(program: Program, task: SourceTask) -> Iterator[Envelope]:
    if task.state is None:
        return
    content = {"epoch": task.epoch.to_json(), "state": task.state}
    for level in range(1, program.depth + 1):
        for index in range(task.epoch.tasks):
            yield note(level, index, CONTROL, content)


def _read(bundle: Bundle, task: SourceTask, report: Report) -> Iterator[Envelope]:
    began = wall.perf_counter()
    program, epoch = bundle.program, task.epoch
    unique = f"{epoch.number}-0-{task.index}-{uuid.uuid4().hex[:8]}"
    outputs = Outputs(bundle.sinks, epoch, unique)
    dead = DeadLetters(epoch, program.on_error, bundle.sources)
    flow = Flow(program, epoch, outputs, dead)
    splits = {s.id: s for s in epoch.splits}
    for piece in task.pieces:
        split = splits[piece.split]
        reader = _SplitReader(program, bundle.sources[split.input], split, flow, epoch.clock)
        yield from reader.run(piece)
        reader.report_to(report)
        report.inputs[split.input] = _sum(report.inputs.get(split.input), reader.counts)
        point("source.read")
    yield from flow.finish()
    finish_dead(program, flow, outputs)
    yield from flow.finish()
    outputs.finish()
    report.staged, report.rows = dict(outputs.staged), dict(outputs.rows)
    report.examples = dead.examples()
    report.steps = {n: dict(c) for n, c in flow.steps.items()}
    report.timing = {"source": (wall.perf_counter() - began) * 1_000}
    for level in range(1, program.depth + 1):
        for index in range(epoch.tasks):
            yield note(level, index, WATERMARKS, report.splits)


def finish_dead(program: Program, flow: Flow, outputs: Outputs) -> None:
    """Send the task's dead letters where the program wants them, else to the job's own."""
    if not len(flow.dead):
        return
    letters = flow.dead.table()
    stream = program.dead()
    if stream is None:
        outputs.add(DEAD, letters)
    else:
        flow.push(stream.name, OUT, letters)


def _sum(before: dict[str, int] | None, counts: Mapping[str, int]) -> dict[str, int]:
    return {fate: n + (before or {}).get(fate, 0) for fate, n in counts.items()}


class _SplitReader:
    """Reads the ranges of one split into a flow."""

    def __init__(
        self, program: Program, source: Source, split: Split, flow: Flow, clock: int
    ) -> None:
        node = program.nodes[split.input]
        assert isinstance(node, Read)
        self._node, self._split, self._flow = node, split, flow
        self._source = source.encoding(encodable(program, node))
        self._clock, self._time_is_number = clock, False
        self._origin = (
            f"{'column ' if isinstance(node.time, str) else ''}{bare_sql(str(node.time))!r}"
        )
        self._limit = None if node.max_skew is None else clock + node.max_skew
        several = may_branch(program, node.name)
        self._tally = Tally(needs_tracking(program, node.name), several)
        self._tracker = tracker(node, self._limit, split.memory)

    @property
    def counts(self) -> Mapping[str, int]:
        return self._tally.counts

    def report_to(self, report: Report) -> None:
        """Say how far the split has come, and what its watermark has to remember."""
        place = str(self._split.id)
        before = report.splits.get(place, MIN_TIME)
        report.splits[place] = max(before, self._tracker.watermark)
        if self._tracker.memory is not None:
            report.memory[place] = self._tracker.memory
        where = (self._split.input, self._split.name)
        report.several += [(*where, *several) for several in self._tally.several]
        for fate, offsets in ((OPEN, self._tally.open), (SURE, self._tally.sure)):
            if sum(map(len, offsets)):
                report.branched.append((*where, fate, pack_offsets(np.concatenate(offsets))))

    def run(self, piece: Piece) -> Iterator[Envelope]:
        self._flow.fate = self._tally.mark
        for chunk, offsets in self._source.read(piece.range):
            self._tally.begin(offsets)
            rows = self._stamped(chunk, offsets)
            self._flow.steps[self._node.name]["out"] += rows.num_rows
            self._flow.push(self._node.name, OUT, rows)
            self._tally.end()
            yield from self._flow.ready()

    def _stamped(self, chunk: pa.Table, offsets: np.ndarray) -> pa.Table:
        """The chunk decoded, with its hidden columns; rows that cannot be are dead."""
        self._flow.raw = None
        if self._source.raw:
            chunk, offsets = self._decoded(chunk, offsets)
        elif MISFIT in chunk.column_names:
            chunk, offsets = self._fitting(chunk, offsets)
        rows = chunk.select(self._node.schema.names)
        source = np.full(len(offsets), self._split.id, dtype=np.int32)
        rows = rows.append_column(SOURCE, pa.array(source))
        rows = rows.append_column(OFFSET, pa.array(offsets))
        rows, times = self._times(rows)
        return rows if times is None else self._timed(rows, times)

    def _decoded(self, chunk: pa.Table, offsets: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        rows, bad, reasons = self._source.decode(chunk)
        if not bad.any():
            return rows, offsets
        raw = chunk.column(0).filter(pa.array(bad)).to_pylist()
        self._flow.raw = dict(zip(offsets[bad].tolist(), map(_bytes, raw), strict=True))
        self._kill(pa.table({OFFSET: offsets[bad]}), reasons)
        return rows, offsets[~bad]

    def _fitting(self, chunk: pa.Table, offsets: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        """A typed chunk without its bad rows."""
        good = chunk.column(MISFIT).is_null()
        reasons = chunk.column(MISFIT).drop_null().to_pylist()
        chunk = chunk.drop_columns([MISFIT])
        fits = good.to_numpy()
        misfits = chunk.filter(pc.invert(good)).append_column(OFFSET, pa.array(offsets[~fits]))
        self._kill(misfits, reasons)
        return chunk.filter(good), offsets[fits]

    def _times(self, rows: pa.Table) -> tuple[pa.Table, pa.ChunkedArray | None]:
        """The rows whose event time could be computed, and their times."""
        match self._node.time:
            case str() as column:
                return rows, rows.column(column)
            case ComputedTime():
                timed, failed = _time_kernel(self._node).run(rows)
                rows = self._without_failed(rows, dict(failed)) if failed else rows
                return rows, timed.column(0)
            case Ingestion():
                return rows, pa.chunked_array([np.full(rows.num_rows, self._clock)])
        return rows, None

    def _timed(self, rows: pa.Table, times: pa.ChunkedArray) -> pa.Table:
        self._time_is_number = pa.types.is_integer(times.type)
        rows = rows.append_column(TIME, milliseconds(times))
        if times.null_count:
            reason = f"the time {self._origin} is null"
            rows = self._without(rows, pc.is_null(rows.column(TIME)), reason)
        far = beyond(rows.column(TIME))
        if far is not None:
            rows = self._without(rows, far, self._far_reasons(rows.column(TIME).filter(far)))
        if self._limit is not None:
            ahead = pc.greater(rows.column(TIME), self._limit)
            reason = f"the time {self._origin} is too far ahead of the clock (max_skew)"
            rows = self._without(rows, ahead, reason)
        failures = self._tracker.see(rows) if rows.num_rows else {}
        return self._without_failed(rows, failures) if failures else rows

    def _without_failed(self, rows: pa.Table, failures: Failures) -> pa.Table:
        """The rows without those whose time or watermark could not be computed."""
        places = sorted(failures)
        bad = np.zeros(rows.num_rows, dtype=bool)
        bad[places] = True
        self._kill(rows.filter(pa.array(bad)), [failures[p] for p in places])
        return rows.filter(pa.array(~bad))

    def _far_reasons(self, times: pa.ChunkedArray) -> list[str]:
        """Why rows with these times are dead; timestamps have a unit, numbers may have another."""
        fact = f"of {self._origin} is not within the years 1 to 9999"
        if not self._time_is_number:
            return [f"the time {fact}"] * len(times)
        fact += ": is it in milliseconds?"
        return [f"the time {time} {fact}" for time in times.to_pylist()]

    def _without(self, rows: pa.Table, mask: pa.ChunkedArray, reason: str | list[str]) -> pa.Table:
        if not pc.any(mask).as_py():
            return rows
        dropped = rows.filter(mask)
        self._kill(dropped, [reason] * dropped.num_rows if isinstance(reason, str) else reason)
        return rows.filter(pc.invert(mask))

    def _kill(self, rows: pa.Table, reasons: list[Any]) -> None:
        if SOURCE not in rows.column_names:
            source = np.full(rows.num_rows, self._split.id, dtype=np.int32)
            rows = rows.append_column(SOURCE, pa.array(source))
        self._flow.steps[self._node.name]["dead"] += rows.num_rows
        self._tally.mark("dead", rows)
        self._flow.dead.add(self._node.name, rows, reasons, self._flow.raw)


@lru_cache(maxsize=64)
def _time_kernel(node: Read) -> Kernel:
    """The compiled event time of an input, once per process."""
    assert isinstance(node.time, ComputedTime)
    return compile_chain([SelectStep(columns=(("time", node.time.expr),))], node.schema)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value or b"")


def encodable(program: Program, node: Read) -> tuple[str, ...]:
    """Text columns that only operators which aggregate before they send will see."""
    keys: set[str] = set()
    watched = columns_watched(node.time, node.watermark, tuple(node.schema.names))
    for consumer, _ in program.consumers_of(node.name, OUT):
        reached = program.nodes[consumer]
        if not isinstance(reached, Stateful) or not reached.what.encodes_keys:
            return ()
        if program.consumers_of(consumer, LATE):
            return ()
        keys.update(reached.keys[0])
    keys -= watched
    return tuple(k for k in sorted(keys) if pa.types.is_string(node.schema.field(k).type))
