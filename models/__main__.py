"""`python -m models [case ...] [--rows N] [--keys N] [--seed N]`: is every result DuckDB's?

Every case runs on real Spark, in several epochs, over rows and keys beyond every constant at
which work is cut, and its output is compared with DuckDB's answer row by row. Ends with 1 if
one row differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb
from tools.evidence import record

import headrace as hr
from models.cases import CASES, Case
from models.data import DELAY, TABLES, Data, make

EPOCHS = 3  # at least: rows of a batch are a third of all


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m models", description=__doc__)
    parser.add_argument("cases", nargs="*", help="parts of the names of cases; all if none")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    chosen = [c for c in CASES if not asked.cases or any(part in c.name for part in asked.cases)]
    with tempfile.TemporaryDirectory(prefix="headrace-models-") as room:
        data = make(Path(room), asked.rows, asked.keys, asked.seed)
        print(f"{asked.rows:,} rows, {asked.keys:,} keys, seed {asked.seed}", flush=True)
        found = [check(case, data) for case in chosen]
    compared, wrong = sum(n for n, _ in found), sum(bad for _, bad in found)
    print(f"{len(chosen)} cases, {compared:,} records, {wrong} violations")
    if not asked.cases and asked.rows >= 2_000_000 and asked.keys >= 100_000:
        record("models", "every operator, 2 M rows, 120 k keys", "make models LARGE=1",
               faults=len(chosen), records=compared, violations=wrong)  # fmt: skip
    return 1 if wrong else 0


def check(case: Case, data: Data) -> tuple[int, int]:
    """Run a case; how many rows were compared, and how many differ."""
    began = time.monotonic()
    folder = data.folder / "jobs" / "".join(c if c.isalnum() else "-" for c in case.name)
    _run(case, data, folder)
    ours = f"read_parquet('{folder}/out/*.parquet')"
    with duckdb.connect() as db:
        db.execute("set timezone = 'UTC'")
        for table in TABLES:
            db.execute(f"create view {table} as from '{data.parquet(table)}'")
        db.execute(f"create table due as {case.sql}")
        db.execute(f"create table came as with came as (from {ours}) {case.ours}")
        due, missing = _counts(db, "due", "came")
        came, surplus = _counts(db, "came", "due")
    print(f"{case.name}: {came:,} of {due:,} rows, {missing:,} missing, {surplus:,} wrong, "
          f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    return due, missing + surplus


def _counts(db: duckdb.DuckDBPyConnection, these: str, those: str) -> tuple[int, int]:
    """How many rows `these` has, and how many of them `those` lacks."""
    lacking = f"(from {these} except all from {those})"
    query = f"select (select count(*) from {these}), (select count(*) from {lacking})"
    (found,) = db.execute(query).fetchall()
    return found[0], found[1]


def _run(case: Case, data: Data, folder: Path) -> None:
    job = hr.Job("model")

    def read(topic: str, name: str) -> hr.Stream:
        return job.read(f"log:{topic}", log=data.log, time="ts", delay=DELAY, name=name)

    case.build(read(case.topic, "x"), lambda: read("y", "y")).write(
        f"files:{folder}/out", name="out"
    )
    run = hr.run(job, folder=str(folder / "job"), until="end", max_batch=data.rows // EPOCHS,
                 quiet=True)  # fmt: skip
    status = run.wait()
    counts = run.progress.counts
    assert status.state == "ended", status
    assert not any(of.get(fate, 0) for of in counts.values() for fate in ("late", "dead")), counts


if __name__ == "__main__":
    sys.exit(main())
