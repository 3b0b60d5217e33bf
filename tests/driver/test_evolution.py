"""The same folder under a changed program: what is kept, new, renamed, dropped or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

ROWS = [{"k": f"k{i % 3}", "v": i, "at": i * 500} for i in range(60)]


def totals(stream: hr.Stream, **naming: Any) -> hr.Stream:
    keyed = stream.key_by("k")
    return keyed.agg(total=hr.sum("v"), unbounded=True, **{"name": "totals", **naming})


def job(build: Callable[[hr.Stream], Any], read: str = "rows", **reading: Any) -> hr.Job:
    made = hr.Job("evolving")
    build(made.read(hr.rows(ROWS, "k string, v bigint, at bigint"), time="at", delay="1s",
                    name=read, **reading))  # fmt: skip
    return made


def first(stream: hr.Stream) -> None:
    totals(stream).write("collect:", name="out")


def begin(place: Path, epochs: int = 3) -> None:
    driver = Driver(job(first), place, max_batch=10)
    for _ in range(epochs):
        driver.epoch()


def finish(place: Path, changed: hr.Job, **options: Any) -> Driver:
    driver = Driver(changed, place, max_batch=10, **options)
    driver.drain()
    return driver


def sums(driver: Driver, name: str = "out") -> list[int]:
    return sorted(r["total"] for r in driver.output(name).to_pylist())


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    return sums(finish(tmp_path_factory.mktemp("whole"), job(first)))


def test_an_unchanged_program_goes_on(tmp_path: Path, wanted: list[int]) -> None:
    begin(tmp_path)
    assert sums(finish(tmp_path, job(first))) == wanted


def test_a_new_operator_and_a_new_output_start_empty_and_keep_the_rest(
    tmp_path: Path, wanted: list[int]
) -> None:
    def more(stream: hr.Stream) -> None:
        first(stream)
        counts = stream.key_by("k").window(hr.tumbling("5s")).agg(n=hr.count(), name="counts")
        counts.write("collect:", name="counted")

    begin(tmp_path)
    driver = finish(tmp_path, job(more))
    assert sums(driver) == wanted
    assert sum(r["n"] for r in driver.output("counted").to_pylist()) == 30


def test_more_levels_above_and_below_keep_state_by_name(tmp_path: Path, wanted: list[int]) -> None:
    def deeper(stream: hr.Stream) -> None:
        out = totals(stream)
        out.write("collect:", name="out")
        again = out.key_by("k").agg(n=hr.count(), unbounded=True, name="again")
        again.write("collect:", name="deep")

    begin(tmp_path)
    driver = finish(tmp_path, job(deeper), tasks=3)
    assert sums(driver) == wanted
    assert driver.program.depth == 2
    driver = None
    begin_again = tmp_path / "other"
    d = Driver(job(deeper), begin_again, max_batch=10)
    for _ in range(3):
        d.epoch()
    shallow = finish(begin_again, job(first), drop=("again",), tasks=1)
    assert sums(shallow) == wanted and shallow.program.depth == 1


def test_a_renamed_operator_input_and_output_keep_state_and_position(
    tmp_path: Path, wanted: list[int]
) -> None:
    def renamed(stream: hr.Stream) -> None:
        totals(stream, name="sums", was="totals").write("collect:", name="results", was="out")

    begin(tmp_path)
    driver = finish(tmp_path, job(renamed, read="readings", was="rows"))
    assert sums(driver, "results") == wanted  # it holds what was written under its old name
    assert driver.manifest is not None
    assert driver.manifest.counts["readings"]["read"] == len(ROWS)


def test_dropping_state_needs_consent(tmp_path: Path) -> None:
    def without(stream: hr.Stream) -> None:
        stream.select("k").write("collect:", name="out2")

    begin(tmp_path)
    with pytest.raises(hr.StateError) as caught:
        finish(tmp_path, job(without))
    assert caught.value.code == "HR-EVOLVE-002" and "'totals'" in str(caught.value)
    assert finish(tmp_path, job(without), drop=("totals",)).manifest is not None


def test_a_start_that_drops_and_crashes_can_be_made_again(tmp_path: Path) -> None:
    def without(stream: hr.Stream) -> None:
        stream.select("k").write("collect:", name="out2")

    begin(tmp_path)
    Driver(job(without), tmp_path, drop="totals")  # has recorded the change, and is gone
    finish(tmp_path, job(without), drop="totals")
    with pytest.raises(hr.StateError, match="HR-EVOLVE-004"):
        Driver(job(without), tmp_path, drop="totals")


def test_it_can_be_made_again_however_often_until_an_epoch_reads(tmp_path: Path) -> None:
    """Each start commits that the new step is new; none but the first has something to drop."""

    def another(stream: hr.Stream) -> None:
        totals(stream, name="others").write("collect:", name="out2")

    begin(tmp_path)
    for _ in range(4):
        Driver(job(another), tmp_path, drop="totals").close()
    with pytest.raises(hr.StateError, match="HR-EVOLVE-004"):
        Driver(job(another), tmp_path, drop=("totals", "others"))
    finish(tmp_path, job(another), drop="totals")
    with pytest.raises(hr.StateError, match="HR-EVOLVE-004"):
        Driver(job(another), tmp_path, drop="totals")


def test_a_changed_key_is_refused_before_a_row_is_read(tmp_path: Path) -> None:
    def changed(stream: hr.Stream) -> None:
        other = stream.key_by("v").agg(total=hr.sum("v"), unbounded=True, name="totals")
        other.write("collect:", name="out")

    begin(tmp_path)
    epochs = sorted((tmp_path / "epochs").iterdir())
    with pytest.raises(hr.StateError) as caught:
        finish(tmp_path, job(changed))
    assert caught.value.code == "HR-EVOLVE-001" and "key" in str(caught.value)
    assert sorted((tmp_path / "epochs").iterdir()) == epochs


def test_another_job_on_the_folder_is_refused(tmp_path: Path) -> None:
    begin(tmp_path)
    other = hr.Job("other")
    other.read(hr.rows(ROWS, "k string, v bigint, at bigint")).write("collect:", name="o")
    with pytest.raises(hr.StateError) as caught:
        Driver(other, tmp_path)
    assert caught.value.code == "HR-STATE-001"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hr.EmbeddedLog:
    monkeypatch.setenv("HEADRACE_LOG", str(tmp_path / "log"))
    made = hr.EmbeddedLog()
    for topic in ("x", "y"):
        made.create(topic, schema="k string, v bigint")
        made.append(topic, [{"k": topic, "v": 1}] * 3)
    return made


def two_inputs(second: str | None, **named: Any) -> hr.Job:
    made = hr.Job("two")
    made.read("log:x", name="first").write("collect:", name="kept")
    if second:
        made.read(second, **named).write("collect:", name="out")
    return made


def run(changed: hr.Job, place: Path, **options: Any) -> Driver:
    driver = Driver(changed, place, until=None, **options)
    driver.drain()
    return driver


def refused(changed: hr.Job, place: Path, **options: Any) -> str:
    with pytest.raises(hr.StateError) as caught:
        run(changed, place, **options)
    return str(caught.value.code)


def test_an_input_is_forgotten_with_consent_and_then_read_from_its_beginning(
    tmp_path: Path, log: hr.EmbeddedLog
) -> None:
    place = tmp_path / "job"
    run(two_inputs("log:y", name="in"), place)
    assert refused(two_inputs(None), place) == "HR-EVOLVE-002"
    run(two_inputs(None), place, drop="in")
    driver = run(two_inputs("log:y", name="in"), place)  # put back: it is new
    assert driver.output("out").num_rows == 6


def test_an_input_under_another_name_is_read_again_only_with_consent(
    tmp_path: Path, log: hr.EmbeddedLog
) -> None:
    place = tmp_path / "job"
    run(two_inputs("log:y", name="in"), place)
    assert refused(two_inputs("log:y", name="again"), place) == "HR-EVOLVE-002"
    assert refused(two_inputs("log:y", name="again", was="inn"), place) == "HR-EVOLVE-003"
    renamed = run(two_inputs("log:y", name="again", was="in"), place)
    assert renamed.output("out").num_rows == 3


def test_a_name_once_used_by_another_input_starts_afresh(
    tmp_path: Path, log: hr.EmbeddedLog
) -> None:
    place = tmp_path / "job"
    run(two_inputs("log:y", name="in"), place)
    assert refused(two_inputs("log:x", name="in"), place) == "HR-EVOLVE-001"
    run(two_inputs(None), place, drop="in")
    driver = run(two_inputs("log:x", name="in"), place)
    assert [r["k"] for r in driver.output("out").to_pylist()] == ["y"] * 3 + ["x"] * 3


def test_an_unnamed_step_before_another_does_not_take_its_state(
    tmp_path: Path, log: hr.EmbeddedLog
) -> None:
    def counts(*keys: str) -> hr.Job:
        made = hr.Job("counts")
        stream = made.read("log:x", name="in")
        for key in keys:
            counted = stream.where(f"k = '{key}'").key_by("k").agg(n=hr.count(), unbounded=True)
            counted.write("collect:", name=f"of {key}")
        return made

    place = tmp_path / "job"
    run(counts("x"), place)
    assert refused(counts("y", "x"), place) == "HR-EVOLVE-005"
    log.append("x", [{"k": "x", "v": 1}])
    driver = run(counts("x", "y"), place)
    assert [r["n"] for r in driver.output("of x").to_pylist()] == [1, 2, 3, 4]
