"""The rows that every case reads, as Parquet for DuckDB and as topics for jobs.

`x` is disordered, by less than `DELAY`; `ordered` holds the same rows in order of time, each
key in one partition, for operators whose result depends on the order in which rows come; `y`
has a quarter as many rows, for joins. No two rows have the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr

STEP = 5  # ms between two rows
BLOCK = 1_000  # rows within which they are shuffled
DELAY = f"{STEP * BLOCK}ms"
SCHEMA = "id bigint, k bigint, name string, v bigint, kind int, ts timestamp"
PARTITIONS = 2
TABLES = ("x", "y")


@dataclass(frozen=True, slots=True)
class Data:
    """Where the rows are."""

    folder: Path
    rows: int
    keys: int

    @property
    def log(self) -> str:
        return str(self.folder / "log")

    def parquet(self, table: str) -> str:
        return str(self.folder / f"{table}.parquet")


def make(folder: Path, rows: int, keys: int, seed: int) -> Data:
    """Write the rows of all tables."""
    rng, data = np.random.default_rng(seed), Data(folder, rows, keys)
    log = hr.EmbeddedLog(data.log)
    x, y = _rows(rng, rows, keys, 0), _rows(rng, rows // 4, keys, 2, step=4 * STEP)
    for name, table in zip(TABLES, (x, y), strict=True):
        pq.write_table(table, data.parquet(name))
    turn = _disorder(rng, rows)
    _append(log, "x", x.take(turn), np.arange(rows) % PARTITIONS)
    for name, table in (("ordered", x), ("y", y)):
        _append(log, name, table, table["k"].to_numpy() % PARTITIONS)
    return data


def _rows(rng: np.random.Generator, rows: int, keys: int, first: int, step: int = STEP) -> pa.Table:
    """One row in twenty has key 0; the others have any."""
    k = np.where(rng.random(rows) < 0.05, 0, rng.integers(0, keys, rows))
    at = first + np.arange(rows, dtype=np.int64) * step
    return pa.table({
        "id": pa.array(np.arange(rows)), "k": pa.array(k), "name": pa.array(k).cast(pa.string()),
        "v": pa.array(rng.integers(-1_000, 1_000, rows)),
        "kind": pa.array(rng.integers(0, 4, rows), pa.int32()),
        "ts": pa.array(at * 1_000).cast(pa.timestamp("us", "UTC")),
    })  # fmt: skip


def _disorder(rng: np.random.Generator, rows: int) -> pa.Array:
    return pa.array(np.argsort(np.arange(rows) + rng.uniform(0, BLOCK - 1, rows), kind="stable"))


def _append(log: hr.EmbeddedLog, topic: str, table: pa.Table, partition: np.ndarray) -> None:
    log.create(topic, partitions=PARTITIONS, schema=SCHEMA)
    for number in range(PARTITIONS):
        mine = table.filter(pa.array(partition == number))
        for begin in range(0, len(mine), 250_000):
            log.append(topic, mine.slice(begin, 250_000), partition=number)
