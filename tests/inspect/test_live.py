"""What a step keeps, looked at from outside: against what was sent, by a plain model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.errors import StateError
from headrace.testing import Driver

ROWS = [{"k": f"k{i % 7}", "n": i, "at": i * 1_000} for i in range(200)]


class Last(hr.KeyedProcess):
    seen = hr.value(int, default=0)
    output = "n bigint"

    def on_row(self, row: Any, ctx: Any) -> None:
        self.seen = row.n


@pytest.fixture
def job(tmp_path: Path) -> hr.Job:
    log = hr.EmbeddedLog(tmp_path / "log")
    log.create("rows", schema="k string, n bigint, at bigint")
    made = hr.Job("looked-at", folder=str(tmp_path / "job"))
    rows = made.read("log:rows", log=tmp_path / "log", time="at", delay="1s").key_by("k")
    slid = rows.window(hr.sliding("1m", "10s")).agg(n=hr.count(), total=hr.sum("n"), name="slid")
    slid.write("collect:", name="a")
    rows.agg(most=hr.max("n"), unbounded=True, name="most").write("collect:", name="b")
    rows.window(hr.session("1m")).agg(n=hr.count(), name="sessions").write("collect:", name="c")
    rows.process(Last(), unbounded=True, name="last").write("collect:", name="d")
    log.append("rows", ROWS)
    driver = Driver(made, tmp_path / "job", until=None, clock=ManualClock(0))
    driver.drain()
    driver.close()
    return made


def rows_of(table: Any) -> list[dict[str, Any]]:
    return table.to_pylist()  # type: ignore[no-any-return]


def test_a_running_aggregate_shows_the_result_of_each_key(job: hr.Job) -> None:
    model = {row["k"]: row["n"] for row in ROWS}
    state = hr.peek(job, "most")
    assert {r["k"]: r["most"] for r in rows_of(state.to_arrow())} == model
    assert len(state) == 7
    assert state.to_pandas()["most"].max() == 199
    assert repr(state) == "<state of 'most' after epoch 1>"


def test_one_key_is_got_by_place_or_by_name(job: hr.Job) -> None:
    state = hr.peek(job, "most")
    assert rows_of(state.get("k3")) == rows_of(state.get(k="k3")) == [{"k": "k3", "most": 199}]
    assert rows_of(state.get("nobody")) == []


def test_a_process_function_shows_its_values_under_the_names_of_the_key(job: hr.Job) -> None:
    state = hr.peek(job, "last")
    assert state.to_arrow().column_names == ["k", "seen"]
    assert rows_of(state.get("k3")) == [{"k": "k3", "seen": 199}]


def test_a_slice_of_panes_gives_one_result_per_key_over_the_stretch(job: hr.Job) -> None:
    inside = [r for r in ROWS if 150_000 <= r["at"] < 180_000]
    model = Counter(r["k"] for r in inside)
    cut = hr.peek(job, "slid").slice("00:02:30", "00:03:00")
    assert {r["k"]: r["n"] for r in rows_of(cut.to_arrow())} == model
    assert rows_of(cut.top(1, "total"))[0]["total"] == max(
        sum(r["n"] for r in inside if r["k"] == k) for k in model
    )
    assert rows_of(cut.get("k1"))[0]["n"] == model["k1"]


@pytest.mark.parametrize(
    ("since", "until"),
    [("0:02:30", "0:03:00"), ("1970-01-01 0:02:30", "1970-01-01T0:03"), (150_000, "0:03")],
)
def test_an_hour_may_have_one_digit(job: hr.Job, since: Any, until: Any) -> None:
    model = Counter(r["k"] for r in ROWS if 150_000 <= r["at"] < 180_000)
    cut = hr.peek(job, "slid").slice(since, until)
    assert {r["k"]: r["n"] for r in rows_of(cut.to_arrow())} == model


def test_all_panes_together_hold_every_row_that_a_window_still_needs(job: hr.Job) -> None:
    panes = rows_of(hr.peek(job, "slid").to_arrow())
    oldest = min(p["window_start"].timestamp() for p in panes) * 1_000
    assert sum(p["n"] for p in panes) == sum(r["at"] >= oldest for r in ROWS)
    assert {(p["window_end"] - p["window_start"]).total_seconds() for p in panes} == {10}


def test_windows_that_are_open_show_their_bounds_and_results(job: hr.Job) -> None:
    found = rows_of(hr.peek(job, "sessions").to_arrow())
    assert {r["k"]: r["n"] for r in found} == Counter(r["k"] for r in ROWS)
    ends = {row["k"]: row["at"] + 60_000 for row in ROWS}
    assert {r["k"]: 1_000 * r["window_end"].timestamp() for r in found} == ends


def test_sql_sees_the_rows_and_nothing_else(job: hr.Job) -> None:
    state = hr.peek(job, "most")
    assert rows_of(state.sql("SELECT max(most) AS m FROM state")) == [{"m": 199}]
    with pytest.raises(StateError, match=r"cannot be answered.*Permission"):
        state.sql("SELECT * FROM read_text('/etc/hostname')")


def test_a_snapshot_does_not_change_while_the_job_goes_on(job: hr.Job, tmp_path: Path) -> None:
    before = hr.peek(job, "most")
    hr.EmbeddedLog(tmp_path / "log").append("rows", [{"k": "k3", "n": 1_000, "at": 300_000}])
    driver = Driver(job, tmp_path / "job", until=None, clock=ManualClock(0))
    driver.drain()
    driver.close()
    assert rows_of(before.get("k3")) == [{"k": "k3", "most": 199}]
    assert rows_of(hr.peek(job, "most").get("k3")) == [{"k": "k3", "most": 1_000}]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda job: hr.peek(job, "mast"), "no step 'mast' with state"),
        (lambda job: hr.peek(job, "most").get(), "the key of 'most' is k"),
        (lambda job: hr.peek(job, "most").get(3), "key 3 does not fit: that of 'most' is k string"),
        (lambda job: hr.peek(job, "most").get(z=3), "the key of 'most' is k"),
        (lambda job: hr.peek(job, "most").slice("1:00", "2:00"), "stores nothing by time"),
        (lambda job: hr.peek(job, "slid").slice("late", "2:00"), "'late' is not a time"),
        (lambda job: hr.peek(job, "slid").slice("02:00", "01:00"), "nothing lies between"),
        (lambda job: hr.peek(job, "most").top(3, "z"), "shows no column 'z'"),
        (lambda job: hr.peek(job, "most").top(0), "the top 0 rows are none"),
        (lambda job: hr.peek(job, "most").top(-1, "most"), "HR-STATE-033 the top -1 rows"),
        (lambda job: hr.peek(job, "most").sql("SELEC"), "cannot be answered"),
        (lambda job: hr.peek(job, "most", folder="nowhere"), "has never run in"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(job: hr.Job, ask: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        ask(job)


def test_a_key_too_large_for_its_type_is_refused_with_the_type(tmp_path: Path) -> None:
    job = hr.Job("numbers", folder=str(tmp_path / "job"))
    rows = job.read(hr.rows([{"k": 1, "n": 2}], schema="k bigint, n bigint")).key_by("k")
    rows.agg(most=hr.max("n"), unbounded=True, name="most").write("collect:", name="out")
    Driver(job, tmp_path / "job", clock=ManualClock(0)).drain()
    with pytest.raises(StateError, match="that of 'most' is k bigint"):
        hr.peek(job, "most").get(2**70)


def test_steps_that_keep_rows_show_them_in_the_users_words(tmp_path: Path) -> None:
    log = hr.EmbeddedLog(tmp_path / "log")
    log.create("rows", schema="k string, n bigint, at bigint")
    log.append("rows", ROWS)
    job = hr.Job("rows", folder=str(tmp_path / "job"))
    rows = job.read("log:rows", log=tmp_path / "log", time="at", delay="1s").key_by("k")
    rows.top(2, by="n", unbounded=True, name="best").write("collect:", name="a")
    rows.batch(1_000, within="1h", name="lists").write("collect:", name="b")
    rows.changes_only("n", unbounded=True, name="told").write("collect:", name="c")
    rows.deduplicate(within="1h", name="once").write("collect:", name="e")
    threes = rows.window(hr.tumbling(rows=3))
    threes.agg(most=hr.max("n"), mean=hr.mean("n"), name="threes").write("collect:", name="f")
    results = rows.window(hr.tumbling("10s")).agg(m=hr.max("n"))
    results.top(1, by="m", name="leaders").write("collect:", name="d")
    driver = Driver(job, tmp_path / "job", until=None, clock=ManualClock(0))
    driver.drain()
    driver.close()

    def seen(step: str) -> list[dict[str, Any]]:
        return sorted(rows_of(hr.peek(job, step).to_arrow()), key=lambda r: r.get("n", 0))

    of_key = {k: [r for r in ROWS if r["k"] == k] for k in {r["k"] for r in ROWS}}
    best = [{**r, "rank": i} for mine in of_key.values() for i, r in enumerate(mine[:-3:-1], 1)]
    assert seen("best") == sorted(best, key=lambda r: r["n"])
    assert seen("lists") == ROWS
    assert seen("told") == [{"k": r["k"], "n": r["n"]} for r in ROWS[-7:]]
    once = {r["k"]: r["time"].timestamp() for r in seen("once")}
    assert once == {r["k"]: r["at"] / 1_000 for r in ROWS[:7]}
    open_ = {k: mine[len(mine) // 3 * 3 :] for k, mine in of_key.items()}
    assert {r["k"]: (r["most"], r["mean"]) for r in seen("threes")} == {
        k: (mine[-1]["n"], sum(r["n"] for r in mine) / len(mine))
        for k, mine in open_.items()
        if mine
    }
    names = hr.peek(job, "leaders").to_arrow().column_names
    assert names == ["k", "window_start", "window_end", "m"]
    mine = sorted(rows_of(hr.peek(job, "best").get("k3")), key=lambda r: r["rank"])
    assert mine == [b for b in best if b["k"] == "k3"]
    assert rows_of(hr.peek(job, "best").top(1, by="n")) == [{**ROWS[-1], "rank": 1}]
