"""Windows that are over, kept to be looked at: `window(..., keep="10m")`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.testing import Driver

ROWS = [{"k": f"k{i % 7}", "n": i, "at": i * 1_000} for i in range(400)]
SCHEMA = "k string, n bigint, at bigint"


def add(a: int, b: int) -> int:
    return a + b


def made(folder: Path, **keep: Any) -> hr.Job:
    job = hr.Job("kept", folder=str(folder / "job"))
    rows = job.read("log:rows", log=folder / "log", time="at", delay="1s").key_by("k")
    tens = rows.window(hr.tumbling("10s"), **keep)
    tens.agg(n=hr.count(), name="tens").write("collect:", name="a")
    wide = rows.window(hr.sliding("70s", "1s"), **keep)  # stored in blocks as well
    wide.agg(n=hr.count(), name="wide").write("collect:", name="b")
    slid = rows.window(hr.sliding("20s", "10s"), **keep)
    slid.fold(
        0, lambda n, row: n + 1, merge=add, inverse=lambda a, b: a - b, schema="n bigint",
        name="slid",
    ).write("collect:", name="c")  # fmt: skip
    return job


def run(folder: Path, rows: list[dict[str, Any]], until: str | None = None, **keep: Any) -> Any:
    log = hr.EmbeddedLog(folder / "log")
    if "rows" not in log.topics():
        log.create("rows", schema=SCHEMA)
    log.append("rows", rows)
    driver = Driver(made(folder, **keep), folder / "job", until=until, clock=ManualClock(0))
    driver.drain()
    outputs = {name: sorted(map(str, driver.output(name).to_pylist())) for name in "abc"}
    driver.close()
    return outputs


def counts(folder: Path, step: str, since: str, until: str) -> dict[str, int]:
    cut = hr.peek(made(folder, keep="2m"), step).slice(since, until)
    return {row["k"]: row["n"] for row in cut.to_arrow().to_pylist()}


def expected(since: int, until: int) -> dict[str, int]:
    return Counter(r["k"] for r in ROWS if since * 1_000 <= r["at"] < until * 1_000)


@pytest.mark.parametrize("step", ["tens", "wide", "slid"])
@pytest.mark.parametrize("until", [None, "end"])
def test_closed_windows_can_be_looked_at_for_as_long(
    tmp_path: Path, step: str, until: str | None
) -> None:
    run(tmp_path, ROWS[:200], keep="2m")
    run(tmp_path, ROWS[200:], until, keep="2m")
    assert counts(tmp_path, step, "00:05:00", "00:06:00") == expected(300, 360)
    top = hr.peek(made(tmp_path, keep="2m"), step).slice("00:05:00", "00:06:00").top(1)
    assert top.to_pylist()[0]["n"] == max(expected(300, 360).values())


@pytest.mark.parametrize("step", ["tens", "wide", "slid"])
def test_and_no_longer(tmp_path: Path, step: str) -> None:
    run(tmp_path, ROWS, keep="2m")
    assert counts(tmp_path, step, "00:00:00", "00:03:00") == {}


def test_results_are_the_same_and_so_is_the_state_of_a_step(tmp_path: Path) -> None:
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    kept = [run(tmp_path / "with", ROWS[:200], keep="2m")]
    plain = [run(tmp_path / "without", ROWS[:200])]
    kept.append(run(tmp_path / "with", ROWS[200:], "end"))  # it may be left out later
    plain.append(run(tmp_path / "without", ROWS[200:], "end", keep="1m"))  # or added
    assert kept == plain


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("HR-WINDOW-060", lambda r: r.window(hr.session("5s"), keep="1m").agg(n=hr.count())),
        ("HR-WINDOW-060", lambda r: r.window(hr.tumbling(rows=5), keep="1m").agg(n=hr.count())),
        ("HR-WINDOW-060", lambda r: r.window(hr.tumbling("5s"), keep="1m").fold(0, add)),
        ("HR-WINDOW-061", lambda r: r.window(hr.tumbling("5s"), keep=-5).agg(n=hr.count())),
    ],
)
def test_refused(code: str, make: Any) -> None:
    job = hr.Job("refused")
    make(job.read("log:x", schema=SCHEMA, time="at", delay="1s", name="x")).write("collect:")
    with pytest.raises(hr.PlanError, match=code):
        job.check()
