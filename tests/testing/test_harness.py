"""The harness in process: what each step does to a job, and what can be seen of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.testing import Harness
from tests.testing.jobs import SCHEMA, at, counts, rows, seen, summed, two_inputs

Make = Callable[..., Harness]


def test_the_watermark_that_rows_carry_closes_windows(harness: Make) -> None:
    job = harness(counts())
    job.send("rows", rows(("a", 1, 1), ("b", 1, 9)))
    assert job.output("out") == []
    job.send("rows", rows(("a", 1, 11)))
    assert seen(job.output("out")) == {("a", 0, 1): 1, ("b", 0, 1): 1}
    assert job.output("out") == []  # each row is shown once
    assert job.table("out").num_rows == 2  # and all of them are kept


@dataclass
class Reading:
    key: str
    value: int
    at: object


def test_rows_are_dicts_tuples_dataclasses_or_a_table(harness: Make) -> None:
    job = harness(counts())
    (row,) = rows(("a", 1, 1))
    job.send("rows", [row, tuple(row.values()), Reading(**row)])
    job.send("rows", pa.table({n: [v] for n, v in row.items()}))
    job.end()
    assert seen(job.output()) == {("a", 0, 4): 1}


def test_an_explicit_watermark_closes_windows_and_makes_rows_late(harness: Make) -> None:
    job = harness(counts())
    job.send("rows", rows(("a", 1, 1)))
    job.watermark("rows", "9s")
    assert job.output() == []
    job.watermark("rows", 10_000)
    assert seen(job.output()) == {("a", 0, 1): 1}
    job.send("rows", rows(("a", 7, 2)))
    assert [r["value"] for r in job.late("counts")] == [7]
    job.watermark("rows", at(5))  # never back
    job.send("rows", rows(("a", 8, 9.9)))
    assert [r["value"] for r in job.late()] == [8]


def test_time_that_passes_closes_the_windows_of_a_silent_input(harness: Make) -> None:
    job = harness(counts(), clock=at(1_000))
    job.send("rows", rows(("a", 1, 1)))
    job.advance("59s")
    assert job.output() == []
    job.advance(timedelta(seconds=1))
    assert seen(job.output()) == {("a", 0, 1): 1}
    job.advance(at(1_100))
    assert job.now == 1_100_000


def test_a_step_is_one_batch_however_many_rows_it_has(harness: Make) -> None:
    job = harness(counts())
    (row,) = rows(("a", 1, 1))
    many = pa.table({n: [v] * 50_000 for n, v in row.items()})
    for step in (1, 2):
        job.send("rows", many)
        assert job.progress is not None
        assert job.progress.epoch == step and job.progress.read == 50_000


def test_sending_sets_the_clock_in_the_same_batch(harness: Make) -> None:
    job = harness(counts())
    job.send("rows", rows(("a", 1, 1)), at="1000s")
    assert job.progress is not None and job.progress.clock == 1_000_000
    with pytest.raises(hr.RunError) as caught:
        job.send("rows", rows(("a", 1, 1)), at=999_999)
    assert caught.value.code == "HR-TEST-003"


def test_a_split_that_is_idle_holds_the_others_back_no_longer(harness: Make) -> None:
    job = harness(counts())
    job.send("rows", rows(("a", 1, 1)), split=1)
    job.send("rows", rows(("a", 1, 15)), split=0)
    assert job.output() == []  # split 1 stands at 0 s
    job.idle("rows", split=1)
    assert seen(job.output()) == {("a", 0, 1): 1}
    job.send("rows", rows(("b", 1, 16)), split=1)  # and is back
    job.send("rows", rows(("a", 1, 35)), split=0)
    assert job.output() == []


def test_an_input_that_has_said_nothing_holds_the_others_back(harness: Make) -> None:
    job = harness(two_inputs())
    job.send("left", rows(("a", 4, 1), ("a", 4, 15)))
    assert job.output() == []
    job.idle("right")
    assert seen(job.output()) == {("a", 0, 1, 2): 1}


def test_late_rows_and_dead_letters_are_seen_though_nobody_writes_them(harness: Make) -> None:
    job = harness(two_inputs())
    job.send("left", rows(("a", 4, 25)))
    job.send("right", rows(("a", 4, 25)))
    job.send("left", rows(("a", 8, 2), ("b", None, 26)))
    assert [(r["key"], r["value"]) for r in job.late("sums")] == [("a", 4)]  # as it came: halved
    (letter,) = job.dead()
    assert (letter["input"], letter["step"]) == ("left", "halved")
    assert letter["error"] == "ValueError: nothing to halve"
    assert job.dead() == []


def test_dead_letters_are_seen_when_the_job_uses_them_itself(harness: Make) -> None:
    job = counts()
    job.dead.select("step").write("log:dead", name="letters")
    playing = harness(job)
    playing.send("rows", [{"key": "a", "value": 1, "at": None}])
    assert playing.output("letters") == [{"step": "rows"}]
    assert [d["error"] for d in playing.dead()] == ["the time column 'at' is null"]


def test_the_state_of_a_step_is_a_table(harness: Make) -> None:
    job = harness(counts())
    assert job.state("counts")["panes"].num_rows == 0
    job.send("rows", rows(("a", 1, 1), ("a", 1, 2), ("b", 1, 3), ("a", 1, 12)))
    held = job.state()["panes"].to_pylist()
    assert [(r["__t"], r["key"], r["n__n"]) for r in held] == [(10_000, "a", 1)]


def test_the_end_closes_all_windows_and_is_the_end(harness: Make) -> None:
    job = harness(two_inputs())
    sent = [("a", 2, 1.0), ("b", 4, 12.0), ("a", 6, 57.0)]
    job.send("right", rows(*sent))
    job.end()
    assert set(seen(job.output())) == summed(sent)
    assert job.progress is not None and job.progress.ended
    with pytest.raises(hr.RunError) as caught:
        job.send("right", rows(("a", 1, 1)))
    assert caught.value.code == "HR-TEST-007"


# failures and changes


def test_a_crash_loses_the_batch_and_the_next_start_does_it_again(harness: Make) -> None:
    noticed: list[int] = []
    job = hr.Job("noticed")
    read = job.read("log:nowhere", schema=SCHEMA, name="rows")
    read.tap(lambda row: noticed.append(row.value)).write("console:", name="out")
    playing = harness(job)
    playing.send("rows", rows(("a", 1, 1)))
    playing.crash()
    playing.send("rows", rows(("a", 2, 1)))
    playing.send("rows", rows(("a", 3, 1)))
    assert noticed == [1, 2, 2, 3]
    assert [r["value"] for r in playing.output()] == [1, 2, 3]
    assert playing.progress is not None
    assert playing.progress.epoch == 3 and playing.progress.total["read"] == 3


def test_a_crash_changes_nothing_wherever_it_comes() -> None:
    sent = [("ab"[i % 2], i, 7.0 * i) for i in range(9)]
    for crashing in (0, 4, 8):
        with Harness(two_inputs()) as job:
            for step, row in enumerate(sent):
                if step == crashing:
                    job.crash()
                job.send("right", rows(row))
            job.end()
            assert seen(job.output()) == dict.fromkeys(summed(sent), 1), f"crash at {crashing}"


def test_a_crash_waits_for_a_batch(harness: Make) -> None:
    job = harness(counts())
    job.send("rows", rows(("a", 1, 1)))
    job.crash()
    job.advance("1s")  # nothing is due
    job.end()
    assert seen(job.output()) == {("a", 0, 1): 1}


def test_a_restart_forgets_nothing(harness: Make) -> None:
    job = harness(counts())
    job.send("rows", rows(("a", 1, 1)))
    job.restart()
    job.send("rows", rows(("a", 1, 2)))
    job.restart()
    job.end()
    assert seen(job.output()) == {("a", 0, 2): 1}


def test_a_changed_job_goes_on_from_the_state_that_fits(harness: Make) -> None:
    job = harness(two_inputs(name="sums"))
    job.send("right", rows(("a", 1, 1)))
    changed = two_inputs(name="sums")
    changed.dead.write("console:", name="letters")
    job.restart(changed)
    job.send("right", rows(("a", 2, 2)))
    job.end()
    assert seen(job.output("out")) == {("a", 0, 2, 3): 1}
    assert job.output("letters") == []
    assert job.comparison is not None
    verdicts = {(c.name, c.verdict) for c in job.comparison.changes}
    kept = {(name, "same") for name in ("sums", "left", "right", "out")}
    assert verdicts == kept | {("letters", "new")}


def test_state_is_dropped_only_with_consent_and_a_refusal_can_be_undone(harness: Make) -> None:
    job = harness(two_inputs(name="sums"))
    job.send("right", rows(("a", 1, 1)))
    with pytest.raises(hr.StateError) as caught:
        job.restart(two_inputs(name="others"))
    assert caught.value.code == "HR-EVOLVE-002"
    job.restart()
    job.send("right", rows(("a", 2, 2)))
    job.restart(two_inputs(name="others"), drop="sums")
    job.send("right", rows(("a", 4, 3)))
    job.end()
    assert seen(job.output()) == {("a", 0, 1, 4): 1}


def test_an_input_under_a_new_name_is_read_on(harness: Make) -> None:
    def build(name: str, was: str | None = None) -> hr.Job:
        job = hr.Job("renamed")
        read = job.read("log:nowhere", schema=SCHEMA, name=name, was=was)
        read.write("console:", name="out")
        return job

    job = harness(build("old"))
    job.send("old", rows(("a", 1, 1)))
    job.restart(build("new", was="old"))
    job.send("new", rows(("a", 2, 2)))
    assert [r["value"] for r in job.output()] == [1, 2]


def test_an_input_that_reads_another_place_is_refused_as_in_earnest(harness: Make) -> None:
    job = harness(counts())
    job.send("rows", rows(("a", 1, 1)))
    other = hr.Job("counts")
    read = other.read("log:elsewhere", schema=SCHEMA, time="at", delay="1s", name="rows")
    found = read.key_by("key").window(hr.tumbling("10s")).agg(n=hr.count(), name="counts")
    found.write("log:also-nowhere", name="out")
    with pytest.raises(hr.StateError) as caught:
        job.restart(other)
    assert caught.value.code == "HR-EVOLVE-001"


def test_a_job_that_fails_says_so_and_a_mended_one_goes_on(harness: Make) -> None:
    def build(divide: Callable[[Any], Any]) -> hr.Job:
        job = hr.Job("failing", on_error="fail")
        read = job.read("log:nowhere", schema=SCHEMA, name="rows")
        read.map(divide, schema="v bigint", name="divide").write("console:", name="out")
        return job

    def wrong(row: Any) -> dict[str, int]:
        return {"v": 1 // row.value}

    def mended(row: Any) -> dict[str, int]:
        return {"v": row.value}

    job = harness(build(wrong))
    with pytest.raises(hr.StepError) as caught:
        job.send("rows", rows(("a", 0, 1)))
    assert "ZeroDivisionError" in str(caught.value) and "'divide'" in str(caught.value)
    job.restart(build(mended))
    assert job.output() == [{"v": 0}]


# what is said wrongly


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda h: h.send("row", []), "HR-TEST-004"),
        (lambda h: h.output("outs"), "HR-TEST-004"),
        (lambda h: h.late("out"), "HR-TEST-004"),
        (lambda h: h.state("nothing"), "HR-TEST-004"),
        (lambda h: h.send("rows", [{"kye": "a"}]), "HR-TEST-006"),
        (lambda h: h.send("rows", [{"value": "text"}]), "HR-TEST-006"),
        (lambda h: h.send("rows", [("a", 1)]), "HR-TEST-006"),
        (lambda h: h.watermark("rows", 1.5), "HR-TEST-002"),
        (lambda h: h.advance("-5s"), "HR-TIME-001"),
        (lambda h: h.advance(-5), "HR-TEST-003"),
    ],
)
def test_a_slip_is_told_and_leaves_no_trace(harness: Make, wrong: Any, code: str) -> None:
    job = harness(counts())
    with pytest.raises(hr.HeadraceError) as caught:
        wrong(job)
    assert caught.value.code == code and caught.value.hint
    job.send("rows", rows(("a", 1, 1)))
    job.end()
    assert seen(job.output()) == {("a", 0, 1): 1}


def test_an_unknown_stage_and_a_wrong_program_are_told() -> None:
    with pytest.raises(hr.RunError) as caught:
        Harness(counts(), on="flink")
    assert caught.value.code == "HR-TEST-005"
    job = hr.Job("nothing")
    job.read("log:nowhere", schema=SCHEMA, name="rows")
    with pytest.raises(hr.PlanError) as plan:
        Harness(job)
    assert plan.value.code == "HR-PLAN-005"


# what it leaves behind


def test_a_folder_that_was_given_stays_and_can_be_taken_up_again(tmp_path: Path) -> None:
    with Harness(counts(), folder=tmp_path) as job:
        job.send("rows", rows(("a", 1, 1)))
    with Harness(counts(), folder=tmp_path) as job:
        job.send("rows", rows(("a", 1, 2)))
        job.end()
        assert seen(job.output()) == {("a", 0, 2): 1}


def test_a_temporary_folder_is_gone_after_the_test() -> None:
    with Harness(counts()) as job:
        folder = Path(job._folder)
        job.send("rows", rows(("a", 1, 1)))
        assert folder.is_dir()
    assert not folder.exists()


def test_no_spark_is_imported() -> None:
    code = """
import sys
from tests.testing.jobs import counts, rows
from headrace.testing import Harness
with Harness(counts()) as job:
    job.send("rows", rows(("a", 1, 1)))
    job.end()
    assert len(job.output()) == 1
sys.exit("pyspark" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
