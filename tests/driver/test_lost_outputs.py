"""An output that loses what was published there while the job runs: noticed with its next rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.testing import Driver

LOST = "HR-STATE-023"
ROWS, BATCH = 30, 10


class Life:
    """A job with every kind of output that knows what it holds, dead letters included."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "job"
        self.log = hr.EmbeddedLog(str(root / "log"))
        self.log.create("in")
        good = [b'{"id": %d}' % i for i in range(ROWS)]
        for first in range(0, ROWS, BATCH // 2):
            self.log.append("in", [*good[first : first + BATCH // 2], *[b"{"] * (BATCH // 2)])

    def start(self, **options: object) -> Driver:
        log = str(self.root / "log")
        job = hr.Job("lossy")
        rows = job.read("log:in", log=log, schema="id bigint", name="in")
        rows.write(f"files:{self.root}/files", name="files")
        rows.write("log:out", log=log, name="topic")
        rows.write("collect:", name="collected")
        return Driver(job, self.folder, until=None, max_batch=BATCH, tasks=1, **options)

    def remake_topic(self) -> None:
        self.log.delete("out")
        self.log.create("out", schema="id bigint")


def remove(path: str) -> Callable[[Life], None]:
    return lambda life: shutil.rmtree(life.root / path)


def newest_record(life: Life) -> None:
    max((life.root / "files" / "_commits").glob("0*.json")).unlink()


LOSSES: dict[str, tuple[str, Callable[[Life], None]]] = {
    "a folder": ("files", remove("files")),
    "its records": ("files", remove("files/_commits")),
    "its newest record": ("files", newest_record),
    "a topic made again": ("topic", Life.remake_topic),
    "what is collected": ("collected", remove("job/collect")),
    "dead letters": ("dead", remove("job/dead")),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_running_job_notices_that_an_output_has_lost_rows(tmp_path: Path, loss: str) -> None:
    life, (output, lose) = Life(tmp_path), LOSSES[loss]
    driver = life.start()
    for _ in range(2):
        driver.epoch()
    lose(life)
    with pytest.raises(HeadraceError) as found:
        driver.drain()
    driver.close()
    assert found.value.code == LOST
    assert repr(output) in str(found.value)
    with pytest.raises(HeadraceError) as again:
        life.start()
    assert again.value.code in (LOST, "HR-OUTPUT-005")


@pytest.mark.parametrize("staged", [True, False])
def test_with_the_output_put_back_the_epoch_is_done_again(tmp_path: Path, staged: bool) -> None:
    life = Life(tmp_path)
    driver = life.start()
    driver.epoch()
    shutil.copytree(tmp_path / "files", tmp_path / "copy")
    shutil.rmtree(tmp_path / "files")
    with pytest.raises(HeadraceError):
        driver.drain()
    driver.close()
    if not staged:
        shutil.rmtree(tmp_path / "files")
    shutil.copytree(tmp_path / "copy", tmp_path / "files", dirs_exist_ok=True)
    driver = life.start()
    driver.drain()
    driver.close()
    assert sorted(hr.read_output(tmp_path / "files")["id"].to_pylist()) == list(range(ROWS))


def test_what_was_lost_may_be_given_up(tmp_path: Path) -> None:
    life = Life(tmp_path)
    driver = life.start()
    driver.epoch()
    life.remake_topic()
    with pytest.raises(HeadraceError):
        driver.drain()
    driver.close()
    driver = life.start(drop="topic")
    driver.drain()
    driver.close()
    ids = [i for _, t in life.log.read("out", 0, 0) for i in t["id"].to_pylist()]
    assert sorted(ids) == list(range(BATCH // 2, ROWS))
    life.start().close()
