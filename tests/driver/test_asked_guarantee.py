"""What a job is asked for: `guarantee=`. A crash at every durable step of a job with an output that
records no epochs; its reader counts what came."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import headrace as hr
from headrace.driver.rewind import plan_rewind
from headrace.driver.start import guarantee_of
from headrace.state import faults
from headrace.testing import Driver, drive
from tests.sinks.webhook_cases import receiver

ROWS = [{"n": i} for i in range(24)]


@dataclass(frozen=True)
class Lines(hr.Output):
    """A file that gets a line for each row, and can crash between two rows."""

    kind: ClassVar[str] = "test lines"
    path: str

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        for n in rows["n"].to_pylist():
            with open(self.path, "a") as file:
                file.write(f"{n}\n")
            faults.point("test.line")


def job(place: Path, guarantee: str | None) -> hr.Job:
    job = hr.Job("asked", guarantee=guarantee)
    rows = job.read(hr.rows(ROWS, "n bigint"), name="rows")
    rows.write(Lines(str(place / "lines")), name="lines")
    rows.write("collect:", name="exact")
    return job


def run(place: Path, guarantee: str | None) -> Driver:
    driver = Driver(job(place, guarantee), place / "job", max_batch=6)
    driver.drain()
    driver.start.log.release()
    return driver


class Crash(Exception):
    pass


def crash(place: Path, guarantee: str | None, point: str, nth: int) -> None:
    passed: Counter[str] = Counter()

    def hook(name: str) -> None:
        passed.update([name])
        if name == point and passed[name] == nth:
            raise Crash(name)

    with faults.hooked(hook), pytest.raises((Crash, hr.OutputError)):
        run(place, guarantee)


def lines(place: Path) -> Counter[int]:
    file = place / "lines"
    return Counter(map(int, file.read_text().split())) if file.exists() else Counter()


def missing_epochs(place: Path) -> list[int]:
    (found,) = [o for o in hr.outputs(place / "job").outputs if o.name == "lines"]
    match = re.search(r"may be missing: ([\d, ]+)", found.note)
    return [int(n) for n in match[1].split(",")] if match else []


def passings(folder: Path, guarantee: str) -> list[tuple[str, int]]:
    passed: Counter[str] = Counter()
    with faults.hooked(lambda name: passed.update([name])):
        run(folder, guarantee)
    return [(name, nth) for name, times in sorted(passed.items()) for nth in {1, times}]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_a_crash_at_any_step_repeats_rows_or_loses_them_as_asked(
    guarantee: str, tmp_path: Path
) -> None:
    """At most once: what is missing is of the epochs that `outputs` names, and never came twice."""
    wanted = Counter(row["n"] for row in ROWS)
    lost, repeated = 0, 0
    for point, nth in passings(tmp_path / "calm", guarantee):
        place = tmp_path / f"{point}-{nth}"
        place.mkdir()
        crash(place, guarantee, point, nth)
        driver = run(place, guarantee)
        assert sorted(driver.output("exact")["n"].to_pylist()) == sorted(wanted.elements())
        found = lines(place)
        lost += (wanted - found).total()
        repeated += (found - wanted).total()
        passed_over = {n for e in missing_epochs(place) for n in range(6 * e - 6, 6 * e)}
        assert {*(wanted - found)} <= passed_over, (point, nth)
        assert len(missing_epochs(place)) <= 1
    assert (lost > 0, repeated > 0) == (guarantee == "at_most_once", guarantee == "at_least_once")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_start_says_which_rows_may_be_missing(tmp_path: Path) -> None:
    crash(tmp_path, "at_most_once", "test.line", 9)
    (note,) = run(tmp_path, "at_most_once").start.notes
    assert note == (
        "output 'lines': the 6 rows of epoch 2 may be missing there: their delivery had begun, "
        "and at most once means that it is not repeated"
    )
    assert lines(tmp_path) == Counter({*range(9), *range(12, 24)})
    assert missing_epochs(tmp_path) == [2]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("first", [None, "at_least_once"])
def test_what_was_delivered_before_it_was_asked_for_counts_as_begun(
    first: str | None, tmp_path: Path
) -> None:
    crash(tmp_path, first, "test.line", 9)
    run(tmp_path, "at_most_once")
    assert lines(tmp_path) == Counter({*range(9), *range(12, 24)})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_job_that_is_asked_for_it_no_longer_forgets_what_had_begun(tmp_path: Path) -> None:
    """Else an old mark would say, later, that a newer delivery had not begun."""
    crash(tmp_path, "at_most_once", "test.line", 5)
    crash(tmp_path, None, "test.line", 9)  # epoch 1 again, and half of epoch 2
    run(tmp_path, "at_most_once")
    assert lines(tmp_path) == Counter([*range(5), *range(9), *range(12, 24)])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_mark_that_is_damaged_is_an_error_and_one_that_is_missing_lets_nothing_repeat(
    tmp_path: Path,
) -> None:
    crash(tmp_path, "at_most_once", "test.line", 9)
    (mark,) = (tmp_path / "job" / "begun").iterdir()
    whole = mark.read_bytes()
    mark.write_bytes(whole[:-9])
    with pytest.raises(hr.StateError, match="HR-STATE-004"):
        run(tmp_path, "at_most_once")
    mark.unlink()
    run(tmp_path, "at_most_once")
    assert lines(tmp_path) == Counter({*range(9), *range(12, 24)})


@dataclass(frozen=True)
class Others(Lines):
    kind: ClassVar[str] = "test other lines"


def several(place: Path, guarantee: str | None) -> hr.Job:
    made = job(place, guarantee)
    rows = made.read(hr.rows(ROWS, "n bigint"), name="again")
    rows.write(Others(str(place / "others")), name="others")
    return made


def begin(place: Path, guarantee: str | None) -> None:
    driver = Driver(several(place, guarantee), place / "job", max_batch=6)
    driver.drain()
    driver.start.log.release()


def stop(place: Path, guarantee: str | None, point: str, nth: int) -> None:
    passed: Counter[str] = Counter()

    def hook(name: str) -> None:
        passed.update([name])
        if name == point and passed[name] == nth:
            raise Crash(name)

    with faults.hooked(hook), pytest.raises((Crash, hr.OutputError)):
        begin(place, guarantee)


STEPS = [("commit.manifest", 2), ("sink.publish", 6)]
AGAIN = [("sink.publish", 1), ("sink.publish", 3), ("test.line", 9)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("first", "between"), [(None, None), ("at_most_once", "at_least_once")])
def test_starts_that_are_asked_for_other_things_with_crashes_between(
    first: str | None, between: str | None, tmp_path: Path
) -> None:
    """Of several outputs: what was delivered before a start at most once is not repeated by it."""
    for one in STEPS:
        for other in AGAIN:
            place = tmp_path / f"{one}-{other}"
            place.mkdir()
            stop(place, first, *one)
            stop(place, between, *other)
            before = {f: Counter((place / f).read_text().split()) if (place / f).exists() else
                      Counter() for f in ("lines", "others")}  # fmt: skip
            begin(place, "at_most_once")
            for file, had in before.items():
                found = Counter((place / file).read_text().split())
                assert not {n for n in had if found[n] > had[n]}, (one, other, file)
                assert not {n for n, times in (found - had).items() if times > 1}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("taken_by", [None, "at_most_once"])
def test_a_driver_that_is_let_go_late_takes_no_note_back(
    taken_by: str | None, tmp_path: Path
) -> None:
    """The first is stopped before it notes epoch 2; the next one dies while it delivers epoch 3."""

    def meanwhile(name: str) -> None:
        begun, taken = tmp_path / "lines", tmp_path / "taken"
        if name == "commit.manifest" and begun.exists() and not taken.exists():
            taken.touch()
            crash(tmp_path, taken_by, "test.line", 9)

    with faults.hooked(meanwhile), pytest.raises(hr.StateError, match="HR-STATE-007"):
        run(tmp_path, "at_most_once")
    assert lines(tmp_path) == Counter(range(15))
    run(tmp_path, "at_most_once")
    assert lines(tmp_path) == Counter({*range(15), *range(18, 24)})


def test_after_a_rewind_epochs_of_the_new_timeline_are_delivered(tmp_path: Path) -> None:
    run(tmp_path, "at_most_once")
    folder = str(tmp_path / "job")
    plan_rewind(job(tmp_path, "at_most_once"), to_epoch=2, keep=["lines"], folder=folder).apply()
    run(tmp_path, "at_most_once")
    assert lines(tmp_path) == Counter([*range(24), *range(12, 24)])


@pytest.mark.parametrize("asked", ["exactly_once", "exactly once"])
def test_a_job_that_is_asked_for_more_than_it_can_give_is_refused(
    asked: str, tmp_path: Path
) -> None:
    with pytest.raises(hr.RunError, match="HR-RUN-021") as refused:
        run(tmp_path, asked)
    text = str(refused.value)
    assert "asked for 'exactly once', and is 'at least once': output lines: at least once" in text
    assert "exact" not in text.split("output lines")[1].partition("\n")[0].replace("exactly", "")
    assert not (tmp_path / "job" / "epochs").exists() and not lines(tmp_path)


def lossy(guarantee: str) -> hr.Job:
    job = hr.Job("lossy", guarantee=guarantee)
    job.read("socket:127.0.0.1:9", schema="n bigint", name="it").write("collect:")
    return job


def repeating(guarantee: str) -> hr.Job:
    job = hr.Job("repeating", guarantee=guarantee)
    job.read("mqtt:127.0.0.1:9/t", schema="n bigint", name="it").write("collect:")
    return job


@pytest.mark.parametrize(
    ("made", "guarantee", "refused"),
    [
        (lossy, "exactly_once", True), (lossy, "at_least_once", True),
        (lossy, "at_most_once", False), (repeating, "exactly_once", True),
        (repeating, "at_least_once", False), (repeating, "at_most_once", True),
    ],
)  # fmt: skip
def test_an_input_that_cannot_give_it(made: Any, guarantee: str, refused: bool) -> None:
    found = guarantee_of(made(guarantee).program())
    assert found.misses(guarantee.replace("_", " ")) == refused


@pytest.mark.parametrize(
    ("place", "options", "whole"),
    [
        ("webhook:http://127.0.0.1:9/x", {}, "at least once"),
        ("webhook:http://127.0.0.1:9/x", {"patience": "0s"}, "at most once"),
        ("mqtt:127.0.0.1:9/t", {}, "at least once"),
        ("kafka://127.0.0.1:9/t", {"guarantee": "at_least_once"}, "at least once"),
        ("kafka://127.0.0.1:9/t", {}, "exactly once"), ("console:", {}, "at most once"),
    ],
)  # fmt: skip
def test_an_output_that_repeats_what_was_not_answered(
    place: str, options: dict[str, Any], whole: str
) -> None:
    job = hr.Job("j", guarantee="at_most_once")
    job.read(hr.rows(ROWS)).write(place, name="it", **options)
    assert guarantee_of(job.program()).whole == whole


def test_without_patience_a_request_is_posted_once(tmp_path: Path) -> None:
    server = receiver()
    job = hr.Job("hook", guarantee="at_most_once")
    server.answers = [503, 503]
    hook = f"webhook:{server.url}/once-{tmp_path.name}"
    job.read(hr.rows(ROWS)).write(hook, name="it", patience="0s")
    with pytest.raises(hr.OutputError, match="HR-HTTP-006"):
        drive(job, tmp_path / "job")
    server.answers = []
    assert len([1 for path, _, _ in server.attempts if f"once-{tmp_path.name}" in path]) == 1


def test_the_whole_is_what_was_asked_for() -> None:
    asked = job(Path("nowhere"), "at_most_once")
    assert guarantee_of(asked.program()).whole == "at most once"
    assert guarantee_of(job(Path("nowhere"), None).program()).whole == "at least once"


def test_kafka_is_written_without_transactions_where_at_least_once_is_enough() -> None:
    def offered(asked: str | None, **options: Any) -> str:
        job = hr.Job("k", guarantee=asked)
        job.read(hr.rows(ROWS)).write("kafka://127.0.0.1:9/t", name="it", **options)
        offers = guarantee_of(job.program()).offers
        return next(o.guarantee for o in offers if o.name == "it")

    assert offered(None) == offered("exactly_once") == offered("at_most_once") == "exactly once"
    assert offered("at_least_once") == "at least once"
    assert offered("at_least_once", guarantee="exactly_once") == "exactly once"
    assert offered(None, guarantee="at least once") == "at least once"


def test_a_guarantee_that_is_none_is_a_problem_of_the_program() -> None:
    with pytest.raises(hr.PlanError, match="HR-PLAN-024 guarantee is 'twice'"):
        drive(job(Path("nowhere"), "twice"), "nowhere")


def test_a_topology_takes_it_as_well() -> None:
    assert hr.Topology("t", guarantee="at_most_once").draft.guarantee == "at most once"
