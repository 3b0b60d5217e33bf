"""A start is a transaction: what is refused has not happened, and `plan` and `run` agree."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver.start import checked, review
from headrace.driver.start_checks import Consent, Inspection, refuse
from headrace.errors import HeadraceError
from headrace.plan.program import build
from headrace.state.faults import hooked
from headrace.testing import Driver


class Place:
    """A log with an input topic, a job's folder, and outputs of two kinds."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "job"
        self.log = hr.EmbeddedLog(str(root / "log"))
        self.log.create("in", schema="a bigint, at bigint")
        self.sent = 0

    def job(self, change: Callable[[hr.Stream], Any] = lambda s: None, **read: Any) -> hr.Job:
        job = hr.Job("places")
        options = {"log": str(self.root / "log"), "time": "at", "delay": "1s", "name": "in", **read}
        stream = job.read("log:in", **options)
        stream.write("log:out", log=str(self.root / "log"), name="topic")
        stream.write(f"files:{self.root}/files", name="files")
        sums = stream.key_by(k="1").agg(t=hr.sum("a"), unbounded=True, name="sum")
        sums.write("collect:", name="sums")
        change(stream)
        return job

    def send(self, rows: int = 10) -> None:
        rows_now = [{"a": i, "at": i} for i in range(self.sent, self.sent + rows)]
        self.log.append("in", rows_now)
        self.sent += rows

    def go(self, job: hr.Job | None = None, **options: Any) -> Driver:
        driver = Driver(job or self.job(), self.folder, **{"until": None, **options})
        driver.drain()
        driver.close()
        return driver

    def topic(self) -> Counter[int]:
        found = self.log.read("out", 0, 0)
        return Counter(v for _, rows in found for v in rows["a"].to_pylist())

    def files(self) -> Counter[int]:
        return Counter(hr.read_output(self.root / "files")["a"].to_pylist())

    def last_sum(self) -> int:
        return max(hr.collected(str(self.folder), "sums")["t"].to_pylist())

    def everything(self) -> dict[str, bytes | None]:
        """Every file's content and every folder, in all places."""
        found = sorted(self.root.rglob("*"))
        return {str(p): p.read_bytes() if p.is_file() else None for p in found}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path)


def epoch_files(place: Place) -> list[Path]:
    return sorted((place.folder / "epochs").glob("0*.json"))


def living(place: Place) -> dict[str, Any]:
    place.running = Driver(place.job(), place.folder, until=None)  # type: ignore[attr-defined]
    return {"take_over": False}


def counts(key: str) -> Callable[[hr.Stream], Any]:
    def change(stream: hr.Stream) -> None:
        found = stream.key_by(key).agg(n=hr.count(), unbounded=True, name="more")
        found.write("collect:", name="counts")

    return change


def other_key(place: Place) -> dict[str, Any]:
    place.send()
    place.go(place.job(counts("a")))
    return {"job": place.job(counts("at"))}


def gone_step(place: Place) -> dict[str, Any]:
    place.send()
    place.go(place.job(counts("a")))
    return {}


def ended(place: Place) -> dict[str, Any]:
    place.go(until="end")
    place.send()
    return {"job": place.job(lambda s: s.write("collect:", name="new"))}


def to_the_end(place: Place) -> dict[str, Any]:
    return {"until": "end", "for_good": False}


def new_output_beside_one_that_does_not_fit(place: Place) -> dict[str, Any]:
    place.log.create("narrow", schema="other string")

    def change(stream: hr.Stream) -> None:
        stream.write("log:fresh", log=str(place.root / "log"), name="fresh")
        stream.write(f"files:{place.root}/fresh", name="fresh files")
        stream.write("log:narrow", log=str(place.root / "log"), name="narrow")

    return {"job": place.job(change)}


def older_folder(place: Place) -> dict[str, Any]:
    shutil.copytree(place.folder, place.root / "backup")
    place.send()
    place.go()
    shutil.rmtree(place.folder)
    shutil.copytree(place.root / "backup", place.folder)
    return {}


def deleted_manifest(place: Place) -> dict[str, Any]:
    place.send()
    place.go()
    epoch_files(place)[-1].unlink()
    return {}


def all_manifests_deleted(place: Place) -> dict[str, Any]:
    for file in epoch_files(place):
        file.unlink()
    return {}


def deleted_files(place: Place) -> dict[str, Any]:
    shutil.rmtree(place.root / "files")
    return {}


def deleted_topic(place: Place) -> dict[str, Any]:
    place.log.delete("out")
    return {}


def deleted_identity(place: Place) -> dict[str, Any]:
    (place.folder / "outputs" / "identity").unlink()
    return {}


def silent(place: Place) -> dict[str, Any]:
    def change(stream: hr.Stream) -> None:
        found = stream.window(hr.everything()).agg(n=hr.count(), name="all")
        found.write("collect:", name="all rows")

    return {"job": place.job(change), "silent": False}


def other_topic_of_the_name(place: Place) -> dict[str, Any]:
    place.log.delete("in")
    place.log.create("in", schema="a bigint, at bigint")
    place.send(30)
    return {}


REFUSED = {
    "HR-STATE-021": (living,),
    "HR-EVOLVE-001": (other_key, other_topic_of_the_name),
    "HR-EVOLVE-002": (gone_step,),
    "HR-STATE-020": (ended,),
    "HR-STATE-024": (to_the_end,),
    "HR-OUTPUT-006": (new_output_beside_one_that_does_not_fit,),
    "HR-STATE-022": (older_folder, deleted_manifest, all_manifests_deleted),
    "HR-STATE-023": (deleted_files, deleted_topic),
    "HR-STATE-003": (deleted_identity,),
    "HR-TRIGGER-013": (silent,),
}


@pytest.mark.parametrize(
    ("code", "happen"), [(code, case) for code, cases in REFUSED.items() for case in cases]
)
def test_what_is_refused_has_not_happened_and_plan_says_the_same(
    place: Place, code: str, happen: Callable[[Place], dict[str, Any]]
) -> None:
    place.send()
    place.go()
    options = happen(place)
    job, until = options.pop("job", None) or place.job(), options.pop("until", None)
    before = place.everything()

    with pytest.raises(HeadraceError) as planned:
        found = review(build(job), str(place.folder), until=until)
        refuse(found, Consent(take_over=options.get("take_over", True), for_good=False))
    assert place.everything() == before
    with pytest.raises(HeadraceError) as started:
        Driver(job, place.folder, until=until, **options)
    assert place.everything() == before

    assert planned.value.code == started.value.code == code
    assert str(planned.value) == str(started.value)


def test_a_job_that_is_refused_at_its_first_start_leaves_no_folder(place: Place) -> None:
    options = new_output_beside_one_that_does_not_fit(place)
    before = place.everything()
    with pytest.raises(HeadraceError):
        Driver(options["job"], place.folder, until=None)
    assert place.everything() == before and not place.folder.exists()


def test_a_driver_that_was_killed_leaves_the_folder_free(place: Place) -> None:
    program = f"""
import os, signal
from tests.driver.test_start import Place
from headrace.testing import Driver
from pathlib import Path
class There(Place):
    def __init__(self, root):
        import headrace as hr
        self.root, self.folder, self.log = root, root / "job", hr.EmbeddedLog(str(root / "log"))
place = There(Path({str(place.root)!r}))
driver = Driver(place.job(), place.folder, until=None)
driver.drain()
print("running", flush=True)
signal.pause()
"""
    place.send()
    root = Path(__file__).parents[2]
    running = subprocess.Popen(
        [sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None and running.stdout.readline() == "running\n"
        with pytest.raises(HeadraceError, match=f"process {running.pid} on") as refused:
            place.go(take_over=False)
        assert refused.value.code == "HR-STATE-021"
        os.kill(running.pid, signal.SIGSTOP)  # it lives, though it does nothing
        with pytest.raises(HeadraceError):
            place.go(take_over=False)
    finally:
        running.kill()
        running.communicate()
    place.send()
    place.go(take_over=False)
    assert place.topic() == place.files() == Counter(range(20))


def test_a_driver_that_was_taken_over_can_do_no_more(place: Place) -> None:
    place.send()
    first = Driver(place.job(), place.folder, until=None)
    first.drain()
    place.send()
    place.go(take_over=True)
    place.send()
    with pytest.raises(hr.HeadraceError) as fenced:
        first.drain()
    assert "another driver has taken the folder" in str(fenced.value)
    place.go(take_over=False)
    assert place.topic() == place.files() == Counter(range(30))


@pytest.mark.parametrize("how", [older_folder, deleted_manifest])
def test_going_back_says_what_it_does_and_nothing_is_skipped(
    place: Place, how: Callable[[Place], Any]
) -> None:
    for _ in range(3):
        place.send()
        place.go()
    how(place)
    driver = place.go(go_back=True)
    assert any("'files'" in note for note in driver.start.notes)
    assert any("twice" in note and "'topic'" in note for note in driver.start.notes)
    place.send()
    place.go()
    assert place.files() == Counter(range(place.sent))
    assert place.topic() == Counter(range(place.sent)) + Counter(range(30, 40))
    assert place.last_sum() == sum(range(place.sent))
    assert driver.manifest is not None and len(driver.manifest.forks) == 1


def test_going_back_twice_and_under_a_crash_at_every_step(tmp_path: Path) -> None:
    steps = _steps_of_going_back(tmp_path / "count")
    assert len(steps) > 10
    for number in range(len(steps)):
        place = _about_to_go_back(tmp_path / f"step-{number}")
        seen = 0

        def crash(step: str, at: int = number) -> None:
            nonlocal seen
            seen += 1
            if seen == at + 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), hooked(crash):
            place.go(go_back=True)
        place.go(go_back=True)
        place.send()
        place.go()
        assert place.files() == Counter(range(place.sent)), steps[number]
        assert place.topic() - Counter(range(20, 30)) == Counter(range(place.sent)), steps[number]
        assert place.last_sum() == sum(range(place.sent)), steps[number]


def _about_to_go_back(root: Path) -> Place:
    root.mkdir()
    place = Place(root)
    for _ in range(2):
        place.send()
        place.go()
    older_folder(place)
    return place


def _steps_of_going_back(root: Path) -> list[str]:
    place, steps = _about_to_go_back(root), list[str]()
    with hooked(steps.append):
        place.go(go_back=True)
    return steps


def test_what_was_deleted_may_be_lost_with_consent(place: Place) -> None:
    place.send()
    place.go()
    deleted_files(place)
    deleted_topic(place)
    place.send()
    place.go(drop=["files", "topic"])
    place.send()
    place.go()
    assert place.topic() == place.files() == Counter(range(10, 30))
    assert place.last_sum() == sum(range(30))


def test_until_end_for_good(place: Place) -> None:
    place.send()
    place.go()
    place.go(until="end", for_good=True)
    place.send()
    with pytest.raises(HeadraceError, match="HR-STATE-020"):
        place.go()


def test_a_job_that_only_reads_what_has_an_end_may_run_to_it(tmp_path: Path) -> None:
    def job() -> hr.Job:
        made = hr.Job("bounded")
        rows = [{"a": i, "at": i} for i in range(30)]
        stream = made.read(hr.rows(rows, "a bigint, at bigint"), time="at", delay="1s", name="in")
        stream.write("collect:", name="out")
        return made

    first = Driver(job(), tmp_path / "job", until=None, max_batch=10)
    first.epoch()
    first.close()
    Driver(job(), tmp_path / "job", until="end", for_good=False).drain()
    assert sorted(hr.collected(str(tmp_path / "job"), "out")["a"].to_pylist()) == [*range(30)]


def test_a_folder_elsewhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HeadraceError, match="'s3://bucket/job' is not a path") as refused:
        review(Place(tmp_path).job().program(), "s3://bucket/job")
    assert refused.value.code == "HR-STATE-025"
    assert not (tmp_path / "s3:").exists()


def test_a_job_that_goes_on_while_it_is_looked_at_is_not_ahead_of_its_folder(place: Place) -> None:
    place.send()
    driver = Driver(place.job(), place.folder, until=None)
    driver.drain()
    looks, program = list[int](), build(place.job())

    def look_while_it_commits() -> Inspection:
        found = review(program, str(place.folder))
        looks.append(found.epoch)
        if len(looks) < 3:
            place.send()
            driver.drain()  # between the look at the manifests and that at the outputs
        return found

    found = checked(look_while_it_commits, Consent(take_over=True))
    assert (len(looks), found.epoch) == (3, driver.start.log.newest())
    driver.close()


def test_what_is_refused_of_a_folder_at_rest_is_looked_at_once(place: Place) -> None:
    place.send()
    place.go()
    older_folder(place)
    looks, program = list[int](), build(place.job())

    def look() -> Inspection:
        looks.append(1)
        return review(program, str(place.folder))

    with pytest.raises(HeadraceError) as found:
        checked(look, Consent())
    assert (found.value.code, len(looks)) == ("HR-STATE-022", 1)
