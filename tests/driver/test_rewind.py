"""Rewind: savepoint, a changed program, another parallelism and back, at every kind of output.

What an output holds in the end is compared with a few lines of Python: rows once where they are
taken back, twice where they stay and that was said.
"""

from __future__ import annotations

import io
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver.rewind import NOTHING, STAYS, TAKEN_BACK, RewindPlan, plan_rewind
from headrace.driver.savepoints import create_savepoint, restore_savepoint
from headrace.errors import HeadraceError
from headrace.state.epochs import EpochLog, PublishedMark
from headrace.state.faults import hooked
from headrace.testing import Driver
from tests.driver.rewind_kinds import KINDS, PRINTED, Kind, check_can_run


class Life:
    def __init__(self, root: Path, kind: Kind) -> None:
        self.root, self.kind, self.sent = root, kind, 0
        PRINTED.setdefault(root, io.StringIO())
        self.folder = root / "job"
        self.log = hr.EmbeddedLog(str(root / "log"))
        self.log.create("in", schema="k bigint, v bigint")

    def send(self, rows: int = 10) -> None:
        new = [{"k": i % 3, "v": i} for i in range(self.sent, self.sent + rows)]
        self.log.append("in", new)
        self.sent += rows

    def job(self, changed: bool = False, name: str = "life", write: bool = True) -> hr.Job:
        job = hr.Job(name)
        rows = job.read("log:in", log=str(self.root / "log"), name="in")
        if write:
            self.kind.write(rows.with_columns(v="v + 0") if changed else rows, self.root)
        sums = rows.key_by("k").agg(t=hr.sum("v"), unbounded=True, name="sum")
        sums.write("collect:", name="sums")
        if changed:
            counts = rows.key_by(odd="v % 2").agg(n=hr.count(), unbounded=True, name="count")
            counts.write("collect:", name="counts")
        return job

    def go(self, job: hr.Job | None = None, folder: Path | None = None, **options: Any) -> Driver:
        options = {"until": None, "max_batch": 5, **options}
        driver = Driver(job or self.job(), folder or self.folder, **options)
        driver.drain()
        driver.close()
        return driver

    def plan(self, job: hr.Job | None = None, **to: Any) -> RewindPlan:
        return plan_rewind(job or self.job(), folder=str(self.folder), **to)

    def read(self) -> Counter[int]:
        return self.kind.read(self.root)

    def sums(self, folder: Path | None = None) -> dict[int, int]:
        found = hr.collected(str(folder or self.folder), "sums")
        sums: dict[int, int] = {}
        for k, t in zip(found["k"].to_pylist(), found["t"].to_pylist(), strict=True):
            sums[k] = max(t, sums.get(k, t))
        return sums

    def check(self, *twice: range) -> None:
        """Every row once; those of `twice` once more; sums as if nothing had happened."""
        found = Counter(range(self.sent))
        for rows in twice:
            found += Counter(rows)
        assert self.read() == found
        expected = {k: sum(i for i in range(self.sent) if i % 3 == k) for k in range(3)}
        assert self.sums() == expected


def life_of(kind: str, root: Path) -> Life:
    check_can_run(kind)
    life = Life(root, KINDS[kind])
    life.send()
    life.go()
    return life


@pytest.fixture(params=sorted(KINDS))
def life(request: pytest.FixtureRequest, tmp_path: Path) -> Life:
    return life_of(request.param, tmp_path)


def refused(code: str, work: Any) -> HeadraceError:
    with pytest.raises(HeadraceError) as found:
        work()
    assert found.value.code == code, found.value
    return found.value


def test_savepoint_then_a_changed_program_with_other_tasks_then_back(life: Life) -> None:
    create_savepoint(life.folder, "before")
    life.send()
    life.go()
    life.send()
    life.go(life.job(changed=True), tasks=3)
    changed = life.job(changed=True)

    keep = ["out"] if life.kind.needs else []
    if life.kind.needs:
        refusing = life.plan(changed, to_savepoint="before")
        assert refusing.refused.startswith("HR-REWIND-006")
        refused("HR-REWIND-006", refusing.apply)
    plan = life.plan(changed, to_savepoint="before", keep=keep)
    assert not plan.refused and (plan.newest, plan.epoch) == (plan.newest, 2)
    assert [(i.rows, i.gone) for i in plan.inputs] == [(20, "")]
    (out,) = (o for o in plan.outputs if o.name == "out")
    assert (out.what, out.rows) == (life.kind.what, 20)
    plan.apply()

    assert life.read() == Counter(range(10 if life.kind.what == TAKEN_BACK else 30))
    life.go(changed, tasks=2)
    stays = [] if life.kind.what == TAKEN_BACK else [range(10, 30)]
    life.check(*stays)
    life.send()
    life.go(changed)
    life.check(*stays)


def test_back_and_back_again_behind_that(life: Life) -> None:
    keep = ["out"] if life.kind.needs else []
    for _ in range(2):
        life.send()
        life.go()  # two epochs each
    life.plan(to_epoch=4, keep=keep).apply()
    life.go()
    life.plan(to_epoch=2, keep=keep).apply()
    life.send()
    life.go()
    life.check(*([] if life.kind.what == TAKEN_BACK else [range(20, 30), range(10, 30)]))
    refused("HR-REWIND-005", lambda: life.plan(to_epoch=5))


@pytest.fixture
def files(tmp_path: Path) -> Life:
    return life_of("files", tmp_path)


def test_rows_that_could_be_taken_back_stay_if_that_is_said(files: Life) -> None:
    files.send()
    files.go()
    plan = files.plan(to_epoch=2, keep=["out"])
    assert {o.name: o.what for o in plan.outputs} == {
        "out": STAYS,
        "sums": TAKEN_BACK,
        "dead": NOTHING,
    }
    plan.apply()
    assert files.read() == Counter(range(20))
    files.send()
    files.go()
    files.check(range(10, 20))
    files.plan(to_epoch=1).apply()  # behind that: they are taken back with all others
    files.go()
    files.check()


def test_a_plan_changes_nothing(files: Life) -> None:
    files.send()
    files.go()
    before = {p: p.read_bytes() for p in files.root.rglob("*") if p.is_file()}
    text = str(files.plan(to_epoch=2))
    assert "10 rows are read again" in text and "10 rows are taken back" in text
    assert before == {p: p.read_bytes() for p in files.root.rglob("*") if p.is_file()}


def test_a_job_that_runs_does_not_go_back(files: Life) -> None:
    files.send()
    driver = Driver(files.job(), files.folder, until=None, max_batch=5)
    plan = files.plan(to_epoch=1)
    assert plan.refused.startswith("HR-STATE-021")
    refused("HR-STATE-021", plan.apply)
    driver.drain()
    driver.close()
    refused("HR-REWIND-009", plan.apply)
    files.check()


def test_what_is_refused_by_name(files: Life) -> None:
    refused("HR-REWIND-002", files.plan)
    refused("HR-REWIND-002", lambda: files.plan(to_epoch=1, to_time="21:00"))
    refused("HR-REWIND-003", lambda: files.plan(to_epoch=2))
    refused("HR-REWIND-004", lambda: files.plan(to_epoch=0))
    refused("HR-REWIND-004", lambda: files.plan(to_time="1999-01-01 00:00"))
    refused("HR-SAVEPOINT-002", lambda: files.plan(to_savepoint="none"))
    refused("HR-REWIND-008", lambda: files.plan(to_epoch=1, keep=["outt"]))
    new = hr.Job("new")
    new.read(hr.rows([{"n": 1}]), name="in").write("collect:", name="out")
    refused("HR-REWIND-001", lambda: plan_rewind(new, folder=str(files.root / "none")))


def test_to_a_time(files: Life) -> None:
    log = EpochLog(files.folder)
    first, second = log.read(1).wall, log.read(2).wall
    assert files.plan(to_time=first).epoch == 1 and first < second
    refused("HR-REWIND-003", lambda: files.plan(to_time=second))
    files.plan(to_epoch=1).apply()
    assert EpochLog(files.folder).latest().wall > second  # type: ignore[union-attr]
    assert files.plan(to_time=second).epoch == 1


def test_rows_that_a_topic_has_lost_are_named(files: Life) -> None:
    files.send()
    files.go()
    files.log.delete("in")
    files.log.create("in", schema="k bigint, v bigint")
    (input,) = files.plan(to_epoch=2).inputs
    assert input.gone and "cannot be read again" in str(files.plan(to_epoch=2))
    assert files.plan(to_epoch=2).refused


def test_a_crash_at_every_step_is_completed_by_the_next_start(tmp_path: Path) -> None:
    steps = list[str]()
    life = _before(tmp_path / "count")
    with hooked(steps.append):
        life.plan(to_epoch=2, keep=["topic"]).apply()
    assert len(steps) > 10
    for number, step in enumerate(steps):
        life = _before(tmp_path / f"step-{number}")
        seen = 0

        def crash(_: str, at: int = number) -> None:
            nonlocal seen
            seen += 1
            if seen == at + 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), hooked(crash):
            life.plan(to_epoch=2, keep=["topic"]).apply()
        if EpochLog(life.folder).newest() == 4:  # it had not happened yet
            life.plan(to_epoch=2, keep=["topic"]).apply()
        life.send()
        life.go(life.both())
        found = Counter(hr.read_output(life.root / "out")["v"].to_pylist())
        assert found == Counter(range(30)), step
        assert KINDS["log"].read(life.root) == Counter(range(30)) + Counter(range(10, 20)), step
        assert sum(life.sums().values()) == sum(range(30)), step


class Both(Life):
    def both(self) -> hr.Job:
        job = self.job()
        rows = job.read("log:in", log=str(self.root / "log"), name="again")
        rows.write("log:out", log=str(self.root / "log"), name="topic")
        return job

    def plan(self, job: hr.Job | None = None, **to: Any) -> RewindPlan:
        return super().plan(job or self.both(), **to)


def _before(root: Path) -> Both:
    root.mkdir()
    life = Both(root, KINDS["files"])
    for _ in range(2):
        life.send()
        life.go(life.both(), max_batch=10)
    return life


def test_a_damaged_mark_publishes_nothing_that_was_given_up(files: Life) -> None:
    files.send()
    files.go()
    files.plan(to_epoch=2).apply()
    (files.folder / "published").write_bytes(b"damaged")
    assert PublishedMark(files.folder).epoch() == 0
    files.send()
    files.go()
    files.check()


@pytest.mark.parametrize("running", [False, True])
def test_a_copied_folder_is_a_backup(files: Life, running: bool) -> None:
    """Of a job that runs the copy is good from a savepoint on: what that needs stays whole."""
    driver = Driver(files.job(), files.folder, until=None, max_batch=5)
    files.send()
    driver.epoch()
    create_savepoint(files.folder, "backup")
    if not running:
        driver.drain()
        driver.close()
    subprocess.run(["cp", "-a", str(files.folder), str(files.root / "copy")], check=True)
    if running:
        driver.drain()
        driver.close()
    files.send()
    files.go()
    shutil.rmtree(files.folder)  # it is lost, with epochs that the copy does not know
    shutil.copytree(files.root / "copy", files.folder)
    refused("HR-STATE-022", files.go)
    plan = files.plan(to_savepoint="backup")
    assert plan.epoch == 3 and "which the folder does not know" in str(plan)
    plan.apply()
    files.send()
    files.go()
    files.check()


def test_a_copy_elsewhere_begins_as_a_job_of_its_own(files: Life) -> None:
    create_savepoint(files.folder, "backup")
    subprocess.run(["cp", "-a", str(files.folder), str(files.root / "copy")], check=True)
    other = files.root / "other"
    restore_savepoint(files.root / "copy", "backup", job="other", to=other)
    files.send()
    files.go(files.job(name="other", write=False), other)
    files.go()
    files.check()
    assert files.sums(other) == files.sums()


UNPUBLISHED = [k for k in sorted(KINDS) if KINDS[k].what != STAYS or KINDS[k].needs]


@pytest.mark.parametrize("harmed", [False, True], ids=["whole", "lost"])
@pytest.mark.parametrize("kind", UNPUBLISHED)
def test_an_epoch_that_was_not_published_is_given_up(
    kind: str, harmed: bool, tmp_path: Path
) -> None:
    """Its rows come once: nobody publishes them before they are read again."""
    life = life_of(kind, tmp_path)
    life.send(5)
    with pytest.raises(KeyboardInterrupt), hooked(_killed_once_committed):
        life.go()
    assert EpochLog(life.folder).newest() == 3
    if harmed:
        for staged in _staged(life, 3):
            staged.unlink()
        with pytest.raises(HeadraceError) as caught:
            life.go()
        assert caught.value.code == "HR-OUTPUT-005" and "epoch 3" in caught.value.message
        assert "--to-epoch 2" in caught.value.hint
    plan = life.plan(to_epoch=2)
    assert not plan.refused
    plan.apply()
    life.go()
    life.check()


def _killed_once_committed(point: str) -> None:
    if point == "commit.manifest":
        raise KeyboardInterrupt


def _staged(life: Life, epoch: int) -> list[Path]:
    files = {r["file"] for r in EpochLog(life.folder).read(epoch).outputs["out"]}
    assert files
    return [p for p in life.root.parent.rglob("part-*") if p.name in files]
