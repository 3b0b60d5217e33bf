"""What doctor advises is done, and gives what it promises."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.doctor.examine import examine_job, repair_job
from headrace.state import faults
from headrace.state.epochs import EpochLog
from headrace.state.loops import LoopFolder
from headrace.testing import Driver

ROWS = [{"k": f"k{i % 3}", "v": i} for i in range(24)]


def program(root: Path, rows=ROWS) -> hr.Job:
    job = hr.Job("shop", slots=2)
    orders = job.read(hr.rows(rows, "k string, v bigint"), name="orders")
    orders.write(f"files:{root}/paid", name="paid")
    totals = orders.key_by("k").agg(total=hr.sum("v"), unbounded=True, name="spent")
    totals.write("collect:", name="totals")
    orders.select("v").write("log:seen", log=f"{root}/log", name="seen")
    return job


@pytest.fixture
def ran(tmp_path):
    """A job of six epochs, of which two are to come."""
    driver = start(tmp_path)
    for _ in range(6):
        driver.epoch()
    driver.close()
    return tmp_path


def start(root: Path, **options) -> Driver:
    return Driver(
        program(root), root / "job", until=None, max_batch=3, first_batch=3, tasks=1, **options
    )


def finish(root: Path, **options) -> dict[str, list[int]]:
    driver = start(root, **options)
    driver.drain()
    driver.close()
    return rows(root)


def rows(root: Path) -> dict[str, list[int]]:
    log = hr.EmbeddedLog(f"{root}/log")
    seen = [v for _, t in log.read("seen", 0, 0) for v in t["v"].to_pylist()]
    totals = hr.collected(str(root / "job"), "totals")["total"].to_pylist()
    paid = hr.read_output(root / "paid")["v"].to_pylist()
    return {"paid": sorted(paid), "seen": sorted(seen), "totals": sorted(totals)}


def expected() -> dict[str, list[int]]:
    sums, totals = {}, []
    for first in range(0, 24, 3):
        for row in ROWS[first : first + 3]:
            sums[row["k"]] = sums.get(row["k"], 0) + row["v"]
            totals.append(sums[row["k"]])
    values = [row["v"] for row in ROWS]
    return {"paid": values, "seen": values, "totals": sorted(totals)}


def spoil(path: Path) -> None:
    """Flip a bit that counts."""
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def runs_of_alone(root: Path, epochs: set[int]) -> list[Path]:
    """The files of state that only these epochs name, by the texts of the manifests."""
    texts = {p: p.read_text() for p in (root / "job" / "epochs").iterdir()}
    return [
        run
        for run in (root / "job" / "runs").iterdir()
        if {int(p.stem) for p, text in texts.items() if run.name in text} == epochs
    ]


def advised(report, verb: str) -> list[str]:
    (line,) = [line for line in report.advice if f"headrace {verb}" in line]
    return shlex.split(line)


def test_a_job_that_is_whole_has_nothing_to_be_said(ran):
    report = examine_job(ran / "job")

    assert report.findings == () and report.advice == ()
    assert report.healthy and report.starts
    assert finish(ran) == expected()


def test_the_newest_whole_epoch_is_gone_back_to(ran):
    victim = runs_of_alone(ran, {6})[0]
    spoil(victim)

    report = examine_job(ran / "job")
    (found,) = report.damage
    assert found.path == victim and found.epochs == {6} and not report.starts
    assert re.search(r"rows of state: step 'spent' \(\w+\), slots 0 to 1; of epoch 6", found.means)
    words = advised(report, "rewind")
    assert words[words.index("--to-epoch") + 1] == "5"
    assert words[words.index("--keep") + 1] == "seen"
    assert any("input orders: 3 rows read again" in line for line in report.advice)
    with pytest.raises(hr.StateError, match=re.escape(str(victim))):
        finish(ran)

    hr.plan_rewind(program(ran), to_epoch=5, keep=["seen"], folder=str(ran / "job")).apply()
    done = finish(ran)
    whole = expected()
    assert (done["paid"], done["totals"]) == (whole["paid"], whole["totals"])
    assert done["seen"] == sorted([*whole["seen"], 15, 16, 17])  # as was said: twice


def test_a_savepoint_is_gone_back_to_where_no_epoch_is_whole(ran):
    hr.create_savepoint(str(ran / "job"), "good", epoch=3)
    log = EpochLog(ran / "job")
    log.prune(2)
    kept = {path.stem for path in (ran / "job" / "epochs").iterdir()}
    assert len(kept) == 2
    for run in (ran / "job" / "runs").iterdir():
        if run.name not in (ran / "job" / "savepoints" / "good.json").read_text():
            spoil(run)

    report = examine_job(ran / "job")
    assert advised(report, "rewind")[3:5] == ["--to-savepoint", "good"]
    hr.plan_rewind(
        program(ran), to_savepoint="good", keep=["seen"], folder=str(ran / "job")
    ).apply()
    assert finish(ran)["paid"] == expected()["paid"]


def test_without_any_whole_epoch_nothing_is_promised(ran):
    for run in (ran / "job" / "runs").iterdir():
        run.unlink()
    report = examine_job(ran / "job")
    assert "no epoch and no savepoint of the job is whole" in report.advice[0]
    assert not any(f.repair for f in report.damage)


@pytest.mark.parametrize("harm", ["spoilt", "deleted"])
def test_the_newest_manifest_is_lost(ran, harm):
    victim = ran / "job" / "epochs" / f"{6:012d}.json"
    spoil(victim) if harm == "spoilt" else victim.unlink()

    report = examine_job(ran / "job")
    assert victim in {f.path for f in report.damage} and not report.starts
    assert advised(report, "run")[3] == "--go-back"
    for line in report.advice:
        if " mv " in line:
            assert os.system(line) == 0  # as the user would type it
    assert repair_job(ran / "job").repaired == ()  # nothing here is provably right
    done = finish(ran, go_back=True)
    assert (done["paid"], done["totals"]) == (expected()["paid"], expected()["totals"])
    assert done["seen"] == sorted([*expected()["seen"], 15, 16, 17])


def test_an_older_manifest_is_set_aside(ran):
    victim = ran / "job" / "epochs" / f"{3:012d}.json"
    spoil(victim)
    assert examine_job(ran / "job").damage[0].path == victim
    with pytest.raises(hr.StateError, match="corrupt"):
        finish(ran)

    report = repair_job(ran / "job")
    assert report.healthy and report.repaired == (
        f"{victim}: set aside as 000000000003.json.damaged",
    )
    assert finish(ran) == expected()
    assert examine_job(ran / "job").healthy


def test_a_missing_manifest_in_between_is_said(ran):
    (ran / "job" / "epochs" / f"{3:012d}.json").unlink()
    (found,) = examine_job(ran / "job").damage
    assert found.wrong == "it is missing" and found.starts
    assert finish(ran) == expected()


def test_the_identity_is_made_again(ran):
    identity = ran / "job" / "outputs" / "identity"
    before = identity.read_bytes()
    identity.unlink()
    with pytest.raises(hr.StateError, match="identity' is missing"):
        finish(ran)

    assert repair_job(ran / "job").healthy
    assert identity.read_bytes() == before
    assert finish(ran) == expected()


def test_without_a_witness_the_identity_is_not_guessed(ran):
    finish(ran)
    (ran / "job" / "outputs" / "identity").unlink()
    for path in (ran / "job" / "epochs").iterdir():
        if int(path.stem) < 8:
            path.unlink()
    driver = ran / "job"
    report = examine_job(driver)
    known = [f for f in report.damage if f.path.name == "identity"]
    assert known[0].repair  # the last manifest still names it
    shutil.rmtree(ran / "job" / "epochs")
    (ran / "job" / "epochs").mkdir()
    assert not [f for f in examine_job(driver).findings if f.path.name == "identity"]


def test_files_that_nothing_names_are_removed(ran):
    spare = ran / "job" / "runs" / "left.run"
    spare.write_bytes(b"x" * 1_500)
    half = ran / "job" / "epochs" / ".new-123"
    half.write_bytes(b"{")

    report = examine_job(ran / "job")
    assert report.healthy and {f.path for f in report.notes} == {spare, half}
    assert "it takes 1.5 kB" in str(report)
    assert len(repair_job(ran / "job").repaired) == 2
    assert not spare.exists() and not half.exists()
    assert finish(ran) == expected()


def test_what_cannot_be_read_keeps_what_it_may_name(ran):
    spoil(ran / "job" / "epochs" / f"{6:012d}.json")
    spare = ran / "job" / "runs" / "left.run"
    spare.write_bytes(b"x")
    repair_job(ran / "job")
    assert spare.exists()


def test_what_another_version_has_written_is_left_alone(ran):
    path = ran / "job" / "epochs" / f"{3:012d}.json"
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":9', 1))
    (found,) = examine_job(ran / "job").damage
    assert "has format 9" in found.wrong and "the version of Headrace" in found.do
    assert repair_job(ran / "job").repaired == () and path.exists()


def test_a_folder_that_may_not_be_written(ran):
    if os.geteuid() != 0:
        (ran / "job" / "epochs").chmod(0o500)
        (found,) = examine_job(ran / "job").damage
        (ran / "job" / "epochs").chmod(0o700)
    else:
        for path in (ran, *ran.parents[:3]):
            path.chmod(path.stat().st_mode | 0o055)
        os.seteuid(65534)
        try:
            found = examine_job(ran / "job").damage[0]
        finally:
            os.seteuid(0)
    assert "may not read and write there" in found.wrong and not found.starts


def test_after_going_back_all_is_whole(ran):
    hr.plan_rewind(program(ran), to_epoch=4, keep=["seen"], folder=str(ran / "job")).apply()
    assert examine_job(ran / "job").findings == ()
    finish(ran)
    assert examine_job(ran / "job").findings == ()


@pytest.mark.parametrize("point", ["commit.manifest", "manifest.linked", "sink.publish"])
def test_going_back_that_was_cut_short_is_no_damage(ran, point):
    class Crash(BaseException):
        pass

    def crash(name: str) -> None:
        if name == point:
            raise Crash

    with suppress(Crash), faults.hooked(crash):
        hr.plan_rewind(program(ran), to_epoch=4, keep=["seen"], folder=str(ran / "job")).apply()

    assert examine_job(ran / "job").healthy
    assert repair_job(ran / "job").healthy
    done = finish(ran)
    assert done["paid"] == expected()["paid"]
    assert examine_job(ran / "job").findings == ()


def test_a_job_that_was_restored_is_whole(ran):
    hr.create_savepoint(str(ran / "job"), "good", epoch=3)
    other = hr.restore_savepoint(str(ran / "job"), "good", job="other", to=str(ran / "other"))
    assert examine_job(other).findings == ()
    assert examine_job(ran / "job").findings == ()

    spoil(ran / "job" / "savepoints" / "good.json")
    (found,) = examine_job(ran / "job").damage
    assert "savepoint 'good'" in found.means and "savepoint delete" in found.do and found.starts
    assert finish(ran) == expected()


def test_what_goes_round_is_read(ran):
    loop = LoopFolder(ran / "job", "again")
    loop.add(2, "1", pa.table({"v": [1, 2]}))
    loop.add(4, "1", pa.table({"v": [3]}))
    assert examine_job(ran / "job").findings == ()

    first, second = sorted(loop.path.iterdir())
    spoil(second)
    assert [f.path for f in examine_job(ran / "job").damage] == [second]
    first.unlink()
    assert "000000000002-" in str(examine_job(ran / "job").damage[0])
