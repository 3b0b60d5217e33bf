"""The note that a run leaves of itself: read while it is of now, and of the right process."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headrace.engine.processes import descendants, process_start, proportional, resident
from headrace.inspect.bottleneck import AtWork, bottleneck_of
from headrace.inspect.figure_values import OutputFigures
from headrace.inspect.live import NOTE, Live, read_live, write_live

LIVE = Live(
    time=1_000_000, pid=7, started=99, epoch=3, warnings=("late rows",), stalled="stalled: why",
    phases={"addBatch": 12.0}, memory={"driver": 5, "jvm": None}, gc_ms=8,
)  # fmt: skip


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_live(tmp_path, LIVE)
    assert read_live(tmp_path, 1_000_500) == read_live(tmp_path, 1_000_500, (7, 99)) == LIVE
    assert [path.name for path in tmp_path.iterdir()] == [NOTE]


@pytest.mark.parametrize(
    ("now", "process"), [(1_030_001, None), (1_000_000, (8, 99)), (1_000_000, (7, 98))]
)
def test_a_note_that_is_old_or_of_another_process_is_absent(tmp_path, now, process) -> None:
    write_live(tmp_path, LIVE)
    assert read_live(tmp_path, 1_030_000) is not None
    assert read_live(tmp_path, now, process) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"format": 2}', '{"format": 1}', "\0"])
def test_a_note_that_is_damaged_or_of_another_version_is_absent(tmp_path, content) -> None:
    assert read_live(tmp_path, 0) is None
    (tmp_path / NOTE).write_text(content)
    assert read_live(tmp_path, 0) is None


def test_what_a_later_version_adds_is_left_out(tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text(json.dumps({**LIVE.to_json(), "more": 1}))
    assert read_live(tmp_path, 1_000_000) == LIVE


def test_a_folder_that_is_gone_is_no_failure(tmp_path: Path) -> None:
    write_live(tmp_path / "gone", LIVE)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells")
def test_this_process_is_found_by_its_parent_with_its_memory() -> None:
    psutil = pytest.importorskip("psutil")
    me = psutil.Process()
    assert os.getpid() in descendants(os.getppid())
    assert resident(os.getpid()) == pytest.approx(me.memory_info().rss, rel=0.2)
    size = proportional(os.getpid())
    assert size is not None and 0 < size <= 1.2 * me.memory_info().rss
    ticks = os.sysconf("SC_CLK_TCK")
    assert process_start(os.getpid()) / ticks + psutil.boot_time() == pytest.approx(
        me.create_time(), abs=2
    )
    assert process_start(2**22 + 1) == 0 and resident(2**22 + 1) is None


def output(name: str, busy: float) -> OutputFigures:
    return OutputFigures(name, 0, None, None, busy)


def test_the_bottleneck_is_what_is_at_work_most_when_there_is_no_time_left() -> None:
    work = AtWork({"a": 0.2, "b": 0.6}, {"a": 0.3, "b": 0.7}, 2)
    assert bottleneck_of(0, 0.5, [], work, []) is None
    assert bottleneck_of(9, None, [], work, []) is None
    found = bottleneck_of(1_234, 0.9, [], work, [output("out", 0.1)])
    assert found is not None and found.step == "b"
    assert found.why == (
        "the job is at work 90% of the time, and 1,234 rows wait: this step keeps 2 tasks busy "
        "for 60%, more than any other step"
    )
    published = bottleneck_of(0, 0.9, [], work, [output("out", 0.7)])
    assert published is not None and published.step == "out"
    assert "publishing to it takes 70%, longer than any step" in published.why
    assert "Spark" not in published.why
    few = AtWork({"a": 0.1}, {"a": 0.2}, 2)
    small = bottleneck_of(0, 0.9, [], few, [output("out", 0.25)])
    assert small is not None and small.step == "out"
    assert "Spark itself, or waiting for processors, takes 52%" in small.why
    own = bottleneck_of(5, 0.9, [], AtWork({"a": 0.15}, {"a": 0.2}, 1), [])
    assert own is not None and "keeps its task busy for 15%" in own.why
    assert "Spark itself, or waiting for processors, takes 72%" in own.why
    assert bottleneck_of(5, 0.9, [], AtWork({"a": 0.01}, {"a": 0.02}, 1), []) is None


def test_a_step_that_keeps_one_of_many_tasks_busy_is_the_bottleneck_and_spark_is_not() -> None:
    """As of an input with one partition: the other tasks have nothing to do."""
    work = AtWork({"read": 0.01, "slow": 0.058, "fast": 0.2}, {"slow": 0.95, "fast": 0.04}, 16)
    found = bottleneck_of(5, 1.0, [], work, [])
    assert found is not None and found.step == "slow"
    assert "keeps one of 16 tasks busy for 95%" in found.why and "Spark" not in found.why


def test_writing_dead_letters_can_be_the_bottleneck() -> None:
    work = AtWork({"m": 0.2, "dead": 0.5}, {"m": 0.3, "dead": 0.6}, 2)
    found = bottleneck_of(0, 1.0, [], work, [output("dead", 0.01)])
    assert found is not None and found.step == "dead"
    assert "writing dead letters keeps 2 tasks busy for 50%" in found.why
