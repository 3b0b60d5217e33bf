"""Folders and outputs restored from copies, in any order: no row is twice at a files output, and
none is missing, or the start is refused by name."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.driver.start import review
from headrace.driver.start_checks import Consent, refuse
from headrace.errors import HeadraceError
from headrace.plan.program import build
from headrace.state.faults import hooked
from headrace.testing import Driver

AHEAD, SHORT, OTHER = "HR-STATE-022", "HR-STATE-023", "HR-OUTPUT-013"


class Life:
    """A job with a files output, a second one that the program may lack, a topic and a collect."""

    def __init__(self, root: Path) -> None:
        self.root, self.sent = root, 0
        self.log = hr.EmbeddedLog(str(root / "log"))
        self.log.create("in", schema="id bigint")

    def send(self, rows: int = 10) -> None:
        self.log.append("in", [{"id": i} for i in range(self.sent, self.sent + rows)])
        self.sent += rows

    def job(self, second: str | None = "second", first: str = "first") -> hr.Job:
        job = hr.Job("lives")
        rows = job.read("log:in", log=str(self.root / "log"), name="in")
        rows.write(f"files:{self.root}/first", name=first)
        rows.write("collect:", name="collected")
        rows.write("log:out", log=str(self.root / "log"), name="topic")
        if second is not None:
            rows.write(f"files:{self.root}/second", name=second)
        return job

    def go(self, job: hr.Job | None = None, epochs: int = 100, **options: Any) -> Driver:
        driver = Driver(job or self.job(), self.root / "job", until=None, max_batch=5, **options)
        try:
            for _ in range(epochs):
                if driver.epoch() is None:
                    break
        finally:
            driver.close()
        return driver

    def refused(self, job: hr.Job | None = None, **options: Any) -> str:
        with pytest.raises(HeadraceError) as found:
            self.go(job, 0, **options)
        return found.value.code

    def copy(self, name: str, to: str) -> None:
        shutil.copytree(self.root / name, self.root / to)

    def restore(self, copy: str, name: str) -> None:
        shutil.rmtree(self.root / name, ignore_errors=True)
        self.copy(copy, name)

    def rows(self, name: str) -> Counter[int]:
        return Counter(hr.read_output(self.root / name)["id"].to_pylist())

    def globbed(self, name: str) -> int:
        """As a reader sees it who knows nothing of records."""
        files = (self.root / name).glob("[!_.]*.parquet")
        return sum(pq.ParquetFile(f).metadata.num_rows for f in files)

    def whole(self) -> None:
        assert self.rows("first") == Counter(range(self.sent))
        assert self.globbed("first") == self.sent
        found = Counter(hr.collected(str(self.root / "job"), "collected")["id"].to_pylist())
        assert found == Counter(range(self.sent))
        topic = {v for _, t in self.log.read("out", 0, 0) for v in t["id"].to_pylist()}
        assert topic == {*range(self.sent)}


@pytest.fixture
def life(tmp_path: Path) -> Life:
    made = Life(tmp_path)
    made.send()
    made.go()
    return made


def test_what_an_output_wrote_under_another_name_is_taken_back_too(life: Life) -> None:
    life.copy("job", "older")
    life.send()
    life.go(life.job(first="renamed"))
    life.restore("older", "job")
    assert life.refused() == AHEAD
    life.go(go_back=True)
    life.whole()


def test_an_output_that_was_not_there_while_the_job_went_back(life: Life) -> None:
    life.copy("job", "older")
    life.send()
    life.go()
    life.restore("older", "job")
    life.go(life.job(second=None), 0, go_back=True)
    assert life.refused() == AHEAD
    life.go(go_back=True)
    life.whole()
    assert life.rows("second") == Counter(range(life.sent))


def test_the_folder_of_before_going_back_has_lost_what_was_taken_back(life: Life) -> None:
    life.copy("job", "newest")
    (life.root / "job" / "epochs" / "000000000002.json").unlink()
    life.go(epochs=0, go_back=True)
    life.restore("newest", "job")
    assert life.refused() == life.refused(go_back=True) == SHORT
    assert life.rows("first") == Counter(range(5))


def test_an_output_restored_from_before_going_back_has_too_much(life: Life) -> None:
    life.copy("first", "earlier")
    (life.root / "job" / "epochs" / "000000000002.json").unlink()
    life.go(epochs=0, go_back=True)
    life.restore("earlier", "first")
    assert life.refused() == AHEAD
    life.go(go_back=True)
    life.whole()


def test_a_topic_asks_once_for_what_it_has_twice(life: Life) -> None:
    life.copy("job", "older")
    life.send()
    life.go()
    life.restore("older", "job")
    life.go(go_back=True)
    for _ in range(3):
        life.send()
        life.go()
    life.whole()


def test_going_back_that_a_crash_has_cut_short_needs_no_second_consent(life: Life) -> None:
    life.copy("job", "older")
    life.send()
    life.go()
    life.restore("older", "job")
    published = (life.root / "job" / "published").read_bytes()
    life.copy("first", "untouched")
    life.go(epochs=0, go_back=True)
    (life.root / "job" / "published").write_bytes(published)  # the manifest only was written
    life.restore("untouched", "first")
    life.go()
    life.whole()


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_copies_and_restores(tmp_path: Path, seed: int) -> None:
    chance, life = random.Random(seed), Life(tmp_path)
    copies, lost = dict[str, list[str]](job=[], first=[], second=[]), False
    for step in range(14):
        if chance.random() < 0.4:
            life.send(chance.choice((3, 10)))
        name = chance.choice(("job", "job", "first", "second"))
        begun = (tmp_path / "job" / "epochs" / "000000000001.json").exists()
        if chance.random() < 0.5 and begun and (tmp_path / name).exists():
            copies[name].append(f"copy-{step}")
            life.copy(name, f"copy-{step}")
        if chance.random() < 0.35 and copies[name]:
            life.restore(chance.choice(copies[name]), name)
        second = chance.choice(("second", "second", "other", None))
        lost = _start(life, chance, life.job(second), lost)
        assert max(life.rows("first").values(), default=1) == 1
        if (tmp_path / "second" / "_commits").exists():
            assert max(life.rows("second").values(), default=1) == 1
    life.send()
    if not _start(life, chance, life.job(), lost, epochs=100):
        life.whole()


def _start(
    life: Life, chance: random.Random, job: hr.Job, lost: bool, epochs: int | None = None
) -> bool:
    """Start with the consent that is asked for; whether rows were given up."""
    options: dict[str, Any] = {}
    for _ in range(6):
        try:
            life.go(job, chance.randrange(4) if epochs is None else epochs, **options)
            return lost
        except HeadraceError as refusal:
            if refusal.code == AHEAD:
                options["go_back"] = True
            elif refusal.code == SHORT:
                name = str(refusal).split("'")[1]
                options["drop"] = [*options.get("drop", ()), name]
                lost = True
            else:
                raise
    raise AssertionError(f"six refusals: {options}")


def test_dead_letters_that_were_lost_are_noticed(tmp_path: Path) -> None:
    life = Life(tmp_path)

    def job() -> hr.Job:
        made = hr.Job("lives")
        rows = made.read("log:in", log=str(tmp_path / "log"), name="in")
        rows.select(id="cast(concat('x', cast(id as string)) as bigint)").write(
            "collect:", name="out"
        )
        return made

    life.send()
    life.go(job())
    newest = max((tmp_path / "job" / "dead" / "_commits").glob("0*.json"))
    newest.unlink()
    assert life.refused(job()) == SHORT
    life.send()
    life.go(job(), drop=["dead"])
    life.go(job())


def test_of_two_drivers_on_copies_of_a_folder_one_is_stopped_before_rows_are_mixed(tmp_path):
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("in", partitions=2, schema="id bigint")
    log.append("in", [{"id": -1}], partition=0)

    def opened(folder: str) -> Driver:
        job = hr.Job("copies")
        rows = job.read("log:in", log=str(log.root), name="in")
        rows.write("log:out", log=str(log.root), name="out")
        return Driver(job, tmp_path / folder, until=None, take_over=False, max_batch=10)

    first = opened("job")
    first.drain()
    first.close()
    shutil.copytree(tmp_path / "job", tmp_path / "copy")
    one, other = opened("job"), opened("copy")
    log.append("in", [{"id": i} for i in range(10)], partition=0)
    one.drain()
    one.close()
    log.append("in", [{"id": 100 + i} for i in range(10)], partition=1)

    with pytest.raises(HeadraceError) as found:
        other.drain()
    assert found.value.code == OTHER
    with pytest.raises(HeadraceError) as found:
        opened("copy")  # nothing of what was stopped is committed: this one is behind
    assert found.value.code == AHEAD
    last = opened("job")
    last.drain()
    last.close()
    ids = Counter(i for _, t in log.read("out", 0, 0) for i in t["id"].to_pylist())
    assert ids == Counter([-1, *range(10), *range(100, 110)])


@pytest.mark.parametrize("output", ["files", "log"])
@pytest.mark.parametrize("rows", [0, 5])
def test_a_driver_behind_which_a_copy_has_gone_back_is_stopped(
    tmp_path: Path, output: str, rows: int
) -> None:
    """With the rows that the copy has published since, or before it has any."""
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("in", schema="id bigint")

    def opened(folder: str, **options: Any) -> Driver:
        job = hr.Job("copies")
        target = "log:out" if output == "log" else f"files:{tmp_path / 'out'}"
        more = {"log": str(log.root)} if output == "log" else {}
        job.read("log:in", log=str(log.root), name="in").write(target, name="out", **more)
        return Driver(job, tmp_path / folder, until=None, take_over=False, **options)

    def send(first: int, last: int) -> None:
        log.append("in", [{"id": i} for i in range(first, last)])

    send(0, 5)
    first = opened("job")
    first.drain()
    first.close()
    shutil.copytree(tmp_path / "job", tmp_path / "copy")
    lives = opened("job")
    send(5, 10)
    lives.drain()
    back = opened("copy", go_back=True)
    if rows:
        back.drain()
    send(10, 10 + rows)
    if rows or output == "files":
        send(20, 25)
        with pytest.raises(HeadraceError) as found:
            lives.drain()
        assert found.value.code == OTHER and "copy of the folder" in found.value.message
    back.drain()
    back.close()
    lives.close()
    expected = Counter([*range(10), *range(10, 10 + rows)])
    if rows or output == "files":
        expected += Counter(range(20, 25))
    if output == "files":
        assert Counter(hr.read_output(str(tmp_path / "out"))["id"].to_pylist()) == expected
        return
    ids = Counter(i for _, t in log.read("out", 0, 0) for i in t["id"].to_pylist())
    assert ids == expected + Counter(range(5, 10))  # which the start has said


def test_who_goes_on_after_a_copy_has_gone_back_and_was_given_up(tmp_path: Path) -> None:
    """The newest record is the copy's, all rows are our own: a start that was accepted goes on."""
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("in", schema="id bigint")

    def opened(folder: str, **options: Any) -> Driver:
        job = hr.Job("copies")
        rows = job.read("log:in", log=str(log.root), name="in")
        rows.write(f"files:{tmp_path / 'out'}", name="out")
        return Driver(job, tmp_path / folder, until=None, take_over=False, **options)

    log.append("in", [{"id": 0}])
    first = opened("job")
    first.drain()
    shutil.copytree(tmp_path / "job", tmp_path / "copy")
    log.append("in", [{"id": 1}])
    first.drain()
    first.close()
    opened("copy", go_back=True).close()
    with pytest.raises(HeadraceError) as found:
        opened("job")
    assert found.value.code == SHORT
    again = opened("job", drop=["out"])  # its row 1 is lost, as was said
    log.append("in", [{"id": 2}])
    again.drain()
    again.close()
    assert hr.read_output(str(tmp_path / "out"))["id"].to_pylist() == [0, 2]


@pytest.mark.parametrize("point", ["commit.manifest", "sink.publish"])
def test_a_copy_whose_newest_epoch_was_not_published_behind_which_another_went_back(
    life: Life, point: str
) -> None:
    life.send(5)
    with pytest.raises(KeyboardInterrupt), hooked(_crash_at(point)):
        life.go()
    life.copy("job", "copy")
    (life.root / "job" / "epochs" / "000000000003.json").unlink()
    life.go(go_back=point == "sink.publish")
    life.send(5)
    life.go()
    life.restore("copy", "job")
    assert life.refused(go_back=True) == (SHORT if point == "sink.publish" else OTHER)
    (life.root / "job" / "epochs" / "000000000003.json").unlink()
    life.go(go_back=True)
    life.whole()


@pytest.mark.parametrize("epochs", [1, 20])
def test_a_number_that_nobody_knew_of_was_used_again(life: Life, epochs: int) -> None:
    life.copy("job", "older")
    life.send(400)
    with pytest.raises(KeyboardInterrupt), hooked(_crash_at("commit.manifest")):
        life.go()
    life.copy("job", "copy")
    life.restore("older", "job")
    job = build(life.job())
    driver = Driver(life.job(), life.root / "job", until=None, max_batch=7)
    for _ in range(epochs):  # with 20 the files of the other epoch 3 are merged
        driver.epoch()
    driver.close()
    life.restore("copy", "job")
    for consent in (Consent(), Consent(go_back=True)):
        with pytest.raises(HeadraceError) as found:
            refuse(review(job, str(life.root / "job")), consent)
        assert found.value.code == (OTHER if consent.go_back or epochs == 1 else AHEAD)


def _crash_at(point: str) -> Callable[[str], None]:
    def crash(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    return crash
