"""How far a split has come: the watermark strategies of its input, run over its rows.

A tracker sees the rows that a source task reads of one split, in order, and holds the
highest watermark that they produced: going back is ignored. What it must know in the next epoch
is its `memory`, plain JSON that travels in the manifest; the objects themselves live for one
epoch, so a replayed epoch finds what the first try found.
"""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import beyond, milliseconds
from headrace.chunk import TIME, visible
from headrace.clock import LAST_TIME, MIN_TIME
from headrace.errors import StepError
from headrace.isolate import one_by_one
from headrace.kernel import Kernel, SelectStep, compile_chain
from headrace.ops.watermarks import Bounded, CustomWatermark, Punctuated
from headrace.plan.nodes import Read
from headrace.rows import rows_of

Failures = dict[int, BaseException | str]  # by the row's place in the chunk
_ROW = "__row"  # hidden, so that the kernel passes it on


class Tracker:
    """Follows one split through one epoch; this one knows bounded disorder."""

    def __init__(self, node: Read, limit: int | None) -> None:
        self._node, self._limit = node, limit
        self.watermark = MIN_TIME

    def see(self, rows: pa.Table) -> Failures:
        """Take note of a chunk of rows; which of them could not be judged, and why."""
        assert isinstance(self._node.watermark, Bounded)
        self._reach(pc.max(rows.column(TIME)).as_py() - self._node.watermark.delay)
        return {}

    @property
    def memory(self) -> Any:
        """What the next epoch's tracker of this split is to know; None for nothing."""
        return None

    def _reach(self, watermark: int | None) -> None:
        if watermark is not None:
            self.watermark = max(self.watermark, watermark)


class PunctuatedTracker(Tracker):
    def see(self, rows: pa.Table) -> Failures:
        strategy = self._node.watermark
        assert isinstance(strategy, Punctuated)
        numbered = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        marks, bad = _kernel(self._node).run(numbered)
        failures: Failures = dict(bad)
        times = marks.column(TIME) if strategy.by is None else milliseconds(marks[strategy.by])
        wrong: list[tuple[str, pa.ChunkedArray | None]] = []
        if self._limit is not None:
            ahead = pc.fill_null(pc.greater(times, self._limit), False)
            wrong.append(("is ahead of the clock (max_skew)", ahead))
        wrong.append(("is not within the years 1 to 9999", beyond(times)))
        good = np.ones(len(times), dtype=bool)
        for fact, mask in wrong:
            if mask is not None:
                reason = f"the watermark column {strategy.by!r} {fact}"
                failures |= dict.fromkeys(marks.filter(mask).column(_ROW).to_pylist(), reason)
                good &= ~mask.to_numpy()
        self._reach(pc.max(times.filter(pa.array(good))).as_py())
        return failures


@lru_cache(maxsize=64)
def _kernel(node: Read) -> Kernel:
    """The compiled condition of a punctuated input, once per process."""
    assert isinstance(node.watermark, Punctuated)
    return compile_chain([SelectStep(where=node.watermark.predicate)], node.schema)


class CustomTracker(Tracker):
    """Calls an object of the user's class; rows on which it raises are not judged."""

    def __init__(self, node: Read, limit: int | None, memory: Any) -> None:
        super().__init__(node, limit)
        assert isinstance(node.watermark, CustomWatermark)
        self._kind, self._methods = node.watermark.kind, node.watermark.methods
        self._declares = hasattr(self._kind, "state")
        try:
            self._object = self._kind()
        except Exception as error:
            raise self._broken(f"cannot be created: {type(error).__name__}: {error}") from error
        if self._declares:
            restored = memory is not None and memory["of"] == self._kind.__qualname__
            first = memory["state"] if restored else self._kind.state  # type: ignore[attr-defined]
            self._object.state = copy.deepcopy(first)

    def see(self, rows: pa.Table) -> Failures:
        seen, times = visible(rows), rows.column(TIME).to_numpy()
        if "on_chunk" in self._methods:
            try:
                self._reach(_time(self._object.on_chunk(times, seen)))
            except Exception as error:
                return dict.fromkeys(range(rows.num_rows), error)
        return self._rows(times, seen) if "on_row" in self._methods else {}

    def _rows(self, times: np.ndarray, seen: pa.Table) -> Failures:
        failures: Failures = {}
        rows = zip(times.tolist(), rows_of(seen), strict=True)

        def judge(row: tuple[int, Any]) -> None:
            self._reach(_time(self._object.on_row(*row)))

        for _ in one_by_one(rows, judge, failures.__setitem__):
            pass
        return failures

    @property
    def memory(self) -> Any:
        if not self._declares:
            return None
        try:
            json.dumps(self._object.state)
        except (TypeError, ValueError) as error:
            raise self._broken(f"has a state that is not JSON: {error}") from error
        return {"of": self._kind.__qualname__, "state": self._object.state}

    def _broken(self, fact: str) -> StepError:
        return StepError(
            "HR-TIME-013",
            f"the watermark {self._kind.__qualname__} of input {self._node.name!r} {fact}",
            "It is created without arguments for each split and batch; its state may hold "
            "numbers, texts, lists and dicts.",
        )


def _time(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"a watermark is a whole number of milliseconds or None, not {value!r}")
    if not MIN_TIME < value <= LAST_TIME:
        raise ValueError(f"a watermark of {value} ms is beyond all times")
    return int(value)


def tracker(node: Read, limit: int | None, memory: Any) -> Tracker:
    """What follows a split of this input; no time may be later than `limit`."""
    match node.watermark:
        case Punctuated():
            return PunctuatedTracker(node, limit)
        case CustomWatermark():
            return CustomTracker(node, limit, memory)
    return Tracker(node, limit)
