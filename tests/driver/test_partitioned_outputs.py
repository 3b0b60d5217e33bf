"""A job with a partitioned, rolling output: run, asked, planned again with other partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.driver.start import checked, review
from headrace.driver.start_checks import Consent
from headrace.errors import HeadraceError
from headrace.sinks import output_files
from headrace.testing import Driver

TAKING_OVER = Consent(take_over=True)


def job(root: Path, **options: object) -> hr.Job:
    made = hr.Job("divided")
    rows = made.read("log:in", log=str(root / "log"), schema="id bigint, area string", name="in")
    rows.write(f"files:{root}/out", name="out", **options)
    return made


def started(root: Path, **options: object) -> Driver:
    return Driver(job(root, **options), root / "job", until=None, max_batch=10, tasks=2)


def filled(root: Path) -> None:
    log = hr.EmbeddedLog(str(root / "log"))
    log.create("in", partitions=2)
    log.append("in", [b'{"id": %d, "area": "a/%d"}' % (i, i % 3) for i in range(40)])


def test_a_job_divides_its_rows_and_tells_how_far_it_has_come(tmp_path: Path) -> None:
    filled(tmp_path)
    started(tmp_path, partition_by="area", roll_every="1h").drain()

    found = hr.read_output(tmp_path / "out").to_pylist()

    assert sorted((r["id"], r["area"]) for r in found) == [(i, f"a/{i % 3}") for i in range(40)]
    paths = output_files(tmp_path / "out")
    assert {p.parent.name for p in paths} == {f"area=a%2F{i}" for i in range(3)}
    assert all("-until-" in p.name for p in paths)  # the clock of the epoch reaches the tasks
    shown = hr.outputs(tmp_path / "job")
    assert shown.common == shown.epoch and shown.outputs[0].name == "out"


@pytest.mark.parametrize("by", [None, ["area", "id"], "id"])
def test_a_start_with_other_partitions_is_refused_and_changes_nothing(
    tmp_path: Path, by: object
) -> None:
    filled(tmp_path)
    started(tmp_path, partition_by="area").drain()
    before = hr.read_output(tmp_path / "out")

    with pytest.raises(HeadraceError) as refused:
        started(tmp_path, partition_by=by)

    assert refused.value.code in ("HR-OUTPUT-073", "HR-OUTPUT-006")
    with pytest.raises(HeadraceError) as planned:  # as by `headrace plan`
        program = job(tmp_path, partition_by=by).program()
        checked(lambda: review(program, str(tmp_path / "job"), until=None), TAKING_OVER)
    assert planned.value.code == refused.value.code
    started(tmp_path, partition_by=["area"]).drain()
    assert hr.read_output(tmp_path / "out") == before
