"""The bank of tests/engine/bank.py on Spark, killed at drawn moments with other cores each time.

A reader of its own looks meanwhile: whatever it sees is a state of the bank. `HEADRACE_TRANSFERS`
and `HEADRACE_KILLS` make it longer. Beside it, what Spark's own operators make of the same program.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.engine.bank import SEED, Verdict, fill, transfers, wanted
from tests.engine.killing import ROOT, environment
from tools.evidence import record

from headrace.state.epochs import EpochLog

pytestmark = pytest.mark.spark
TRANSFERS = int(os.environ.get("HEADRACE_TRANSFERS", "100000"))
KILLS = int(os.environ.get("HEADRACE_KILLS", "20"))
EPOCHS = 100
PATIENCE = 120.0  # seconds for an epoch


def test_0_in_every_output_whenever_it_is_killed(tmp_path: Path) -> None:
    fill(tmp_path, TRANSFERS)
    draw, kills, looks, recoveries = random.Random(SEED), 0, 0, list[float]()
    while True:
        began, before = time.monotonic(), _epoch(tmp_path)
        running = _start(tmp_path, draw.randrange(1, 5))
        victim = draw.choice(["all", "java", "driver"])
        moment, first = draw.uniform(0, 1.5), None
        while running.poll() is None:
            if first is None and _epoch(tmp_path) > before:
                first = time.monotonic()
                recoveries.append(first - began)
            if _epoch(tmp_path):  # so the tables are there
                assert Verdict(tmp_path).violations == []
                looks += 1
            if kills < KILLS and first is not None and time.monotonic() - first > moment:
                _kill(running.pid, victim)
                running.wait(60)
                _kill(running.pid, "all")  # what is left of it
                kills += 1
            assert time.monotonic() - (first or began) < PATIENCE + EPOCHS
            time.sleep(0.05)
        if running.returncode == 0:
            break
    found = Verdict(tmp_path)
    assert found.violations == [] and found.balances == wanted(TRANSFERS)
    assert found.pairs.total() == len(found.pairs) == TRANSFERS
    worst = max(recoveries)
    print(
        f"\nbank: seed {SEED}, {kills} kills, {TRANSFERS:,} transfers, {found.rows:,} rows, "
        f"{looks} looks, 0 violations, worst recovery {worst:.1f} s"
    )
    record(
        "bank", f"bank: {looks} looks at all outputs; driver, JVM or all killed", "make chaos",
        faults=kills, records=found.rows, violations=0,
    )  # fmt: skip


def _start(place: Path, cores: int) -> subprocess.Popen[bytes]:
    words = [str(place), str(max(1, TRANSFERS // EPOCHS)), str(cores)]
    with open(place / "told", "ab") as told:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.engine.bank_job", *words],
            cwd=ROOT, start_new_session=True, stdout=told, stderr=told,
            env=environment(),
        )  # fmt: skip


def _epoch(place: Path) -> int:
    epochs = place / "job" / "epochs"
    return EpochLog(place / "job").newest() if epochs.is_dir() else 0


def _kill(session: int, victim: str) -> None:
    for entry in Path("/proc").glob("[0-9]*"):
        process = int(entry.name)
        with suppress(OSError):
            java = (entry / "comm").read_text().strip() == "java"
            chosen = {"all": True, "java": java, "driver": process == session}[victim]
            if chosen and os.getsid(process) == session:
                os.kill(process, signal.SIGKILL)


def test_what_spark_makes_of_it(tmp_path: Path) -> None:
    """Its two ways to write the bank: two aggregates that are joined, which it refuses, and one
    aggregate over both sides of a transfer, whose batches are states of the bank."""
    import pyarrow.parquet as pq
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    from headrace.engine.session import session

    spark = session("local[2]")

    (tmp_path / "in").mkdir()
    rows = transfers(20_000)
    for part in range(20):
        pq.write_table(rows.slice(1_000 * part, 1_000), tmp_path / "in" / f"{part:02d}.parquet")
    reader = spark.readStream.schema("id bigint, debtor int, creditor int, at bigint")
    made = reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    seen: list[list[int]] = []

    def keep(batch: DataFrame, epoch: int) -> None:
        seen.append([row.balance for row in batch.collect()])

    def run(frame: DataFrame, mode: str) -> None:
        place = str(tmp_path / f"checkpoint-{mode}-{len(list(tmp_path.iterdir()))}")
        writer = frame.writeStream.outputMode(mode).option("checkpointLocation", place)
        writer.foreachBatch(keep).trigger(availableNow=True).start().awaitTermination()

    credits = made.groupBy(f.col("creditor").alias("account")).agg(f.count("*").alias("credit"))
    debits = made.groupBy(f.col("debtor").alias("account")).agg(f.count("*").alias("debit"))
    joined = credits.join(debits, "account", "full").selectExpr("credit - debit AS balance")
    for mode in ("update", "complete", "append"):
        with pytest.raises(AnalysisException):
            run(joined, mode)
    assert not seen
    sides = made.selectExpr("inline(array(struct(creditor AS account, 1 AS n), "
                            "struct(debtor AS account, -1 AS n)))")  # fmt: skip
    run(sides.groupBy("account").agg(f.sum("n").alias("balance")), "complete")
    assert len(seen) == 20 and all(sum(balances) == 0 for balances in seen)
