"""What is said about a run: one line, readable, and true when nothing comes any more."""

from __future__ import annotations

import io
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import headrace as hr
from headrace.engine.reporter import Reporter
from headrace.inspect.figure_words import ms, number, share
from headrace.inspect.progress import (
    Meter,
    Progress,
    account,
    progress_of,
    short,
    span,
    status_line,
)
from headrace.inspect.why_answer import answer_why
from headrace.testing import Driver

NOON = 1_700_049_600_000
PROGRESS = Progress(
    epoch=12_345, clock=NOON, committed=NOON + 843, read=123_456, lag=1_234_567,
    watermark=NOON,
    counts={"t": {"read": 9, "used": 5, "filtered": 2, "late": 1, "dead": 1}},
    steps={"w": {"in": 8, "out": 3, "late": 1_234, "dead": 0}}, outputs={"out": 3},
    held={"w": 5_000_000}, held_bytes={"w": 80_000_000},
    timing={"level 2": 98.0, "source": 412.3, "level 1": 230.6}, ended=False,
)  # fmt: skip


def test_the_line_has_everything_and_breaks_between_its_parts():
    whole = (
        "epoch 12345  146k rows/s  lag 1.2M  watermark 2023-11-15 12:00:00 (-5.3s)  late 1234  "
        "dead 1  state 5.0M  batch 843 ms (source 412, levels 231/98)"
    )
    assert status_line(PROGRESS, 146_447.0, NOON + 5_300) == whole
    narrow = status_line(PROGRESS, 146_447.0, NOON + 5_300, width=120)
    assert narrow.splitlines() == whole.replace("  batch", "\nbatch").splitlines()


def test_a_watermark_that_has_not_begun_or_has_ended_says_so():
    before = replace(PROGRESS, watermark=None)
    assert "watermark -  " in status_line(before, 0, NOON)
    assert "watermark at the end  " in status_line(replace(before, ended=True), 0, NOON)


def test_the_account_adds_up_by_input():
    assert account(PROGRESS) == [
        "input  t: read 9 = used 5 + filtered 2 + late 1 + dead 1",
        "output out: wrote 3",
    ]


def test_the_rate_is_of_the_last_seconds_and_falls_to_zero():
    meter = Meter()
    meter.add(replace(PROGRESS, clock=0, committed=1_000, read=500))
    assert meter.rate(1_000) == 500
    meter.add(replace(PROGRESS, clock=1_000, committed=2_000, read=1_500))
    assert meter.rate(2_000) == 1_000
    assert meter.rate(5_000) == 400
    assert meter.rate(60_000) == 0


@pytest.mark.parametrize("took", [500, 1_000, 30_000, 240_000])
def test_the_rate_of_slow_batches_is_that_of_their_whole_time(took):
    meter = Meter()
    for epoch in range(1, 40):
        clock = 1_000_000 + epoch * took
        meter.add(replace(PROGRESS, clock=clock, committed=clock + took, read=took))
        assert meter.rate(clock + took) == pytest.approx(1_000, rel=0.06)
        assert meter.rate(clock + took + took // 2) == pytest.approx(1_000, rel=0.06)
    assert meter.rate(clock + 4 * took + 20_000) == 0


_NUMBERS = st.integers(-(10**18), 10**18) | st.floats(-(10**6), 10**6)


@given(_NUMBERS)
def test_a_short_number_is_short_and_near_and_little_is_not_nothing(drawn):
    text = short(drawn)
    unit = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}.get(text[-1], 1)
    if text == "<.001":
        assert 0 < abs(drawn) < 0.001
        return
    near = 0.5 if abs(drawn) >= 9.9 or drawn == round(drawn) else abs(drawn) * 0.51
    assert abs(float(text.rstrip("kMGTP")) * unit - drawn) <= max(near, abs(drawn) * 0.051)
    assert len(text.lstrip("-")) <= 6
    assert (float(text.rstrip("kMGTP")) == 0) == (drawn == 0)


def test_figures_in_words_are_never_nothing_for_a_little():
    assert [ms(v) for v in (0, 0.3, 3.2, 340.4, 5_000, -5_000, -3.2)] == [
        "0ms", "0.3ms", "3.2ms", "340ms", "5.0s", "-5.0s", "-3.2ms",
    ]  # fmt: skip
    assert [share(v) for v in (0.0, 0.004, 0.006, 1.0)] == ["0%", "<1%", "1%", "100%"]
    assert [number(v) for v in (None, 0, 0.3, 10**15)] == ["-", "0", "0.3", "1.0P"]


def test_a_small_rate_is_not_none():
    rates = (0, 0.0, 0.0004, 0.001, 0.04, 0.5, 4.86, 5.0, 9.96, 999.6)
    said = ["0", "0", "<.001", "0.001", "0.04", "0.5", "4.9", "5", "10", "1000"]
    assert [short(rate) for rate in rates] == said


def test_durations_are_said_at_a_glance():
    assert [span(ms) for ms in (0, 4_540, 119_999, 120_000, 7_200_000, 10**9)] == [
        "0.0s", "4.5s", "120.0s", "2m", "2h", "11d",
    ]  # fmt: skip


def test_plain_lines_come_at_most_every_few_seconds():
    text = io.StringIO()
    reporter = Reporter("job", Console(file=text))
    for epoch in (1, 2, 3):
        reporter.progress(replace(PROGRESS, epoch=epoch))
    assert text.getvalue().count("job: epoch") == 1


def test_an_input_that_gave_no_row_is_told_too(tmp_path: Path) -> None:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("empty", schema="n bigint")
    log.create("full", schema="n bigint")
    log.append("full", [{"n": 1}])
    job = hr.Job("told")
    for name in ("full", "empty"):
        job.read(f"log:{name}", log=str(log.root)).write("collect:", name=f"{name} rows")
    driver = Driver(job, tmp_path / "job")
    progress = driver.drain()
    driver.close()

    assert account(progress)[:2] == [
        "input  empty: read 0 = used 0 + filtered 0 + late 0 + dead 0",
        "input  full: read 1 = used 1 + filtered 0 + late 0 + dead 0",
    ]


def test_windows_that_are_over_are_not_counted_as_state(tmp_path: Path) -> None:
    rows = [{"k": f"k{i % 3}", "at": i * 1_000} for i in range(600)]
    job = hr.Job("counted")
    windows = job.read(hr.rows(rows), time="at", delay="2s").key_by("k").window(hr.tumbling("1m"))
    windows.agg(n=hr.count()).write("collect:", name="out")
    driver = Driver(job, tmp_path / "job")
    progress = driver.drain()
    driver.close()

    assert driver.output("out").num_rows == 30
    assert "state 0  " in status_line(progress, 0, NOON)


def _often_late(tmp_path: Path, late: int, rows: int) -> Driver:
    """The last `late` of so many rows are from before the window that the first ones closed."""
    times = [100_000] * (rows - late) + [1_000] * late
    job = hr.Job("late")
    stream = job.read(hr.rows([{"at": t} for t in times]), time="at", delay="1s", name="in")
    counts = stream.window(hr.tumbling("10s")).agg(n=hr.count(), name="counts")
    counts.write("collect:", name="out")
    driver = Driver(job, tmp_path / "job", max_batch=rows - late)
    driver.drain()
    driver.close()
    return driver


WARNING = "2 of 150 rows (1%) came too late for step 'counts': they are in its .late stream."


def test_many_late_rows_are_reported_while_it_runs_at_its_end_and_by_why(tmp_path: Path) -> None:
    driver = _often_late(tmp_path, 2, 150)
    progress = progress_of(driver.manifest, {})
    text = io.StringIO()
    reporter = Reporter("job", Console(file=text, width=500))
    reporter.progress(progress)
    reporter.progress(progress)

    assert text.getvalue().count(f"job: WARNING: {WARNING}") == 1
    assert len(progress.warnings) == 1 and progress.warnings[0].startswith(WARNING)
    answer = str(answer_why("late", driver.program, driver.manifest, 0))
    assert "2 of 150 rows came too late for step 'counts'" in answer


def test_few_late_rows_are_counted_only(tmp_path: Path) -> None:
    driver = _often_late(tmp_path, 1, 150)

    assert progress_of(driver.manifest, {}).warnings == ()
    assert "too late" not in str(answer_why("late", driver.program, driver.manifest, 0))


def test_a_signal_is_answered_in_words():
    text = io.StringIO()
    reporter = Reporter("job", Console(file=text, width=500))
    reporter.stopping(signal.SIGINT, now=False)
    reporter.stopping(signal.SIGTERM, now=False)
    reporter.stopping(signal.SIGINT, now=True)
    reporter.progress(PROGRESS)

    assert text.getvalue().splitlines()[:3] == [
        "job: stopping after this batch; press Ctrl-C again to stop now",
        "job: SIGTERM: stopping after this batch; a second signal stops it now",
        "job: stopping now; the batch in hand is done again at the next start",
    ]
    assert text.getvalue().splitlines()[-1].startswith("job: stopping  epoch 12345")
