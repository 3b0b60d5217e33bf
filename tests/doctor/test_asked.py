"""Doctor and the files of what a job was asked for: deliveries at most once, replays."""

from __future__ import annotations

import shutil

import pytest

import headrace as hr
from headrace.doctor.examine import examine_job
from headrace.testing import Driver
from tests.doctor.test_way_back import spoil
from tests.driver.test_asked_guarantee import crash, lines, run

BAD = [{"k": i % 3} for i in range(9)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_has_begun_to_be_delivered(tmp_path):
    crash(tmp_path, "at_most_once", "test.line", 9)
    assert examine_job(tmp_path / "job").healthy
    (mark,) = (tmp_path / "job" / "begun").iterdir()
    spoil(mark)
    (found,) = examine_job(tmp_path / "job").damage
    assert found.path == mark and not found.starts and f"remove {str(mark.parent)!r}" in found.do
    with pytest.raises(hr.StateError, match="HR-STATE-004"):
        run(tmp_path, "at_most_once")
    shutil.rmtree(mark.parent)
    run(tmp_path, "at_most_once")
    assert max(lines(tmp_path).values()) == 1 and examine_job(tmp_path / "job").healthy


def half(row) -> float:
    return 1 / row.k


def job() -> hr.Job:
    made = hr.Job("halves")
    made.read(hr.rows(BAD, "k int"), name="it").map(half, name="half").write("collect:", name="o")
    return made


def drained(folder) -> None:
    driver = Driver(job(), folder)
    driver.drain()
    driver.close()


@pytest.mark.parametrize("done", [False, True])
def test_a_request_to_replay(tmp_path, done):
    folder = tmp_path / "job"
    drained(folder)
    asked = hr.replay_dead(str(folder))
    assert asked.asked == 3
    if done:
        drained(folder)
    assert examine_job(folder).healthy
    (request,) = (folder / "resends").iterdir()
    spoil(request)
    (found,) = examine_job(folder).damage
    assert found.path == request and found.starts == done


def test_a_request_that_was_done_and_is_gone(tmp_path):
    folder = tmp_path / "job"
    drained(folder)
    hr.replay_dead(str(folder))
    drained(folder)
    hr.create_savepoint(folder, "then")
    (request,) = (folder / "resends").iterdir()
    held = request.read_bytes()
    request.unlink()

    (found,) = examine_job(folder).damage
    assert found.path == request and found.starts
    with pytest.raises(hr.StateError, match="HR-STATE-003"):  # else its rows would come twice
        hr.replay_dead(str(folder))
    with pytest.raises(hr.StateError, match=r"000000000001\.json"):
        hr.restore_savepoint(folder, "then", job="other", to=tmp_path / "other")

    request.write_bytes(held)
    hr.restore_savepoint(folder, "then", job="other", to=tmp_path / "other")
    assert examine_job(tmp_path / "other").healthy
    with pytest.raises(hr.RunError, match="savepoint that was restored"):
        hr.replay_dead(str(tmp_path / "other"))
