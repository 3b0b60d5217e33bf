"""A row-window operator as it lives in a job, and rows as they reach it."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import MIN_TIME
from headrace.hashing import slot_range, tasks_of
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.row_windows.operator import RowWindowOperator
from headrace.ops.window.function import WindowedRows, WindowResults
from headrace.schema import TIMESTAMP
from headrace.state import (
    KeyedTable,
    RunCache,
    RunWriter,
    SlotState,
    TableSpec,
    merge_runs,
    open_table,
    store_changes,
)

SLOTS = 4
INPUT = pa.schema([
    ("k", pa.int64()), ("x", pa.int64()), ("f", pa.float64()), ("s", pa.string()),
    ("stop", pa.bool_()), ("i", pa.int64()),
])  # fmt: skip
HIDDEN = {"__t": pa.int64(), "__s": pa.int32(), "__o": pa.int64()}
BOUNDS = [("window_start", TIMESTAMP), ("window_end", TIMESTAMP)]
INFO = [("pane", pa.int32()), ("timing", pa.string()), ("final", pa.bool_())]

Row = dict[str, Any]


class Listing:
    """A window function that tells which rows it was given, and what it was told of them."""

    schema = pa.schema([
        ("rows", pa.list_(pa.int64())), ("begins", pa.int64()), ("ends", pa.int64()),
        ("numbers", pa.int64()), ("timings", pa.string()), ("owner", pa.int64()),
    ])  # fmt: skip
    columns = ("k", "i")

    def over(self, laid: WindowedRows) -> WindowResults:
        ids, owners = (column.to_pylist() for column in laid.rows.select(["i", "k"]).columns)
        made, windows, faults = [], [], []
        for window in range(len(laid)):
            mine = laid.bounds(window)
            assert set(owners[mine]) == {laid.keys["k"][window].as_py()}
            if ids[mine] == [13]:
                faults.append(Fault(laid.rows.slice(mine.start, 1), ValueError("13")))
                continue
            bounds = int(laid.begins[window]), int(laid.ends[window]), int(laid.panes[window])
            made.append((ids[mine], *bounds, laid.timings[window], owners[mine.start]))
            windows.append(window)
        columns = zip(*made, strict=True) if made else [[]] * len(self.schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self.schema, strict=True)]
        values = pa.Table.from_arrays(arrays, schema=self.schema)
        return WindowResults(values, np.array(windows, np.int64), faults)


class Job:
    """An operator as it lives in a job: made anew every epoch, with its tables opened anew."""

    def __init__(self, operator: Callable[[], RowWindowOperator]) -> None:
        self.operator = operator
        self.specs = operator().tables()
        self.runs: dict[str, list[pa.Table]] = {s.name: [] for s in self.specs}
        self.floors = {s.name: MIN_TIME for s in self.specs}
        self.number = 0

    def epoch(self, rows: pa.Table | None, before: int, after: int) -> list[EpochStep]:
        tables = {s.name: self.opened(s) for s in self.specs}
        step = self.stepped(rows, tables, before, after)
        for spec in self.specs:
            table = tables[spec.name]
            changes, runs = table.changes(), self.runs[spec.name]
            runs = runs if changes is None else [changes, *runs]
            if self.number % 3 == 2:
                runs = [merge_runs(spec, runs, table.floor, bottom=True)]
            self.runs[spec.name], self.floors[spec.name] = runs, table.floor
        self.number += 1
        return [step]

    def stepped(
        self, rows: pa.Table | None, tables: dict[str, KeyedTable], before: int, after: int
    ) -> EpochStep:
        step = EpochStep([rows], tables, before, after, 0, 0)
        self.operator().step(step)
        return step

    def opened(self, spec: TableSpec) -> KeyedTable:
        return KeyedTable(spec, self.runs[spec.name], self.floors[spec.name])

    def held(self, name: str) -> pa.Table:
        return self.opened(next(s for s in self.specs if s.name == name)).scan()


class StoredJob(Job):
    """The same with its tables in files, for two tasks."""

    names = count()

    def __init__(self, folder: Path, operator: Callable[[], RowWindowOperator]) -> None:
        super().__init__(operator)
        self.folder, self.cache = folder, RunCache(folder)
        self.state = {s.name: SlotState.empty(SLOTS) for s in self.specs}

    def epoch(self, rows: pa.Table | None, before: int, after: int) -> list[EpochStep]:
        parts: dict[str, list[SlotState]] = {name: [] for name in self.state}
        steps = []
        for task in range(2):
            held = slot_range(task, 2, SLOTS)
            tables = {s.name: self.opened(s, *held) for s in self.specs}
            mine = None if rows is None else rows.filter(pa.array(_task(rows) == task))
            steps.append(self.stepped(mine, tables, before, after))
            for name, table in tables.items():
                writer = RunWriter(self.folder, f"task-{next(self.names)}")
                part = store_changes(table, self.state[name], *held, SLOTS, writer, self.cache)
                writer.close()
                parts[name].append(SlotState.from_json(json.loads(json.dumps(part.to_json()))))
        self.state = {name: s.apply(parts[name]) for name, s in self.state.items()}
        return steps

    def opened(self, spec: TableSpec, lo: int = 0, hi: int = SLOTS) -> KeyedTable:
        return open_table(spec, self.state[spec.name], lo, hi, SLOTS, self.cache)


def _task(rows: pa.Table) -> np.ndarray:
    return tasks_of(rows["__h"].to_numpy(), SLOTS, 2)


def hash_of(key: int | None) -> int:
    """Keys share two hashes."""
    return 5 + 2**63 * ((key or 0) % 2)


def table_of(rows: list[Row], timed: bool = True) -> pa.Table:
    """Rows as they reach an operator."""
    hidden = {n: t for n, t in HIDDEN.items() if timed or n != "__t"}
    fields = [*INPUT, *(pa.field(n, t) for n, t in hidden.items())]
    table = pa.table({f.name: pa.array([r[f.name] for r in rows], f.type) for f in fields})
    hashes = [hash_of(r["k"]) for r in rows]
    return table.append_column("__h", pa.array(hashes, pa.uint64()))
