"""A small job, table and manifest together: crashes at every step, other tasks after each."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.hashing import hash_keys, slot_range, tasks_of
from headrace.state import (
    EpochLog,
    KeyedTable,
    Manifest,
    RunCache,
    RunWriter,
    Segment,
    SlotState,
    TableSpec,
    faults,
    open_table,
    store,
    store_changes,
)

SPEC = TableSpec("counts", pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())]))
SLOTS, EPOCHS = 6, 9
unique = count()


class Crash(BaseException):
    pass


def keys_of(epoch: int) -> np.ndarray:
    return np.unique(np.random.default_rng(epoch).integers(0, 40, 12))


class CountingJob:
    """Counts in how many epochs each key was seen."""

    def __init__(self, folder: Path, tasks: int) -> None:
        self.folder, self.tasks = folder, tasks
        self.log, self.cache = EpochLog(folder), RunCache(folder)
        self.slots = self.log.open("counts", SLOTS)

    def run(self) -> None:
        token, last = self.log.take_fence(), self.log.latest()
        state = SlotState.from_json(last.state) if last else SlotState.empty(SLOTS)
        for epoch in range(last.epoch + 1 if last else 1, EPOCHS + 1):
            state = state.apply([self._task(t, epoch, state) for t in range(self.tasks)])
            self.log.commit(Manifest(epoch, token, f"{token}-{epoch}", state=state.to_json()))
            self.log.prune(2)

    def _task(self, task: int, epoch: int, state: SlotState) -> SlotState:
        lo, hi = slot_range(task, self.tasks, SLOTS)
        keys = keys_of(epoch)
        hashes = hash_keys([pa.array(keys)])
        mine = tasks_of(hashes, SLOTS, self.tasks) == task
        wanted = pa.table({"__h": hashes[mine], "k": keys[mine]})
        table = open_table(SPEC, state, lo, hi, SLOTS, self.cache)
        held, found = table.get(wanted)
        counts = np.where(found, held["n"].fill_null(0).to_numpy(), 0) + 1
        table.put(wanted.append_column("n", pa.array(counts, pa.int64())))
        writer = RunWriter(self.folder, f"{epoch}-{task}-{next(unique)}")
        part = store_changes(table, state, lo, hi, SLOTS, writer, self.cache)
        writer.close()
        return part

    def counts(self) -> dict[int, int]:
        state = SlotState.from_json(self.log.latest().state)
        rows = open_table(SPEC, state, 0, SLOTS, SLOTS, RunCache(self.folder)).scan()
        return dict(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True))


EXPECTED: dict[int, int] = {}
for number in range(1, EPOCHS + 1):
    for key in keys_of(number).tolist():
        EXPECTED[key] = EXPECTED.get(key, 0) + 1


@pytest.fixture(autouse=True)
def little_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SMALL", 2)
    monkeypatch.setattr(store, "AT_ONCE", 12)


def test_a_crash_at_any_step_changes_no_count(tmp_path):
    passed: list[str] = []
    with faults.hooked(passed.append):
        CountingJob(tmp_path / "clean", 2).run()
    assert CountingJob(tmp_path / "clean", 1).counts() == EXPECTED
    assert {"run.added", "run.synced", "manifest.linked", "prune.file"} <= set(passed)
    for i, name in enumerate(sorted(set(passed))):  # every kind of step, at another epoch each
        places = [nth for nth, other in enumerate(passed) if other == name]
        folder = tmp_path / name
        _run_until_crash(folder, places[i % len(places)])
        CountingJob(folder, 3).run()
        assert CountingJob(folder, 1).counts() == EXPECTED


def _run_until_crash(folder: Path, nth: int) -> None:
    left = [nth]

    def hook(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash

    with faults.hooked(hook), suppress(Crash):
        CountingJob(folder, 1 + nth % 3).run()


def test_a_task_merges_one_slot_of_one_of_its_tables_per_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "AT_ONCE", 0)
    cache, slots, keys = RunCache(tmp_path), 2, pa.array(range(60))
    rows = pa.table({"__h": hash_keys([keys]), "k": keys, "n": keys})
    states = [_with_runs(tmp_path, rows, 3, slots) for _ in range(3)]
    for _ in range(slots * len(states)):
        added: list[str] = []
        writer = RunWriter(tmp_path, f"all-{next(unique)}")
        tables = [open_table(SPEC, s, 0, slots, slots, cache) for s in states]
        with faults.hooked(added.append):
            for i, table in enumerate(tables):
                states[i] = store_changes(table, states[i], 0, slots, slots, writer, cache)
        writer.close()
        assert added == ["run.added"]
        assert all(t.scan().num_rows == 60 for t in tables)
    assert [s.most_runs() for s in states] == [1, 1, 1]


def _with_runs(folder: Path, rows: pa.Table, count: int, slots: int) -> SlotState:
    table = KeyedTable(SPEC)
    table.put(rows)
    writer = RunWriter(folder, f"old-{next(unique)}")
    refs = tuple(writer.add(table.changes(), 0, slots) for _ in range(count))
    writer.close()
    return SlotState((Segment(0, slots, refs),))


def test_a_merge_above_other_runs_keeps_what_was_deleted_away(tmp_path):
    cache, keys = RunCache(tmp_path), pa.array(range(100))
    rows = pa.table({"__h": hash_keys([keys]), "k": keys, "n": keys})
    state = _with_runs(tmp_path, rows, 1, SLOTS)  # too large to be merged with what follows
    for epoch in range(8):
        table = open_table(SPEC, state, 0, SLOTS, SLOTS, cache)
        assert table.scan().num_rows == 100 - epoch
        table.delete(rows.slice(epoch, 1).drop_columns("n"))
        writer = RunWriter(tmp_path, f"gone-{next(unique)}")
        state = store_changes(table, state, 0, SLOTS, SLOTS, writer, cache)
        writer.close()
    assert 2 <= state.most_runs() < 6  # the small runs were merged


def test_a_run_whose_times_are_all_past_is_dropped_unread(tmp_path):
    spec = TableSpec("panes", pa.schema([]), pa.schema([("n", pa.int64())]), timed=True)
    cache, state = RunCache(tmp_path), SlotState.empty(SLOTS)
    for epoch in range(6):
        table = open_table(spec, state, 0, SLOTS, SLOTS, cache)
        table.put(pa.table({"__t": [epoch], "__h": np.zeros(1, np.uint64), "n": [epoch]}))
        table.expire(epoch)
        writer = RunWriter(tmp_path, f"panes-{next(unique)}")
        state = store_changes(table, state, 0, SLOTS, SLOTS, writer, cache)
        writer.close()
        assert state.most_runs() == 1 and state.segments[0].floor == epoch
    assert table.rows_held <= 2


@pytest.mark.parametrize("tasks", [2, 3, SLOTS])
def test_a_table_that_holds_a_row_says_so_to_the_task_that_has_it(tasks, tmp_path):
    """Also where the run is another task's, of which this one has a small share: operators pass
    over a table of no rows, and the row would be found by nobody."""
    spec = TableSpec("due", pa.schema([]), pa.schema([]), timed=True)
    cache, state = RunCache(tmp_path), SlotState.empty(SLOTS)
    table = open_table(spec, state, 0, SLOTS, SLOTS, cache)
    table.put(pa.table({"__t": [5], "__h": np.array([2**64 // SLOTS * 3], np.uint64)}))
    writer = RunWriter(tmp_path, f"due-{next(unique)}")
    state = store_changes(table, state, 0, SLOTS, SLOTS, writer, cache)
    writer.close()
    found = 0
    for task in range(tasks):
        table = open_table(spec, state, *slot_range(task, tasks, SLOTS), SLOTS, cache)
        rows = table.scan().num_rows
        found += rows
        assert table.rows_held >= rows
        table.expire(6)
        assert table.rows_held == 0
    assert found == 1
