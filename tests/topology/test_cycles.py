"""Circles of bolts: what goes back is processed in the batches after, once, whatever stops."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.look.in_process import Driver
from headrace.state.faults import hooked
from headrace.state.loops import LoopFolder
from headrace.testing import Harness, drive
from headrace.testing.harness import tables_of

NUMBERS = range(1, 28)


class Collatz(hr.Bolt):
    """One step; counts all steps that its task has done."""

    output = "start bigint, steps bigint"
    outputs: ClassVar[Any] = {"again": "start bigint, n bigint, steps bigint"}
    done = hr.value(int, default=0)

    def process(self, tup: Any, collector: Any) -> None:
        self.done += 1
        if tup.n == 1:
            collector.emit((tup.start, tup.steps))
        else:
            n = 3 * tup.n + 1 if tup.n % 2 else tup.n // 2
            collector.emit((tup.start, n, tup.steps + 1), "again")


class Pass(hr.Bolt):
    output = "start bigint, n bigint, steps bigint"

    def process(self, tup: Any, collector: Any) -> None:
        collector.emit((tup.start, tup.n, tup.steps))


class Halve(hr.Bolt):
    """Sends back, directly to a task."""

    outputs: ClassVar[Any] = {"back": "start bigint, n bigint, steps bigint"}
    direct = ("back",)

    def process(self, tup: Any, collector: Any) -> None:
        collector.emit_direct(tup.start % 2, (tup.start, tup.n, tup.steps), "back")


def steps_of(n: int) -> int:
    count = 0
    while n != 1:
        n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
    return count


EXPECTED = sorted((n, steps_of(n)) for n in NUMBERS)


def rows(numbers: Iterable[int] = NUMBERS) -> list[dict[str, int]]:
    return [{"start": n, "n": n, "steps": 0} for n in numbers]


def itself(spout: Any = None, **options: Any) -> hr.Topology:
    """A bolt that reads what it sends."""
    made = hr.Topology("collatz")
    made.spout("numbers", hr.rows(rows()) if spout is None else spout, **options)
    made.bolt("step", Collatz(), tasks=2).shuffle("numbers").shuffle("step", "again")
    made.bolt("out", "collect:").shuffle("step")
    return made


def around(numbers: Iterable[int] = NUMBERS) -> hr.Topology:
    """Three bolts, the last of which sends back to the first, which is declared before them."""
    made = hr.Topology("around")
    made.bolt("enter", Pass(), tasks=2).shuffle("numbers").direct("send", "back")
    made.bolt("step", Collatz(), tasks=3).fields("enter", "start")
    made.bolt("send", Halve()).shuffle("step", "again")
    made.spout("numbers", hr.rows(rows(numbers), splits=2))
    made.bolt("out", "collect:").shuffle("step")
    return made


def found(driver: Driver) -> list[tuple[int, int]]:
    return sorted((r["start"], r["steps"]) for r in driver.output("out").to_pylist())


@pytest.mark.parametrize("program", [itself, around])
@pytest.mark.parametrize("batch", [2, 1_000])
def test_tuples_go_round_until_none_is_left(program: Any, batch: int, tmp_path: Path) -> None:
    driver = drive(program(), tmp_path, max_batch=batch, tasks=2)
    assert found(driver) == EXPECTED
    assert driver.manifest is not None and driver.manifest.ended


def test_state_in_a_circle_has_seen_each_tuple_once(tmp_path: Path) -> None:
    driver = drive(itself(), tmp_path, max_batch=7)
    rows = tables_of(driver.start, "step")
    done = sum(sum(t.column("done").to_pylist()) for t in rows.values() if "done" in t.column_names)
    assert done == sum(1 + steps for _, steps in EXPECTED)


def test_a_crash_at_any_step_changes_nothing(tmp_path: Path) -> None:
    steps, few = list[str](), (1, 2, 3)
    with hooked(steps.append):
        drive(around(few), tmp_path / "whole")
    assert "loop.added" in steps
    chosen = range(0, len(steps), max(1, len(steps) // 25))
    for number in chosen:
        seen = 0

        def crash(step: str, at: int = number) -> None:
            nonlocal seen
            seen += 1
            if seen == at + 1:
                raise KeyboardInterrupt

        place = tmp_path / str(number)
        with pytest.raises(KeyboardInterrupt), hooked(crash):
            drive(around(few), place)
        assert found(drive(around(few), place)) == EXPECTED[:3], steps[number]


def test_a_live_job_goes_on_with_what_went_round() -> None:
    job = itself("log:numbers", schema="start bigint, n bigint, steps bigint")
    with Harness(job) as test:
        test.send("numbers", [(6, 6, 0)])
        assert test.output() == [{"start": 6, "steps": steps_of(6)}]
        test.crash()
        test.send("numbers", [(7, 7, 0), (1, 1, 0)])
        answers = {row["start"]: row["steps"] for row in test.output("out")}
        assert answers == {7: steps_of(7), 1: 0}
        test.end()


def test_what_goes_round_is_no_input_and_no_output_of_a_test() -> None:
    job = itself("log:numbers", schema="start bigint, n bigint, steps bigint")
    with Harness(job) as test:
        assert list(test.inputs) == ["numbers"]
        with pytest.raises(HeadraceError, match="HR-TEST-004"):  # nothing would read it
            test.send("step.again to step", [(6, 6, 0)])
        with pytest.raises(HeadraceError, match="HR-TEST-004"):
            test.output("step.again back to step")


def test_rows_of_a_circle_that_were_removed_are_missed(tmp_path: Path) -> None:
    driver = Driver(itself(), tmp_path, max_batch=10)
    for _ in range(4):
        driver.epoch()
    driver.close()
    loop = LoopFolder(tmp_path, "step.again to step")
    files = sorted(loop.path.iterdir())
    assert len(files) >= 2
    files[-1].unlink()
    with pytest.raises(HeadraceError):
        drive(itself(), tmp_path)


def test_a_circle_that_is_taken_out_while_tuples_go_round_is_refused(tmp_path: Path) -> None:
    driver = Driver(itself(), tmp_path, max_batch=10)
    driver.epoch()
    driver.close()
    changed = hr.Topology("collatz")
    changed.spout("numbers", hr.rows(rows()))
    changed.bolt("step", Collatz(), tasks=2).shuffle("numbers")
    changed.bolt("out", "collect:").shuffle("step")
    changed.bolt("rest", "collect:").shuffle("step", "again")
    with pytest.raises(HeadraceError) as caught:
        drive(changed, tmp_path)
    assert "step.again to step" in str(caught.value)


def test_a_look_at_a_circle_is_refused() -> None:
    with pytest.raises(HeadraceError, match="go round"):
        itself().stream("step").head()


@pytest.mark.spark
def test_tuples_go_round_on_spark(tmp_path: Path) -> None:
    job = hr.Topology("collatz")
    job.spout("numbers", hr.rows([{"start": n, "n": n, "steps": 0} for n in (1, 2, 3, 6)]))
    job.bolt("step", Collatz(), tasks=2).shuffle("numbers").shuffle("step", "again")
    job.bolt("out", f"files:{tmp_path / 'out'}", format="json").shuffle("step")
    hr.run(job, folder=str(tmp_path / "job"), until="end").wait()
    answers = hr.read_output(tmp_path / "out").to_pylist()
    assert {r["start"]: r["steps"] for r in answers} == {n: steps_of(n) for n in (1, 2, 3, 6)}


class Down(hr.Bolt):
    output = "s bigint"
    outputs: ClassVar[Any] = {"again": "s bigint, n bigint"}

    def process(self, tup: Any, collector: Any) -> None:
        if tup.n == 0:
            collector.emit((tup.s,))
        else:
            collector.emit((tup.s, tup.n - 1), "again")


def down() -> hr.Topology:
    made = hr.Topology("down")
    made.spout("in", hr.rows([{"s": i, "n": i} for i in range(6)]))
    made.bolt("down", Down()).shuffle("in").shuffle("down", "again")
    made.bolt("out", "collect:").shuffle("down")
    return made


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("epochs", [1, 2, 3, 4])
def test_a_file_that_is_read_in_part_is_missed(number: int, epochs: int, tmp_path: Path) -> None:
    driver = Driver(down(), tmp_path, max_batch=3)
    for _ in range(epochs):
        driver.epoch()
    driver.close()
    files = sorted((tmp_path / "loops").rglob("*.arrow"))
    files[number].unlink()
    with pytest.raises(HeadraceError):
        drive(down(), tmp_path)
