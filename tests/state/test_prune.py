"""Clean-up: deletes what nobody names, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import StateError
from headrace.state import RUNS, STAGED, EpochLog, Manifest


class Job:
    """A job's folder whose files have the ages that a test says."""

    def __init__(self, folder: Path) -> None:
        self.log = EpochLog(folder)
        self.log.open("job", 4)
        self.token = self.log.take_fence()
        self.folder, self.now = folder, 0

    def write(self, name: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        self._stamp(path)
        return name

    def commit(self, epoch: int, names: list[str]) -> None:
        state = {"op": {"runs": [[n, 64, 10] for n in names]}}
        self.log.commit(Manifest(epoch, self.token, str(epoch), state=state))
        self._stamp(self.folder / "epochs" / f"{epoch:012d}.json")

    def _stamp(self, path: Path) -> None:
        self.now += 1
        os.utime(path, ns=(self.now, self.now))

    def files(self) -> set[str]:
        found = (p for room in (RUNS, STAGED) for p in (self.folder / room).rglob("*"))
        return {str(p.relative_to(self.folder)) for p in found if p.is_file()}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "job")


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), keep=st.integers(1, 4), most=st.integers(1, 6))
def test_what_a_kept_manifest_names_and_what_is_new_stays(data, keep, most, tmp_path_factory):
    job, named, epochs = Job(tmp_path_factory.mktemp("job")), {}, data.draw(st.integers(1, 8))
    for epoch in range(1, epochs + 1):
        fresh = [job.write(f"{RUNS}/{epoch}-{i}.run") for i in range(data.draw(st.integers(0, 3)))]
        known = sorted({*fresh, *named.get(epoch - 1, ())})
        named[epoch] = data.draw(st.lists(st.sampled_from(known), unique=True)) if known else []
        job.commit(epoch, [Path(n).name for n in named[epoch]])
        running = job.write(f"{STAGED}/out/{epoch}.parquet")
        removed = job.log.prune(keep, most)
        left = job.log.epochs()
        assert len(removed) <= most and left[-keep:] == list(range(1, epoch + 1))[-keep:]
        assert {n for e in left for n in named[e]} <= job.files()
        assert running in job.files()
    for _ in range(100):
        if not job.log.prune(keep, most):
            break
    kept = job.log.epochs()
    assert kept == list(range(1, epochs + 1))[-keep:]
    wanted = {n for e in kept for n in named[e]}
    young = {n for n in job.files() - wanted if int(Path(n).stem.split("-")[0]) >= kept[0]}
    assert job.files() == wanted | young


def test_a_file_is_named_by_its_path_or_by_its_name(job):
    first = job.write(f"{RUNS}/a.run")
    second = job.write(f"{STAGED}/out/b.parquet")
    gone = job.write(f"{STAGED}/out/c.parquet")
    job.commit(1, ["a.run", second])
    assert job.log.prune(1) == [gone]
    assert job.files() == {first, second}


def test_leftovers_of_a_crash_go_too(job):
    left = [job.write(name) for name in (".new-1", "epochs/.new-2", "fence/.new-3")]
    job.commit(1, [])
    young = job.write("epochs/.new-4")
    assert sorted(job.log.prune(1)) == sorted(left)
    assert (job.folder / young).exists()


def test_files_outside_the_rooms_of_the_state_are_left_alone(job):
    job.write("collect/out/1.arrow")
    job.commit(1, [])
    assert job.log.prune(1) == []


def test_without_a_manifest_nothing_is_deleted(job):
    job.write(f"{RUNS}/a.run")
    assert job.log.prune(1) == []


def test_a_corrupt_manifest_stops_the_clean_up(job):
    job.write(f"{RUNS}/a.run")
    job.commit(1, ["a.run"])
    path = job.folder / "epochs" / f"{1:012d}.json"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(StateError):
        job.log.prune(1)
    assert job.files() == {f"{RUNS}/a.run"}
