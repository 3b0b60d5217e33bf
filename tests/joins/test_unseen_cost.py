"""What it costs to know which versions no row saw: an epoch pays for what it touches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep, Place
from headrace.ops.join.latest import Latest
from headrace.state.table import KeyedTable


class Counted(KeyedTable):
    """A table that says whether all of it was read."""

    scans = 0

    def scan(self, lo: int = MIN_TIME, hi: int = MAX_TIME) -> pa.Table:
        self.scans += lo == MIN_TIME and hi == MAX_TIME
        return super().scan(lo, hi)


SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
OUTPUT = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("v_right", pa.int64())])
COLUMNS = ((-1, "$k0"), (0, "v"), (1, "v"))


class Epochs:
    """Epochs of the operator itself: what each wrote to its tables, read of them, and said."""

    def __init__(self, how: str, within: int | None = None, lateness: int = 0) -> None:
        self._what = Latest(how, False, within, lateness, True, None, COLUMNS)
        self._runs: dict[str, list[pa.Table]] = {}
        self._number, self._before = 0, MIN_TIME

    def run(self, left: pa.Table | None, right: pa.Table | None, after: int) -> EpochStep:
        operator = self._what.operator(Place((("k",), ("k",)), (SCHEMA, SCHEMA), OUTPUT))
        specs = operator.tables()
        tables: dict[str, Any] = {s.name: Counted(s, self._runs.get(s.name, [])) for s in specs}
        step = EpochStep((left, right), tables, self._before, after, 0, self._number)
        operator.step(step)
        self.written, self.scans = {}, {n: t.scans for n, t in tables.items()}
        for name, table in tables.items():
            changes = table.changes()
            self.written[name] = 0 if changes is None else changes.num_rows
            fresh = [] if changes is None else [changes]
            self._runs[name] = [*fresh, *self._runs.get(name, [])]
        self._number, self._before = self._number + 1, after
        return step


def arrived(keys: Sequence[int], at: int) -> pa.Table:
    hashes = pa.array(np.array(keys, np.uint64) * np.uint64(11_400_714_819_323_198_485))
    return pa.table({"k": keys, "v": keys, "__t": [at] * len(keys), "__h": hashes})


def test_an_epoch_pays_for_what_it_touches() -> None:
    epochs = Epochs("right")
    turns: list[tuple[Any, Any]] = [
        (None, arrived(range(1_000), 5)), (arrived([7], 15), None), (arrived([7], 25), None),
        (None, arrived([7, 8], 35)),
    ]  # fmt: skip
    written = []
    for number, (left, right) in enumerate(turns, 1):
        epochs.run(left, right, 10 * number)
        written.append((epochs.written["latest"], epochs.written["unseen"]))
        assert epochs.scans["latest"] == epochs.scans["unseen"] == 0
    assert written == [(1_000, 1_000), (0, 1), (0, 0), (2, 1)]  # 8 was unseen, and is again
    epochs.run(None, None, MAX_TIME)
    assert (epochs.scans["latest"], epochs.scans["unseen"]) == (0, 1)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_other_kinds_hold_no_marks_and_do_not_wake_for_versions(how: str) -> None:
    epochs = Epochs(how, within=20)
    step = epochs.run(None, arrived([1, 2], 5), 3)
    assert set(epochs.written) == {"waiting", "coming", "latest", "ages"}
    assert step.next == MAX_TIME


def test_it_says_when_the_next_version_may_be_over() -> None:
    epochs = Epochs("right", within=20, lateness=100)
    assert epochs.run(None, arrived([1], 5), 3).next == 106  # passed: it may take a place
    assert epochs.run(None, None, 106).next == 126  # too old
    assert epochs.run(None, arrived([2], 10), 107).next == 111
    assert epochs.run(arrived([2], 8), None, 107).next == 109  # a row that waits
    assert epochs.run(None, None, 126).next == 131
    assert epochs.run(None, None, 131).next == MAX_TIME


def test_what_was_told_at_the_end_is_not_told_again() -> None:
    epochs = Epochs("right")
    assert [t.num_rows for t in epochs.run(None, arrived([1, 2], 5), MAX_TIME).out] == [2]
    assert epochs.run(None, None, MAX_TIME).out == []
