"""Forgetting a key whose dead letters were asked to be replayed, and of a job at most once."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.testing import Driver
from tests.driver.test_asked_guarantee import crash, lines, run

ROWS = [{"who": f"person-{i % 3}", "n": i} for i in range(9)]


def job(broken: bool) -> hr.Job:
    def half(row) -> float:
        return 1 / (0 if broken else 2)

    made = hr.Job("people")
    rows = made.read(hr.rows(ROWS, "who string, n int"), name="it")
    rows.key_by("who").agg(n=hr.count(), unbounded=True, name="counted").write("collect:", name="c")
    rows.map(half, name="half").write("collect:", name="halves")
    return made


def drained(folder: Path, broken: bool) -> Driver:
    driver = Driver(job(broken), folder)
    driver.drain()
    driver.close()
    return driver


def packed(folder: Path) -> str:
    """Everything that requests hold, by readers of their own."""
    found = ""
    for path in (folder / "resends").iterdir():
        content = json.loads(path.read_text().splitlines()[1])
        rows = pa.ipc.open_stream(base64.b64decode(content["letters"])).read_all()
        found += str(rows.to_pylist())
        for row in rows["row"].to_pylist():
            found += str(pa.ipc.open_stream(row).read_all().to_pylist()) if row else ""
    return found


@pytest.mark.parametrize("done", [False, True])
def test_letters_in_requests_are_erased_and_the_others_go_on(tmp_path, done):
    folder = tmp_path / "job"
    drained(folder, broken=True)
    assert hr.replay_dead(str(folder)).asked == len(ROWS)
    if done:
        assert drained(folder, broken=False).output("halves").num_rows == len(ROWS)
    assert "person-1" in packed(folder) and "person-2" in packed(folder)
    report = hr.forget(folder, {"who": "person-1"})
    assert any("requests to replay" in one.what and one.count == 3 for one in report.erased)
    assert report.remaining == []
    assert "person-1" not in packed(folder) and "person-2" in packed(folder)
    assert drained(folder, broken=False).output("halves").num_rows == (9 if done else 6)
    assert hr.replay_dead(str(folder), dry_run=True).asked == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_has_begun_to_be_delivered_at_most_once_is_not_delivered_by_it(tmp_path):
    crash(tmp_path, "at_most_once", "test.line", 9)
    found = lines(tmp_path)
    with pytest.raises(hr.StateError, match="HR-FORGET-002"):
        hr.forget(tmp_path / "job", "1")
    try:
        hr.forget(tmp_path / "job", {"n": 1})
    finally:
        assert lines(tmp_path) == found
    run(tmp_path, "at_most_once")
    assert max(lines(tmp_path).values()) == 1
