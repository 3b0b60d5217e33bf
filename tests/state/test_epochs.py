"""The log of epochs: against a model, with a crash at every durable step."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.clock import ManualClock
from headrace.errors import FencedError, HeadraceError, StateError
from headrace.state import EpochLog, Manifest, faults


class Crash(BaseException):
    """The process is gone; nothing after the crash point was done."""


@dataclass
class Driver:
    """Runs a job's epochs on a folder; `acked` is what it was told is safe."""

    folder: Path
    acked: list[int] = field(default_factory=list)

    def run(self, epochs: int) -> None:
        log = EpochLog(self.folder, ManualClock(7))
        assert log.open("job", 8) == 8
        token = log.take_fence()
        last = log.latest()
        first = last.epoch + 1 if last else 1
        for epoch in range(first, first + epochs):
            assert log.commit(Manifest(epoch, token, f"{token}/{epoch}", job="é" * epoch))
            self.acked.append(epoch)
            log.prune(2)


def points_passed(action: Callable[[], None]) -> list[str]:
    passed: list[str] = []
    with faults.hooked(passed.append):
        action()
    return passed


@contextmanager
def crash_at(nth: int) -> Iterator[None]:
    left = [nth]

    def hook(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash

    with faults.hooked(hook):
        try:
            yield
        except Crash:
            return
    raise AssertionError("no crash")


def check_after_crash(folder: Path, acked: list[int]) -> None:
    """What was acknowledged is there and whole, at most one more is; and life goes on."""
    log = EpochLog(folder)
    last = log.latest() if (folder / "epochs").exists() else None
    reached = last.epoch if last else 0
    assert max(acked, default=0) <= reached <= max(acked, default=0) + 1
    if last:
        assert (last.epoch, last.job) == (reached, "é" * reached)
    again = Driver(folder)
    again.run(3)
    assert again.acked == [reached + 1, reached + 2, reached + 3]
    assert log.epochs() == again.acked[-2:]
    assert not [p for p in folder.rglob(".new-*") if p.stat().st_mtime_ns == 0]


def age_leftovers(folder: Path) -> None:
    """As if the crash had been long ago: what it left may be cleared away."""
    for path in folder.rglob(".new-*"):
        os.utime(path, ns=(0, 0))


def test_a_crash_at_any_step_loses_nothing_and_breaks_nothing(tmp_path):
    steps = points_passed(lambda: Driver(tmp_path / "clean").run(4))
    assert {"job.durable", "fence.linked", "manifest.synced", "prune.manifest"} <= set(steps)
    for nth in range(len(steps)):
        driver = Driver(tmp_path / str(nth))
        with crash_at(nth):
            driver.run(4)
        check_after_crash(driver.folder, driver.acked)


@pytest.mark.chaos
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork with threads, from 3.12
def test_a_kill_at_any_step_loses_nothing_and_breaks_nothing(tmp_path):
    steps = points_passed(lambda: Driver(tmp_path / "clean").run(3))
    for name in sorted(set(steps)):
        for nth in {1, steps.count(name)}:
            folder = tmp_path / f"{name}-{nth}"
            killed_by, acked = run_in_child(folder, f"{name}:{nth}")
            assert killed_by == signal.SIGKILL, name
            age_leftovers(folder)
            check_after_crash(folder, acked)


def run_in_child(folder: Path, crash: str) -> tuple[int, list[int]]:
    """Run a driver in a child process that kills itself; the signal, and what was acked."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()  # a crash ends all processes of the session: have one of our own
        os.environ["HEADRACE_CRASH"] = crash
        driver = Driver(folder)
        driver.acked = Telling(writing)
        driver.run(3)
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as told:
        acked = [int(line) for line in told.read().split()]
    return os.WTERMSIG(os.waitpid(child, 0)[1]), acked


class Telling(list):
    """A list whose appends reach the parent process."""

    def __init__(self, pipe: int) -> None:
        super().__init__()
        self.pipe = pipe

    def append(self, epoch: int) -> None:
        os.write(self.pipe, f"{epoch}\n".encode())


def test_crash_points_do_nothing_by_themselves(monkeypatch):
    monkeypatch.setenv("HEADRACE_CRASH", "elsewhere:1")
    with warnings.catch_warnings():
        faults.point("here")


@pytest.fixture
def log(tmp_path: Path) -> EpochLog:
    log = EpochLog(tmp_path / "job", ManualClock(1))
    log.open("fire-alarm", 16)
    return log


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(["take", "commit", "commit", "again", "prune"])
        ),
        max_size=25,
    )
)
def test_several_drivers_on_one_folder_agree_with_a_model(steps, tmp_path_factory):
    """Only the driver that took the folder last commits; epochs are written once."""
    folder = tmp_path_factory.mktemp("job")
    logs = [EpochLog(folder) for _ in range(3)]
    for log in logs:
        log.open("job", 4)
    tokens, holder, epochs = [0, 0, 0], None, {}
    for i, (driver, what) in enumerate(steps):
        log, last = logs[driver], max(epochs, default=0)
        if what == "take":
            tokens[driver], holder = log.take_fence(), driver
        elif what == "prune":
            log.prune(3)
        elif driver != holder:
            with pytest.raises(FencedError):
                log.commit(Manifest(last + 1, tokens[driver], f"{i}"))
        elif what == "commit":
            assert log.commit(Manifest(last + 1, tokens[driver], f"{i}", clock=i)) is True
            epochs[last + 1] = i
        elif epochs:
            attempt = f"{epochs[last]}"
            assert log.commit(Manifest(last, tokens[driver], attempt, clock=-1)) is False
        latest = log.latest()
        assert (latest.clock if latest else None) == epochs.get(max(epochs, default=0))


def test_a_manifest_is_read_as_it_was_committed(log):
    token = log.take_fence()
    manifest = Manifest(1, token, "a", job="Brandmelder ü", rows={"log:temperature": 3})
    assert log.latest() is None and log.epochs() == []
    assert log.commit(manifest) is True
    assert log.commit(Manifest(1, token, "a", job="another")) is False
    assert log.latest() == log.read(1) == manifest


def test_an_epoch_of_another_attempt_is_not_ours(log):
    token = log.take_fence()
    log.commit(Manifest(1, token, "a"))
    with pytest.raises(FencedError) as caught:
        log.commit(Manifest(1, token, "b"))
    assert caught.value.code == "HR-STATE-007"


def test_an_epoch_behind_the_newest_is_refused(log):
    token = log.take_fence()
    for epoch in range(1, 6):
        log.commit(Manifest(epoch, token, str(epoch)))
    log.prune(1)
    with pytest.raises(FencedError):
        log.commit(Manifest(3, token, "3"))
    assert log.epochs() == [5]


def test_an_epoch_that_a_driver_has_cleared_away_is_no_damage(log):
    token = log.take_fence()
    for epoch in range(1, 6):
        log.commit(Manifest(epoch, token, str(epoch)))
    log.prune(2)
    with pytest.raises(FencedError):
        log.read(3)
    (log.folder / "epochs" / "000000000005.json").unlink()
    with pytest.raises(StateError) as caught:
        log.read(5)
    assert caught.value.code == "HR-STATE-003"


def test_the_newest_manifest_is_found_while_a_driver_clears_away(log, monkeypatch):
    token = log.take_fence()
    log.commit(Manifest(1, token, "1"))
    seen = log.epochs()

    def gone_on():
        monkeypatch.undo()
        log.commit(Manifest(2, token, "2"))
        log.prune(1)
        return seen

    monkeypatch.setattr(log, "epochs", gone_on)
    assert log.latest().epoch == 2


def test_the_newest_driver_wins(log):
    first, second = log.take_fence(), log.take_fence()
    log.check_fence(second)
    for refused in (lambda: log.check_fence(first), lambda: log.commit(Manifest(1, first, "a"))):
        with pytest.raises(FencedError) as caught:
            refused()
        assert str(log.folder) in caught.value.message
    assert log.commit(Manifest(1, second, "b"))


def test_a_driver_whose_folder_was_taken_while_it_wrote_does_not_publish(log):
    token = log.take_fence()
    other = EpochLog(log.folder)
    taken = []

    def take(name: str) -> None:
        if name == "manifest.synced" and not taken:
            taken.append(other.take_fence())

    with faults.hooked(take), pytest.raises(FencedError):
        log.commit(Manifest(1, token, "a", job="first"))
    assert other.latest().job == "first"  # whole, for the new driver to publish
    with pytest.raises(FencedError):
        other.commit(Manifest(1, taken[0], "b", job="second"))
    assert other.commit(Manifest(2, taken[0], "b", job="second"))


def test_a_driver_whose_folder_was_emptied_is_fenced(log):
    token = log.take_fence()
    for path in (log.folder / "fence").iterdir():
        path.unlink()
    with pytest.raises(FencedError):
        log.commit(Manifest(1, token, "a"))


def test_the_folder_of_another_job_is_refused(log):
    with pytest.raises(StateError) as caught:
        EpochLog(log.folder).open("averages", 16)
    assert caught.value.code == "HR-STATE-001"
    assert "'fire-alarm'" in caught.value.message and "'averages'" in caught.value.message


def test_the_slots_of_the_first_start_stay_in_force(log):
    assert EpochLog(log.folder).open("fire-alarm", 64) == 16


def test_a_folder_of_another_format_is_refused(log):
    path = log.folder / "job.json"
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":9'))
    with pytest.raises(StateError) as caught:
        log.open("fire-alarm", 16)
    assert caught.value.code == "HR-STATE-002"


def test_epochs_without_a_job_are_an_incomplete_folder(log):
    log.commit(Manifest(1, log.take_fence(), "a"))
    (log.folder / "job.json").unlink()
    with pytest.raises(StateError) as caught:
        log.open("fire-alarm", 16)
    assert caught.value.code == "HR-STATE-003"


def test_a_missing_epoch_is_named(log):
    with pytest.raises(StateError) as caught:
        log.read(4)
    assert caught.value.code == "HR-STATE-003" and "000000000004" in caught.value.message


def test_a_manifest_under_the_name_of_another_epoch_is_corrupt(log):
    log.commit(Manifest(1, log.take_fence(), "a"))
    path = log.folder / "epochs" / "000000000001.json"
    path.rename(path.with_name("000000000002.json"))
    with pytest.raises(StateError) as caught:
        log.latest()
    assert caught.value.code == "HR-STATE-004"


@pytest.mark.parametrize("name", ["job.json", "epochs/000000000001.json"])
def test_a_damaged_file_is_an_error_and_never_another_truth(log, name):
    log.commit(Manifest(1, log.take_fence(), "a", clock=12345, state={"op/t": ["a.run"]}))
    path = log.folder / name
    whole = path.read_bytes()
    flipped = [
        whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :]
        for at in range(len(whole)) for bit in (0, at % 7 + 1)
    ]  # fmt: skip
    for damaged in [*flipped, *(whole[:size] for size in range(len(whole))), whole + b"\n"]:
        path.write_bytes(damaged)
        with pytest.raises(StateError) as caught:
            log.open("fire-alarm", 16)
            log.latest()
        assert caught.value.code in ("HR-STATE-002", "HR-STATE-004")
        assert path.name in caught.value.message


def test_what_the_operating_system_refuses_is_a_named_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StateError) as caught:
        EpochLog(tmp_path / "file").open("job", 1)
    assert caught.value.code == "HR-STATE-006"
    log = EpochLog(tmp_path / "job")
    log.open("job", 1)
    token = log.take_fence()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError) as caught:
        log.commit(Manifest(1, token, "a"))
    assert caught.value.code == "HR-STATE-006" and "No space left" in caught.value.message
    assert log.latest() is None and not list(tmp_path.rglob(".new-*"))


def test_a_manifest_can_be_read_by_eye(log):
    log.commit(Manifest(1, log.take_fence(), "a", clock=1))
    _, line = (log.folder / "epochs" / "000000000001.json").read_text().splitlines()
    content = json.loads(line)
    assert content.pop("body")["clock"] == 1
    assert content == {"epoch": 1, "token": 1, "attempt": "a"}


def test_errors_survive_the_way_from_a_task_to_the_driver():
    import pickle

    error = FencedError("HR-STATE-007", "taken", "Stop.")
    again: HeadraceError = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.code == "HR-STATE-007"
