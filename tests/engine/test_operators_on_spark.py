"""Every operator on real Spark, in several batches and levels: equal to its model.

The in-process suite varies rows, batches and restarts; here a fixed, disordered stream shows
that Spark carries the same functions. Cases share a query where they can: it costs seconds.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from tests.driver.programs import (
    IN_ORDER,
    SCHEMA,
    STATELESS,
    WINDOWS,
    Case,
    expected,
    multiset,
)  # fmt: skip

pytestmark = pytest.mark.spark


def rows(disorder: int) -> list[dict[str, Any]]:
    rng = random.Random(3)
    found, clock = [], -30_000
    for offset in range(400):
        clock += rng.randint(0, 400)
        found.append(
            {"k": rng.choice(["a", "b", "ä", "d", ""]), "v": rng.choice([None, *range(-4, 12)]),
             "at": clock - rng.randint(0, disorder), "tag": rng.choice([None, "x", "y", "zß"]),
             "split": 0, "offset": offset}
        )  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("cases", "disorder"),
    [(STATELESS, 4_900), (IN_ORDER, 0), (WINDOWS, 4_900)],
    ids=["stateless", "in order", "windows"],
)
def test_spark_gives_what_the_models_say(
    spark: Any, tmp_path: Path, cases: list[Case], disorder: int
) -> None:
    sent = rows(disorder)
    job = hr.Job("all")
    source = hr.rows([{n: r[n] for n in SCHEMA.names} for r in sent], SCHEMA)
    stream = job.read(source, time="at", delay="5s", name="rows")
    for i, case in enumerate(cases):
        case.build(stream).write("collect:", name=f"out{i}")
    run = hr.run(job, folder=str(tmp_path), until="end", max_batch=90)
    status = run.wait(timeout=300)
    assert status.state == "ended" and status.epoch >= 4
    for i, case in enumerate(cases):
        assert multiset(run.output(f"out{i}")) == expected(case, sent), case.name
    progress = run.progress
    assert progress is not None
    total = progress.total
    assert total["read"] == 400 == sum(total[f] for f in ("used", "filtered", "late", "dead"))
