"""Keyed tables against a dict: in memory, through files, for any number of tasks."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import StateError
from headrace.hashing import hash_keys, slot_range, tasks_of
from headrace.state import (
    KeyedTable,
    RunCache,
    RunWriter,
    SlotState,
    TableSpec,
    merge_runs,
    open_table,
    store,
    store_changes,
)
from headrace.state import identity as search

SLOTS = 6
EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "60"))  # more for a long search
VALUE = pa.schema([("n", pa.int64()), ("text", pa.string())])
KEYS = {
    "text": (pa.schema([("k", pa.string())]), [("a",), ("b",), ("",), (None,), ("long " * 9,)]),
    "number and text": (
        pa.schema([("i", pa.int32()), ("k", pa.string())]),
        [(1, "a"), (1, "b"), (2, "a"), (None, "a"), (1, None), (None, None)],
    ),
    "float": (
        pa.schema([("f", pa.float64())]), [(0.0,), (-0.0,), (math.nan,), (1.5,), (None,)],
    ),
    "timestamp": (
        pa.schema([("at", pa.timestamp("us", "UTC"))]),
        [(dt.datetime(2024, 1, d, tzinfo=dt.UTC),) for d in (1, 2, 3, 4)] + [(None,)],
    ),
    "none": (pa.schema([]), [()]),
}  # fmt: skip


def identity(key: tuple) -> tuple:
    """What the dict uses as key: NaN equals NaN, as it does in a table."""
    return tuple("nan" if isinstance(k, float) and math.isnan(k) else k for k in key)


@dataclass
class Model:
    """What a table should hold; `rows` maps (time, key) to a value."""

    spec: TableSpec
    collide: bool
    rows: dict[tuple, tuple] = field(default_factory=dict)
    floor: int = MIN_TIME

    def keys(self, asked: list[tuple[int, tuple]]) -> pa.Table:
        """The identity columns of (time, key) pairs; colliding hashes if wanted."""
        columns = [
            pa.array([key[i] for _, key in asked], f.type) for i, f in enumerate(self.spec.key)
        ]
        hashes = hash_keys(columns, len(asked))
        if self.collide:
            hashes = (hashes % np.uint64(2)) * np.uint64(2**63) + np.uint64(5)
        arrays = {"__h": pa.array(hashes)}
        if self.spec.timed:
            arrays["__t"] = pa.array([t for t, _ in asked], pa.int64())
        arrays |= dict(zip(self.spec.key.names, columns, strict=True))
        return pa.table(arrays)

    def put(self, table: KeyedTable, asked: list[tuple[int, tuple]], value: int) -> None:
        values = [(value + i, f"v{value + i}") for i in range(len(asked))]
        rows = self.keys(asked)
        for name, column in zip(VALUE.names, zip(*values, strict=True), strict=True):
            rows = rows.append_column(name, pa.array(column, VALUE.field(name).type))
        table.put(rows)
        for (time, key), pair in zip(asked, values, strict=True):
            self.rows[self._at(time, key)] = pair

    def delete(self, table: KeyedTable, asked: list[tuple[int, tuple]]) -> None:
        table.delete(self.keys(asked))
        for time, key in asked:
            self.rows.pop(self._at(time, key), None)

    def expire(self, table: KeyedTable, floor: int) -> None:
        table.expire(floor)
        if self.spec.timed:
            self.floor = max(self.floor, floor)

    def check_get(self, table: KeyedTable, asked: list[tuple[int, tuple]]) -> None:
        values, found = table.get(self.keys(asked))
        expected = [self._alive().get(self._at(t, k)) for t, k in asked]
        assert found.tolist() == [e is not None for e in expected]
        got = list(zip(*(c.to_pylist() for c in values.columns), strict=True))
        assert got == [e or (None, None) for e in expected]

    def check_match(self, table: KeyedTable, asked: list[tuple[int, tuple]]) -> None:
        """All rows of the hashes asked for, whatever the rest of their identity."""
        hashes = self.keys(asked)["__h"].to_numpy()
        got = table.match(hashes)
        whole = table.scan()
        wanted = whole.filter(pa.array(np.isin(whole["__h"].to_numpy(), hashes)))
        # As text, for NaN does not equal itself.
        assert sorted(map(repr, got.to_pylist())) == sorted(map(repr, wanted.to_pylist()))

    def check_scan(self, tables: list[KeyedTable], lo: int, hi: int) -> None:
        rows = [table.scan(lo, hi) for table in tables]
        for part in rows:
            assert part.schema.names == self.spec.rows.names
            order = list(zip(*(part[c].to_pylist() for c in self._order), strict=True))
            assert order == sorted(order)
        whole = pa.concat_tables(rows).to_pylist()
        got = {
            self._at(r.get("__t", 0), tuple(r[n] for n in self.spec.key.names)): (r["n"], r["text"])
            for r in whole
        }
        assert len(got) == len(whole)
        timed = self.spec.timed
        assert got == {k: v for k, v in self._alive().items() if not timed or lo <= k[0] < hi}

    @property
    def _order(self) -> list[str]:
        return ["__t", "__h"] if self.spec.timed else ["__h"]

    def _at(self, time: int, key: tuple) -> tuple:
        return (time if self.spec.timed else 0, identity(key))

    def _alive(self) -> dict[tuple, tuple]:
        return {k: v for k, v in self.rows.items() if not self.spec.timed or k[0] >= self.floor}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Model, list[tuple]]:
    key, values = KEYS[draw(st.sampled_from(sorted(KEYS)))]
    spec = TableSpec("t", key, VALUE, timed=draw(st.booleans()))
    return Model(spec, collide=draw(st.booleans())), values


def steps_of(keys: list[tuple]) -> st.SearchStrategy[list[tuple]]:
    """What may be done to a table: a list of (what, rows, number)."""
    row = st.tuples(st.integers(0, 3), st.sampled_from(keys))
    rows = st.lists(row, max_size=6, unique_by=lambda r: (r[0], identity(r[1])))
    what = st.sampled_from([*["put"] * 5, "get", "delete", "scan", "expire", *["flush"] * 5])
    return st.lists(st.tuples(what, rows, st.integers(-1, 4)), min_size=6, max_size=20)


def unique_by_identity(model: Model, rows: list[tuple[int, tuple]]) -> list[tuple[int, tuple]]:
    return list({model._at(t, k): (t, k) for t, k in rows}.values())


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_a_table_in_memory_is_a_dict(data):
    model, keys = data.draw(tables())
    table, runs = KeyedTable(model.spec), []
    for i, (what, drawn, number) in enumerate(data.draw(steps_of(keys))):
        rows = unique_by_identity(model, drawn)
        if what == "put" and rows:
            model.put(table, rows, 100 * i)
        elif what == "delete":
            model.delete(table, rows)
        elif what == "get":
            model.check_get(table, rows)
            if not model.spec.timed:
                model.check_match(table, rows)
        elif what == "scan":
            model.check_scan([table], number - 1, number + 1)
        elif what == "expire":
            model.expire(table, number)
        elif what == "flush":
            changes = table.changes()
            runs = [changes, *runs] if changes is not None else runs
            if number % 2:
                runs = [merge_runs(model.spec, runs, model.floor, bottom=True)]
            table = KeyedTable(model.spec, runs, model.floor)
        model.check_scan([table], MIN_TIME, MAX_TIME)


class Stored:
    """A table as it lives in a job: in slots, in files, opened anew by tasks every epoch."""

    names = count()

    def __init__(self, folder: Path, model: Model) -> None:
        self.folder, self.model = folder, model
        self.state, self.cache = SlotState.empty(SLOTS), RunCache(folder)

    def open(self, tasks: int) -> list[KeyedTable]:
        spec = self.model.spec
        self.held = [slot_range(task, tasks, SLOTS) for task in range(tasks)]
        self.tables = [
            open_table(spec, self.state, lo, hi, SLOTS, self.cache) for lo, hi in self.held
        ]
        return self.tables

    def task_of(self, row: tuple[int, tuple]) -> int:
        hashes = np.array(self.model.keys([row])["__h"].to_pylist(), np.uint64)
        return int(tasks_of(hashes, SLOTS, len(self.tables))[0])

    def close(self) -> None:
        parts = []
        for (lo, hi), table in zip(self.held, self.tables, strict=True):
            writer = RunWriter(self.folder, f"task-{next(self.names)}")
            part = store_changes(table, self.state, lo, hi, SLOTS, writer, self.cache)
            writer.close()
            parts.append(SlotState.from_json(json.loads(json.dumps(part.to_json()))))
        self.state = self.state.apply(parts)


@pytest.fixture
def little_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which merges happen with the few rows of a test."""
    monkeypatch.setattr(store, "SMALL", 2)
    monkeypatch.setattr(store, "AT_ONCE", 6)
    monkeypatch.setattr(store, "TOO_MANY", 4)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_table_in_files_is_a_dict_for_any_number_of_tasks(data, tmp_path_factory, little_merges):
    model, keys = data.draw(tables())
    stored = Stored(tmp_path_factory.mktemp("job"), model)
    held = stored.open(1)
    for i, (what, drawn, number) in enumerate(data.draw(steps_of(keys))):
        rows = unique_by_identity(model, drawn)
        by_task = [[r for r in rows if stored.task_of(r) == t] for t in range(len(held))]
        if what == "put":
            for t, mine in enumerate(by_task):
                if mine:
                    model.put(held[t], mine, 100 * i + 10 * t)
        elif what in ("get", "delete"):
            for t, mine in enumerate(by_task):
                do = model.check_get if what == "get" else model.delete
                do(held[t], mine)
                if what == "get" and not model.spec.timed:
                    model.check_match(held[t], mine)
        elif what == "scan":
            model.check_scan(held, number - 1, number + 1)
        elif what == "expire":
            for table in held:
                model.expire(table, number)
        else:
            stored.close()
            held = stored.open(number % 4 + 1)
        model.check_scan(held, MIN_TIME, MAX_TIME)


def test_tasks_may_expire_at_different_times(tmp_path):
    spec = TableSpec("t", pa.schema([("k", pa.int64())]), VALUE, timed=True)
    model = Model(spec, collide=False)
    stored = Stored(tmp_path, model)
    (table,) = stored.open(1)
    rows = [(t, (k,)) for t in range(3) for k in range(20)]
    model.put(table, rows, 0)
    stored.close()
    first, second = stored.open(2)
    first.expire(2)
    second.expire(1)
    expected = first.scan().num_rows + second.scan().num_rows
    stored.close()
    (table,) = stored.open(1)
    assert table.scan().num_rows == expected
    assert table.get(model.keys(rows))[1].sum() == expected


def rows_of(spec: TableSpec, **columns: Any) -> pa.Table:
    hashes = hash_keys([pa.array(columns[n]) for n in spec.key.names])
    return pa.table({"__h": hashes, **columns})


NUMBERS = TableSpec("numbers", pa.schema([("k", pa.int64())]), pa.schema([("x", pa.float64())]))


def test_of_rows_put_twice_at_once_the_last_counts():
    table = KeyedTable(NUMBERS)
    table.put(rows_of(NUMBERS, k=[1, 2, 1], x=[1.0, 2.0, 3.0]))
    values, _ = table.get(rows_of(NUMBERS, k=[1, 2]))
    assert values["x"].to_pylist() == [3.0, 2.0]


def test_rows_are_brought_to_the_types_of_the_table():
    table = KeyedTable(NUMBERS)
    table.put(rows_of(NUMBERS, k=pa.array([1, 2], pa.int32()), x=pa.array([1, 2], pa.int8())))
    values, found = table.get(rows_of(NUMBERS, k=pa.array([2, 3], pa.int16())))
    assert found.tolist() == [True, False] and values.schema == NUMBERS.value
    assert values["x"].to_pylist() == [2.0, None]


def test_a_table_without_values_is_a_set():
    spec = TableSpec("seen", pa.schema([("k", pa.string())]), pa.schema([]))
    table = KeyedTable(spec)
    table.put(rows_of(spec, k=["a", "b"]))
    table.delete(rows_of(spec, k=["b"]))
    assert table.get(rows_of(spec, k=["a", "b", "c"]))[1].tolist() == [True, False, False]
    assert table.scan()["k"].to_pylist() == ["a"]


def test_nested_values_come_back_as_they_were_put():
    at, sizes = pa.timestamp("us", "UTC"), pa.map_(pa.string(), pa.int64())
    kind = pa.struct([("tags", pa.list_(pa.string())), ("at", at), ("sizes", sizes)])
    spec = TableSpec("notes", pa.schema([("k", pa.int64())]), pa.schema([("note", kind)]))
    note = {"tags": ["x", None], "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "sizes": [("s", 1)]}
    table = KeyedTable(spec)
    table.put(rows_of(spec, k=[1, 2], note=pa.array([note, None], kind)))
    table = KeyedTable(spec, [table.changes()])
    table.delete(rows_of(spec, k=[2]))
    assert table.get(rows_of(spec, k=[3, 1]))[0]["note"].to_pylist() == [None, note]


def test_without_writes_there_are_no_changes():
    table = KeyedTable(NUMBERS, [KeyedTable(NUMBERS).scan().append_column("__gone", [[]])])
    table.put(rows_of(NUMBERS, k=pa.array([], pa.int64()), x=pa.array([], pa.float64())))
    assert table.changes() is None
    values, found = table.get(rows_of(NUMBERS, k=pa.array([], pa.int64())))
    assert values.num_rows == len(found) == 0


def test_rows_below_the_floor_are_dead_and_the_floor_never_goes_back():
    spec = TableSpec("panes", pa.schema([]), pa.schema([("n", pa.int64())]), timed=True)
    table = KeyedTable(spec)
    rows = pa.table({"__t": [10, 20, 30], "__h": np.zeros(3, np.uint64), "n": [1, 2, 3]})
    table.put(rows)
    assert table.first_time() == 10 and table.rows_held == 3
    table.expire(20)
    table.expire(15)
    assert table.rows_held == 2
    assert table.floor == 20 and table.first_time() == 20
    assert table.get(rows.drop_columns("n"))[1].tolist() == [False, True, True]
    assert table.scan(0, 30)["n"].to_pylist() == [2]
    assert table.changes()["__t"].to_pylist() == [20, 30]


def test_a_table_with_two_columns_of_one_name_is_refused():
    with pytest.raises(StateError) as caught:
        TableSpec("t", pa.schema([("a", pa.int64())]), pa.schema([("a", pa.int64())]))
    assert caught.value.code == "HR-STATE-008"


@settings(max_examples=40, deadline=None)
@given(
    held=st.lists(st.integers(0, 2**64 - 1), min_size=32, max_size=200).map(sorted),
    wanted=st.lists(st.integers(0, 2**64 - 1), max_size=30),
    even=st.booleans(),
)
def test_guessing_finds_the_same_places_as_bisection(held, wanted, even):
    hashes = np.array(held, np.uint64)
    if even:
        hashes = np.sort(hash_keys([pa.array(range(5_000))]))
    asked = np.sort(np.array([*wanted, *held[::7], 0, 2**64 - 1], np.uint64))
    large, search._LARGE = search._LARGE, 0
    try:
        found = search.lower_bound(hashes, asked)
    finally:
        search._LARGE = large
    assert found.tolist() == np.searchsorted(hashes, asked).tolist()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_seeking_by_time_and_hash_finds_the_first_row_not_before(data):
    pair = st.tuples(st.integers(0, 150), st.integers(0, 20))
    held = sorted(data.draw(st.lists(pair, max_size=60)))
    spread = [(t, 7) for t in range(0, 150, 2)] if data.draw(st.booleans()) else []
    wanted = sorted([*data.draw(st.lists(pair, max_size=20)), *spread])
    split = [(np.array([t for t, _ in p], np.int64), np.array([h for _, h in p], np.uint64))
             for p in (held, wanted)]  # fmt: skip
    found = search.seek(*split[0], *split[1]).tolist()
    for row, at in zip(wanted, found, strict=True):
        same_time = [h for t, h in held if t == row[0]]
        if row[1] in same_time:
            assert held[at] == row and held.index(row) == at
