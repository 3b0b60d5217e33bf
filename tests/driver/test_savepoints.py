"""Savepoints: what they pin is there as long as they are, and a job that begins with one goes on
as the job that it is of would have gone on; the plain-Python model says what that is."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver import savepoints as room
from headrace.driver.rewind import plan_rewind
from headrace.driver.savepoints import (
    create_savepoint,
    delete_savepoint,
    list_savepoints,
    restore_savepoint,
    show_savepoint,
)
from headrace.errors import HeadraceError
from headrace.state.epochs import EpochLog
from headrace.state.faults import hooked
from headrace.state.savepoints import SavepointFolder, creating
from headrace.testing import Driver


class Shop:
    """Sales by key, added up; a topic in, files out."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "job"
        self.log, self.sent = hr.EmbeddedLog(str(root / "log")), 0
        self.log.create("in", schema="k bigint, v bigint")

    def send(self, rows: int = 10) -> None:
        new = [{"k": i % 3, "v": i} for i in range(self.sent, self.sent + rows)]
        self.log.append("in", new)
        self.sent += rows

    def job(self, name: str = "shop", out: str = "out", changed: bool = False) -> hr.Job:
        job = hr.Job(name)
        rows = job.read("log:in", log=str(self.root / "log"), name="in")
        rows.write(f"files:{self.root}/{out}", name="rows")
        totals = rows.key_by("k").agg(t=hr.sum("v"), unbounded=True, name="sum")
        if changed:
            rows = rows.where("v >= 0")
            counts = rows.key_by(odd="v % 2").agg(n=hr.count(), unbounded=True, name="count")
            counts.write("collect:", name="counts")
        totals.write("collect:", name="totals")
        return job

    def go(self, job: hr.Job | None = None, folder: Path | None = None, **options: Any) -> None:
        options = {"until": None, "max_batch": 5, **options}
        driver = Driver(job or self.job(), folder or self.folder, **options)
        driver.drain()
        driver.close()

    def rows(self, out: str = "out") -> Counter[int]:
        return Counter(hr.read_output(self.root / out)["v"].to_pylist())

    def totals(self, folder: Path | None = None) -> dict[int, int]:
        """The last total of each key: they only grow."""
        place = str(folder or self.folder)
        found = hr.collected(place, "totals")
        totals: dict[int, int] = {}
        for k, t in zip(found["k"].to_pylist(), found["t"].to_pylist(), strict=True):
            totals[k] = max(t, totals.get(k, t))
        return totals

    def model(self) -> dict[int, int]:
        totals: dict[int, int] = {}
        for i in range(self.sent):
            totals[i % 3] = totals.get(i % 3, 0) + i
        return totals


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("HEADRACE_KEEP_EPOCHS", "2")
    monkeypatch.setenv("HEADRACE_JOBS", str(tmp_path / "jobs"))
    made = Shop(tmp_path)
    made.send()
    made.go()
    return made


def refused(code: str, work: Any) -> HeadraceError:
    with pytest.raises(HeadraceError) as found:
        work()
    assert found.value.code == code, found.value
    return found.value


def runs(folder: Path) -> set[str]:
    return {path.name for path in (folder / "runs").iterdir()}


def test_what_a_savepoint_needs_stays_until_it_is_deleted(shop: Shop) -> None:
    facts = create_savepoint(shop.folder, "early")
    needed = {*room.files_of(facts.savepoint.manifest)}
    assert needed and facts.savepoint.manifest.epoch == 2
    for _ in range(15):
        shop.send()
        shop.go()
    assert 2 not in EpochLog(shop.folder).epochs()
    assert needed <= runs(shop.folder)
    room.check_files(shop.folder, facts.savepoint.manifest, whole=True)
    delete_savepoint(shop.folder, "early")
    shop.send()
    shop.go()
    assert not needed & runs(shop.folder)
    assert shop.totals() == shop.model() and shop.rows() == Counter(range(shop.sent))


def test_a_job_begins_with_a_savepoint_under_another_name_program_and_parallelism(
    shop: Shop,
) -> None:
    create_savepoint(shop.folder, "early")
    shop.send()
    shop.go()
    before = {p: p.read_bytes() for p in shop.folder.rglob("*") if p.is_file()}
    folder = Path(restore_savepoint(shop.folder, "early", job="other"))
    assert folder == shop.root / "jobs" / "other"
    shop.go(shop.job("other", "out2", changed=True), folder, tasks=3)
    assert shop.totals(folder) == shop.model()
    assert shop.rows("out2") == Counter(range(10, 20))
    assert before == {p: p.read_bytes() for p in shop.folder.rglob("*") if p.is_file()}
    shop.send()
    shop.go()
    shop.go(shop.job("other", "out2", changed=True), folder, tasks=2)
    assert shop.totals(folder) == shop.totals() == shop.model()


def test_a_restored_job_does_not_write_where_the_other_does(shop: Shop) -> None:
    create_savepoint(shop.folder, "early")
    folder = Path(restore_savepoint(shop.folder, "early", job="other"))
    refused("HR-OUTPUT-004", lambda: shop.go(shop.job("other"), folder))
    refused("HR-STATE-001", lambda: shop.go(shop.job("shop", "out2"), folder))


def test_a_savepoint_outlives_the_folder_that_it_was_restored_from(shop: Shop) -> None:
    create_savepoint(shop.folder, "early")
    folder = Path(restore_savepoint(shop.folder, "early", job="other"))
    shutil.rmtree(shop.folder)
    shop.send()
    shop.go(shop.job("other", "out2"), folder)
    assert shop.totals(folder) == shop.model()


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../up", "a" * 81, "é", "x y"])
def test_names_that_could_leave_the_folder_are_refused(shop: Shop, name: str) -> None:
    refused("HR-SAVEPOINT-001", lambda: create_savepoint(shop.folder, name))
    refused("HR-SAVEPOINT-002", lambda: show_savepoint(shop.folder, name))
    refused("HR-SAVEPOINT-002", lambda: delete_savepoint(shop.folder, name))


def test_what_is_refused_by_name(shop: Shop) -> None:
    create_savepoint(shop.folder, "early")
    refused("HR-SAVEPOINT-003", lambda: create_savepoint(shop.folder, "early"))
    refused("HR-SAVEPOINT-004", lambda: create_savepoint(shop.folder, "late", 99))
    refused("HR-SAVEPOINT-002", lambda: show_savepoint(shop.folder, "earl"))
    refused("HR-SAVEPOINT-005", lambda: restore_savepoint(shop.folder, "early", to=shop.folder))
    (shop.root / "full").mkdir()
    (shop.root / "full" / "file").touch()
    there = shop.root / "full"
    refused("HR-SAVEPOINT-005", lambda: restore_savepoint(shop.folder, "early", to=there))
    empty = shop.root / "empty"
    EpochLog(empty).open("empty", 8)
    refused("HR-SAVEPOINT-004", lambda: create_savepoint(empty, "none"))


def test_a_damaged_savepoint_pins_everything_and_is_named(shop: Shop) -> None:
    create_savepoint(shop.folder, "early")
    path = shop.folder / "savepoints" / "early.json"
    whole, before = path.read_bytes(), runs(shop.folder)
    for damage in (b"", whole[:-20], whole.replace(b'"epoch":2', b'"epoch":1'), b"{}\n{}\n"):
        path.write_bytes(damage)
        refused("HR-STATE-004", lambda: show_savepoint(shop.folder, "early"))
        refused("HR-STATE-004", lambda: restore_savepoint(shop.folder, "early", job="other"))
        ((name, error),) = list_savepoints(shop.folder)
        assert name == "early" and error.code == "HR-STATE-004"
        for _ in range(4):
            shop.send()
            shop.go()
        assert before <= runs(shop.folder)
    delete_savepoint(shop.folder, "early")
    shop.send()
    shop.go()
    assert not before & runs(shop.folder) and shop.totals() == shop.model()


def test_a_file_of_state_that_is_gone_or_damaged_is_named(shop: Shop) -> None:
    facts = create_savepoint(shop.folder, "early")
    path = shop.folder / "runs" / next(iter(room.files_of(facts.savepoint.manifest)))
    whole = path.read_bytes()
    for content, code in ((whole[:70], "HR-STATE-004"), (None, "HR-STATE-003")):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        refused(code, lambda: create_savepoint(shop.folder, "second"))
        refused(code, lambda: restore_savepoint(shop.folder, "early", job="other"))
        assert not (shop.root / "jobs").exists() or not [*(shop.root / "jobs").iterdir()]
        path.touch()


def test_while_one_is_created_nothing_is_removed(shop: Shop) -> None:
    shop.send()
    driver = Driver(shop.job(), shop.folder, until=None, max_batch=1)
    with creating(shop.folder):
        before, epochs = runs(shop.folder), EpochLog(shop.folder).epochs()
        for _ in range(25):
            shop.send(1)
            driver.epoch()
        assert before <= runs(shop.folder) and {*epochs} <= {*EpochLog(shop.folder).epochs()}
    driver.drain()
    driver.close()
    shop.go()
    assert len(EpochLog(shop.folder).epochs()) == 2


def test_savepoints_of_a_job_that_runs(shop: Shop) -> None:
    """Each is of a whole epoch, whatever the job removes meanwhile."""
    done = threading.Event()
    failed = list[BaseException]()

    def create() -> None:
        try:
            for number in range(40):
                create_savepoint(shop.folder, f"s{number}")
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=create)
    driver = Driver(shop.job(), shop.folder, until=None, max_batch=2)
    thread.start()
    while not done.is_set():
        shop.send(4)
        driver.drain()
    driver.close()
    thread.join()
    assert not failed
    shop.send(6)
    for number in (0, 13, 39):
        folder = Path(restore_savepoint(shop.folder, f"s{number}", job=f"j{number}"))
        shop.go(shop.job(f"j{number}", f"out{number}"), folder)
        assert shop.totals(folder) == shop.model()


def test_creating_is_whole_or_has_not_happened_at_every_step(shop: Shop) -> None:
    steps = list[str]()
    with hooked(steps.append):
        create_savepoint(shop.folder, "all")
    assert len(steps) > 5
    for number in range(len(steps)):
        _crashed(number, lambda n=number: create_savepoint(shop.folder, f"s{n}"))
        for name in SavepointFolder(shop.folder).names():
            room.check_files(shop.folder, show_savepoint(shop.folder, name).savepoint.manifest)
        if f"s{number}" not in SavepointFolder(shop.folder).names():
            create_savepoint(shop.folder, f"s{number}")


def test_restoring_is_whole_or_has_not_happened_at_every_step(shop: Shop) -> None:
    create_savepoint(shop.folder, "early")
    shop.send()
    steps = list[str]()
    with hooked(steps.append):
        restore_savepoint(shop.folder, "early", job="all")
    assert "restore.run" in steps and steps[-1] == "restore.named"
    for number, step in enumerate(steps):
        job = f"j{number}"
        _crashed(number, lambda job=job: restore_savepoint(shop.folder, "early", job=job))
        folder = shop.root / "jobs" / job
        assert folder.exists() == (step == "restore.named"), step
        assert not [*folder.parent.glob(".*")]
        if not folder.exists():
            restore_savepoint(shop.folder, "early", job=job)
        shop.go(shop.job(job, f"out-{job}"), folder)
        assert shop.totals(folder) == shop.model()


def _crashed(at: int, work: Any) -> None:
    seen = 0

    def crash(step: str) -> None:
        nonlocal seen
        seen += 1
        if seen == at + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), hooked(crash):
        work()


def test_an_epoch_of_before_the_savepoint_is_where_a_rewind_goes(shop: Shop) -> None:
    create_savepoint(shop.folder, "early")
    for _ in range(3):
        shop.send()
        shop.go()
    plan = plan_rewind(shop.job(), to_savepoint="early", folder=str(shop.folder))
    assert [(i.name, i.rows, i.gone) for i in plan.inputs] == [("in", 30, "")] and not plan.refused
    plan.apply()
    assert shop.rows() == Counter(range(10)) and shop.totals()[0] == 0 + 3 + 6 + 9
    shop.go(shop.job(changed=True), tasks=3)
    assert shop.rows() == Counter(range(40)) and shop.totals() == shop.model()
