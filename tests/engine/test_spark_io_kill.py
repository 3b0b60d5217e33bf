"""A job that reads and writes by Spark, killed with all its processes at each step of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr

ROOT = Path(__file__).parent.parent.parent
POINTS = ("spark.batch.answered:2", "spark batch.linked:2",
          "sink.driver.asked:2", "sink.driver.delivered:2")  # fmt: skip


def start(place: Path, crash: str | None = None) -> int:
    environment = {k: v for k, v in os.environ.items() if k != "HEADRACE_ZYGOTE"}
    if crash:
        environment |= {"HEADRACE_CRASH": crash, "HEADRACE_CRASH_SESSION": "1"}
    command = [sys.executable, "-m", "tests.engine.spark_io_job", str(place)]
    with (place / "said").open("w") as said:
        driver = subprocess.Popen(
            command, cwd=ROOT, env=environment, start_new_session=True, stdout=said, stderr=said
        )
        return driver.wait(timeout=120)


@pytest.mark.spark
def test_killed_at_each_step_every_row_is_there_once_and_calls_repeat_the_same_rows(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "calls").mkdir()
    sent: list[int] = []
    for number, point in enumerate(POINTS):
        for file in range(3):
            ids = [100 * number + 10 * file + i for i in range(5)]
            text = "".join(f'{{"id": {i}}}\n' for i in ids)
            (tmp_path / "in" / f"{number}-{file}.json").write_text(text)
            sent += ids
        assert start(tmp_path, point) != 0, point
    assert start(tmp_path) == 0, (tmp_path / "said").read_text()

    log = hr.EmbeddedLog(tmp_path / "log")
    rows = [i for p, end in log.latest("out").items() for _, t in log.read("out", p, 0, end)
            for i in t["id"].to_pylist()]  # fmt: skip
    assert sorted(rows) == sorted(sent)
    calls: dict[int, list[list[int]]] = {}
    for path in (tmp_path / "calls").iterdir():
        call = json.loads(path.read_text())
        calls.setdefault(call["epoch"], []).append(call["ids"])
    assert all(ids == same[0] for same in calls.values() for ids in same)
    assert sorted(i for same in calls.values() for i in same[0]) == sorted(sent)
    assert any(len(same) > 1 for same in calls.values())  # killed between the call and its answer
