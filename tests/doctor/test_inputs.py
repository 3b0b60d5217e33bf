"""What inputs have stored in the job's folder: which file is damaged, and what can be mended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headrace as hr
from headrace.doctor.examine import examine_job, repair_job
from headrace.testing import Driver


@pytest.fixture
def listed(tmp_path):
    """A job that has read two files; where their list is."""
    for number in range(2):
        rows = [{"v": 10 * number + i} for i in range(3)]
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.json").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    go(tmp_path)
    return tmp_path / "job" / "inputs" / "orders" / "files"


def go(root: Path) -> list[int]:
    job = hr.Job("files")
    orders = job.read(f"files:{root}/in", schema="v bigint", format="json", name="orders")
    orders.write("collect:", name="out")
    driver = Driver(job, root / "job", until=None)
    driver.drain()
    driver.close()
    return sorted(driver.output("out")["v"].to_pylist())


def test_a_line_that_was_not_finished_is_cut_off(listed, tmp_path):
    whole = listed.read_bytes()
    listed.write_bytes(whole + b'0123abcd ["in')

    report = examine_job(tmp_path / "job")
    assert report.healthy
    (note,) = report.notes
    assert note.path == listed and "13 bytes of a line" in note.wrong
    assert repair_job(tmp_path / "job").repaired == (f"{listed}: cut off",)
    assert listed.read_bytes() == whole
    assert go(tmp_path) == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize("harm", ["spoilt", "shorter", "missing"])
def test_a_list_that_is_damaged_is_named(listed, tmp_path, harm):
    lines = listed.read_bytes().splitlines(keepends=True)
    if harm == "missing":
        listed.unlink()
    else:
        listed.write_bytes(lines[0] if harm == "shorter" else b"f" + lines[0][1:] + lines[1])

    (found,) = examine_job(tmp_path / "job").damage
    assert found.path == listed and not found.starts and not found.repair
    assert "which files input 'orders' has read" in found.means
    with pytest.raises(hr.InputError):
        go(tmp_path)
