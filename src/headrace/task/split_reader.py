"""The rows of one split in a task: decoded, stamped with their hidden columns, counted.

Records that cannot be decoded, and rows whose time is of no use, are dead letters here. A row that
is sent again (`resending.py`) takes the same way from decoding on, but moves no watermark: it is
no part of the split's order any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import beyond, milliseconds
from headrace.buckets import added, histogram
from headrace.chunk import OFFSET, SOURCE, TIME, WEIGHT
from headrace.clock import MIN_TIME
from headrace.epoch.accounting import Tally, needs_tracking
from headrace.epoch.branched_records import OPEN, SURE, may_branch, pack_offsets
from headrace.epoch.envelope import Envelope
from headrace.epoch.report import Report
from headrace.epoch.values import Piece
from headrace.errors import InputError
from headrace.kernel import Kernel, SelectStep, compile_chain
from headrace.ops.agg.named import bare_sql
from headrace.ops.shedding import priority_columns
from headrace.ops.watermarks import ComputedTime, Ingestion, columns_watched
from headrace.plan.nodes import LATE, OUT, Read, Stateful
from headrace.plan.program import Program
from headrace.sources import Range, Source
from headrace.sources.columns import conform, fit
from headrace.sources.contract import MISFIT, RAW, Chunk
from headrace.state.manifest import Split
from headrace.task.flow import Flow
from headrace.task.letters import Reentry
from headrace.task.shed_rows import ShedRows
from headrace.task.watermark_trackers import Failures, tracker


class SplitReader:
    """Reads ranges of one split into a flow, or rows of it that are sent `again`."""

    def __init__(
        self,
        program: Program,
        source: Source,
        split: Split,
        flow: Flow,
        clock: int,
        *,
        again: bool = False,
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
        self._tally = Tally(again or needs_tracking(program, node.name), several, sparse=again)
        self._tracker = None if again else tracker(node, self._limit, split.memory)
        self._ages: Counter[int] | None = None if again else Counter()
        self._arrived: Counter[int] = Counter()
        self._shed: ShedRows | None = None
        if node.shed is not None and not again:
            self._shed = ShedRows(program.name, node, split.name, split.shed)
            self._tally.shed(0)

    @property
    def name(self) -> str:
        return self._node.name

    def report_to(self, report: Report) -> None:
        """Say how far the split has come, and what its watermark has to remember."""
        if self._tracker is not None:
            place = str(self._split.id)
            before = report.splits.get(place, MIN_TIME)
            report.splits[place] = max(before, self._tracker.watermark)
            if self._tracker.memory is not None:
                report.memory[place] = self._tracker.memory
        input, counts = self._split.input, self._tally.counts
        report.inputs[input] = _sum(report.inputs.get(input), counts)
        if self._ages:
            report.ages[input] = added(report.ages.get(input, {}), self._ages)
        if self._arrived:
            report.arrived[input] = added(report.arrived.get(input, {}), self._arrived)
        if self._shed is not None and self._shed.priorities:
            report.priorities.setdefault(input, []).extend(self._shed.priorities)
        where = (self._split.input, self._split.name)
        report.several += [(*where, *several) for several in self._tally.several]
        for fate, offsets in ((OPEN, self._tally.open), (SURE, self._tally.sure)):
            if sum(map(len, offsets)):
                report.branched.append((*where, fate, pack_offsets(np.concatenate(offsets))))

    def run(self, piece: Piece) -> Iterator[Envelope]:
        self._flow.fate = self._tally.mark
        name, watch = self._node.name, self._flow.watch
        if piece.shed:
            with watch.at(name):
                self._skip(piece.range)
            return
        for chunk, offsets in watch.each(name, self._read(piece.range)):
            with watch.at(name):
                self._tally.begin(offsets)
                rows = self._stamped(chunk, offsets)
                self._flow.steps[name]["out"] += rows.num_rows
                self._flow.push(name, OUT, rows)
                self._tally.end()
            yield from self._flow.ready()

    def _read(self, range: Range) -> Iterator[Chunk]:
        """Chunks of the range, without the records that are shed as they are."""
        for (chunk, offsets), times in self._source.read_dated(range):
            if times is not None:
                self._arrived.update(histogram(self._clock - times))
            if self._shed is None:
                yield chunk, offsets
                continue
            used, places = self._shed.before_decoding(chunk, offsets)
            self._tally.shed(len(offsets) - len(places))
            if len(places):
                yield used, places

    def _skip(self, skipped: Range) -> None:
        """Count records that nobody gets."""
        if self._source.dense:
            self._tally.shed(skipped.end - skipped.start)
            return
        for _, offsets in self._source.read(skipped):
            self._tally.shed(len(offsets))

    def begin(self, offsets: np.ndarray) -> None:
        """Rows of these records are sent again: each record is read once more."""
        self._flow.fate = self._tally.mark
        self._tally.begin(np.unique(offsets))

    def again(self, rows: pa.Table) -> pa.Table:
        """Of rows that were dead here, those that are not by now; an InputError if none can be."""
        weight = self._node.weight
        if weight is not None and not {weight, WEIGHT} & {*rows.column_names}:
            rows = rows.append_column(WEIGHT, pa.array(np.ones(rows.num_rows)))
        offsets, chunk = rows.column(OFFSET).to_numpy(), rows.drop_columns([SOURCE, OFFSET])
        self._flow.raw = None
        if RAW not in rows.column_names:
            rows = rows if weight is None else _with_weight(rows, weight)
            fit(f"the stored row of input {self._node.name!r}", rows.schema, self._node.schema)
            typed = conform(rows, self._node.schema)
            if MISFIT in typed.column_names:
                typed, offsets = self._fitting(typed, offsets, rows)
            return self._placed(typed, offsets)
        if not self._source.raw:
            raise InputError(
                "HR-DEAD-003",
                f"input {self._node.name!r} no longer reads bytes, which the stored record is",
                "Send the record with a program that reads the input as it was.",
            )
        return self._placed(*self._decoded(chunk, offsets))

    def end(self) -> None:
        self._tally.end()
        self._flow.raw = None

    def _stamped(self, chunk: pa.Table, offsets: np.ndarray) -> pa.Table:
        """The chunk decoded, with its hidden columns; rows that cannot be are dead."""
        self._flow.raw = None
        if self._source.raw:
            chunk, offsets = self._decoded(chunk, offsets)
        elif MISFIT in chunk.column_names:
            chunk, offsets = self._fitting(chunk, offsets)
        return self._placed(chunk, offsets)

    def _placed(self, chunk: pa.Table, offsets: np.ndarray) -> pa.Table:
        """Decoded rows with their hidden columns, without those whose time is of no use."""
        if self._shed is not None and self._shed.by_priority:
            chunk, offsets = self._by_priority(chunk, offsets)
        if self._node.weight is not None:
            chunk = _with_weight(chunk, self._node.weight)
        rows = chunk.select(self._node.schema.names)
        source = np.full(len(offsets), self._split.id, dtype=np.int32)
        rows = rows.append_column(SOURCE, pa.array(source))
        rows = rows.append_column(OFFSET, pa.array(offsets))
        rows, times = self._times(rows)
        return rows if times is None else self._timed(rows, times)

    def _by_priority(self, chunk: pa.Table, offsets: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        """The rows that are used, of those that have a priority; the others are dead."""
        assert self._shed is not None
        ranks, failed = self._shed.ranks(chunk)
        if failed:
            chunk = self._without_failed(chunk.append_column(OFFSET, pa.array(offsets)), failed)
            offsets = chunk.column(OFFSET).to_numpy()
            chunk = chunk.drop_columns([OFFSET])
        used, places = self._shed.by_rank(chunk, ranks, offsets)
        self._tally.shed_of_chunk(len(offsets) - len(places))
        return used, places

    def _decoded(self, chunk: pa.Table, offsets: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        weighed = WEIGHT in chunk.column_names
        plain = chunk.drop_columns([WEIGHT]) if weighed else chunk
        rows, bad, reasons = self._source.decode(plain)
        if weighed:
            weights = chunk.column(WEIGHT)
            rows = rows.append_column(WEIGHT, weights.filter(pa.array(~bad)))
        if not bad.any():
            return rows, offsets
        raw = chunk.column(0).filter(pa.array(bad)).to_pylist()
        self._flow.raw = dict(zip(offsets[bad].tolist(), map(_bytes, raw), strict=True))
        stored = chunk.filter(pa.array(bad)).append_column(OFFSET, pa.array(offsets[bad]))
        self._kill(pa.table({OFFSET: offsets[bad]}), reasons, stored)
        return rows, offsets[~bad]

    def _fitting(
        self, chunk: pa.Table, offsets: np.ndarray, as_read: pa.Table | None = None
    ) -> tuple[pa.Table, np.ndarray]:
        """A typed chunk without its bad rows, whose values are lost but for `as_read`."""
        good = chunk.column(MISFIT).is_null()
        reasons = chunk.column(MISFIT).drop_null().to_pylist()
        chunk = chunk.drop_columns([MISFIT])
        fits = good.to_numpy()
        misfits = chunk.filter(pc.invert(good)).append_column(OFFSET, pa.array(offsets[~fits]))
        stored = as_read.filter(pa.array(~fits)) if as_read is not None else None
        self._kill(misfits, reasons, stored)
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
        failures = self._tracker.see(rows) if self._tracker is not None and rows.num_rows else {}
        rows = self._without_failed(rows, failures) if failures else rows
        if self._ages is not None:
            self._ages.update(histogram(self._clock - rows.column(TIME).to_numpy()))
        return rows

    def _without_failed(self, rows: pa.Table, failures: Failures) -> pa.Table:
        """The rows without those whose time or watermark could not be computed."""
        places = sorted(failures)
        bad = np.zeros(rows.num_rows, dtype=bool)
        bad[places] = True
        dropped = rows.filter(pa.array(bad))
        self._kill(dropped, [failures[p] for p in places], dropped)
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
        reasons = [reason] * dropped.num_rows if isinstance(reason, str) else reason
        self._kill(dropped, reasons, dropped)
        return rows.filter(pc.invert(mask))

    def _kill(self, rows: pa.Table, reasons: list[Any], stored: pa.Table | None) -> None:
        """Dead letters of `rows`; `stored` is what can be sent again."""
        rows = self._with_source(rows)
        self._flow.steps[self._node.name]["dead"] += rows.num_rows
        self._tally.mark("dead", rows)
        entry = None if stored is None else Reentry(self._node.name, 0, self._with_source(stored))
        self._flow.dead.add(self._node.name, rows, reasons, self._flow.raw, entry)

    def _with_source(self, rows: pa.Table) -> pa.Table:
        if SOURCE in rows.column_names:
            return rows
        source = np.full(rows.num_rows, self._split.id, dtype=np.int32)
        return rows.append_column(SOURCE, pa.array(source))


def _with_weight(rows: pa.Table, name: str) -> pa.Table:
    """The rows with their weight under the name that the user gave it."""
    if WEIGHT not in rows.column_names:
        return rows
    plain = rows.drop_columns([name]) if name in rows.column_names else rows
    return plain.append_column(name, rows.column(WEIGHT))


def _sum(before: dict[str, int] | None, counts: Mapping[str, int]) -> dict[str, int]:
    return {fate: n + (before or {}).get(fate, 0) for fate, n in counts.items()}


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
    watched |= priority_columns(node.shed)
    for consumer, _ in program.consumers_of(node.name, OUT):
        reached = program.nodes[consumer]
        if not isinstance(reached, Stateful) or not reached.what.encodes_keys:
            return ()
        if program.consumers_of(consumer, LATE):
            return ()
        keys.update(reached.keys[0])
    keys -= watched
    return tuple(k for k in sorted(keys) if pa.types.is_string(node.schema.field(k).type))
