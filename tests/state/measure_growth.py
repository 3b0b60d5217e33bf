"""Measure, not a test: an epoch that touches 10,000 keys of ever larger tables.

Run it: python tests/state/measure_growth.py [rows held ...]
"""

from __future__ import annotations

import sys
import tempfile
from itertools import count
from time import process_time

import numpy as np
import pyarrow as pa

from headrace.hashing import hash_keys
from headrace.state import RunCache, RunWriter, SlotState, TableSpec, open_table, store_changes

SLOTS, TOUCHED, EPOCHS = 16, 10_000, 60
SPEC = TableSpec(
    "values", pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64()), ("x", pa.float64())])
)
_names = count()


def keys_of(numbers: np.ndarray) -> pa.Table:
    column = pa.array(numbers)
    return pa.table({"__h": hash_keys([column]), "k": column})


def rows_of(keys: pa.Table) -> pa.Table:
    n = keys.num_rows
    return keys.append_column("n", pa.array(np.arange(n))).append_column("x", pa.array(np.ones(n)))


def epoch(folder: str, state: SlotState, cache: RunCache, keys: pa.Table) -> tuple:
    """Open, get, put, store, close; the new state and when each ended."""
    times = [process_time()]
    table = open_table(SPEC, state, 0, SLOTS, SLOTS, cache)
    times.append(process_time())
    _, found = table.get(keys)
    times.append(process_time())
    table.put(rows_of(keys))
    times.append(process_time())
    writer = RunWriter(folder, f"run-{next(_names)}")
    state = state.apply([store_changes(table, state, 0, SLOTS, SLOTS, writer, cache)])
    times.append(process_time())
    writer.close()
    times.append(process_time())
    assert found.all()
    return state, np.diff(times) * 1_000


def measure(held: int) -> None:
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        cache, state = RunCache(folder), SlotState.empty(SLOTS)
        writer = RunWriter(folder, f"run-{next(_names)}")
        table = open_table(SPEC, state, 0, SLOTS, SLOTS, cache)
        table.put(rows_of(keys_of(np.arange(held))))
        state = store_changes(table, state, 0, SLOTS, SLOTS, writer, cache)
        writer.close()
        steps = []
        for _ in range(EPOCHS):
            touched = rng.choice(held, min(TOUCHED, held), replace=False)
            state, took = epoch(folder, state, cache, keys_of(touched))
            steps.append(took)
        steps = np.array(steps[5:])
        middle, total = np.median(steps, axis=0), steps.sum(axis=1)
        parts = " ".join(f"{ms:8.2f}" for ms in middle)
        print(
            f"{held:>10,} {parts} {np.median(total):8.2f} {total.mean():8.2f} {total.max():8.1f}"
            f" {state.most_runs():5} {len(state.to_json()['runs']):5}"
        )


if __name__ == "__main__":
    print(
        "CPU ms, median  held  open  get  put  store  sync | total: median mean max | runs, blocks"
    )
    for held in [int(a) for a in sys.argv[1:]] or [10_000, 100_000, 1_000_000, 5_000_000]:
        measure(held)
