"""Doctor beside a job that runs: it changes nothing, and what only comes and goes is no damage."""

from __future__ import annotations

import shutil
from pathlib import Path
from zlib import crc32

import pytest

import headrace as hr
from headrace.doctor.examine import examine_job, repair_job
from headrace.sinks import merging
from headrace.state import faults
from tests.doctor.test_way_back import expected, finish, ran, rows, spoil, start

__all__ = ["ran"]


@pytest.fixture
def merges(monkeypatch):
    """So often that it happens here."""
    monkeypatch.setattr(merging, "EVERY", 3)
    monkeypatch.setattr(merging, "FEW", 2)


@pytest.mark.usefixtures("merges")
def test_at_every_step_of_a_job_that_runs_nothing_is_damaged(tmp_path):
    driver, found, seen = start(tmp_path), list[str](), list[str]()
    looking = False

    def look(name: str) -> None:
        nonlocal looking
        if looking or seen.count(name) > 2:  # each kind of step some times is enough
            return
        looking = True
        seen.append(name)
        report = examine_job(tmp_path / "job")
        if not report.healthy:
            found.append(f"{name}: {report}")
        looking = False

    with faults.hooked(look):
        driver.drain()
    driver.close()

    assert found == []
    assert {"commit.manifest", "sink.publish", "sink.merge.removed", "run.written"} <= {*seen}
    assert rows(tmp_path) == expected()


def test_a_job_that_runs_is_not_repaired(tmp_path):
    driver = start(tmp_path)
    driver.epoch()
    with pytest.raises(hr.StateError, match="is running") as refused:
        repair_job(tmp_path / "job")
    assert refused.value.code == "HR-DOCTOR-001"
    (fence,) = (tmp_path / "job" / "fence").iterdir()
    spoil(fence)
    with pytest.raises(hr.StateError, match="is running"):
        repair_job(tmp_path / "job")
    assert driver.epoch() is not None
    driver.close()
    assert repair_job(tmp_path / "job").healthy


def test_damage_is_found_while_the_job_runs(tmp_path):
    driver = start(tmp_path)
    driver.epoch()
    driver.epoch()
    victim = tmp_path / "job" / "epochs" / f"{1:012d}.json"
    spoil(victim)
    assert [f.path for f in examine_job(tmp_path / "job").damage] == [victim]
    driver.close()


# Copies.


def test_a_copy_of_a_job_that_was_stopped_is_whole(ran):
    copy = ran / "copy"
    shutil.copytree(ran / "job", copy)
    put_back(copy, ran / "job")

    assert examine_job(ran / "job").findings == ()
    assert finish(ran) == expected()


def test_an_older_copy_is_said_to_be_older(ran):
    copy = ran / "copy"
    shutil.copytree(ran / "job", copy)
    finish(ran)
    put_back(copy, ran / "job")

    report = examine_job(ran / "job")
    assert not report.starts
    assert "output 'seen' has rows of epoch 8" in str(report)
    assert "--go-back" in str(report)
    done = finish(ran, go_back=True)
    assert done["paid"] == expected()["paid"]
    assert len(done["seen"]) == 24 + 6  # a topic gets them twice


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_of_a_job_that_ran_is_judged(tmp_path, seed):
    """Files are copied in some order, with an epoch between each few of them."""
    driver = start(tmp_path)
    for _ in range(3):
        driver.epoch()
    copied_while(driver, tmp_path / "job", tmp_path / "copy", seed)
    driver.drain()
    driver.close()
    put_back(tmp_path / "copy", tmp_path / "job")

    report = examine_job(tmp_path / "job")
    try:
        done = finish(tmp_path, go_back=True)
    except hr.HeadraceError as error:
        assert any(str(f.path) in str(error) and not f.starts for f in report.damage), error
    else:
        assert done["paid"] == expected()["paid"]
        assert (done["seen"] == expected()["seen"]) == report.starts


def copied_while(driver, source: Path, target: Path, seed: int) -> None:
    paths = sorted(
        (p for p in source.rglob("*") if p.is_file()), key=lambda p: crc32(f"{seed} {p}".encode())
    )
    for number, path in enumerate(paths):
        if number % (len(paths) // 3) == 1:
            driver.epoch()
        if path.exists():
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def put_back(copy: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
