"""`headrace top`: frames that fit, jobs of folders and of servers, a server that goes and comes."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.app import app
from headrace.cli.top_jobs import TopJob, TopSeen, WatchedFolder, WatchedJobs
from headrace.cli.top_screen import SORTS, job_frame, list_frame
from headrace.clock import ManualClock
from headrace.inspect.recent import SERIES, Recent
from headrace.server.http import serve
from headrace.server.lifecycle import State
from headrace.testing import Driver
from tests.server.memory_service import FIGURES, MemoryService
from tests.server.rest_client import TOKENS

NOW = 1_700_000_000_000
BIG = TopJob(
    name="the-orders-of-all-shops-" * 3, state="running", epoch=12_345, committed=NOW - 2_300,
    rate_in=1_234_567.0, lag_rows=98_765_432, lag_seconds=7_300.0, latency_p95=86_400_000.0,
    watermark_delay=123_456.0, capacity=0.987, late=1_234, dead=5,
    warnings=("all 9 records of input 'x' are dead letters: \x1b[31mred [bold]x[/bold]\n" * 3,),
)  # fmt: skip
JOBS = (
    BIG, TopJob("shop", "failed", reason="HR-STEP-001 it raised"), TopJob("new", "new"),
    replace(BIG, name="small", rate_in=1.0, warnings=()),
)  # fmt: skip
TIMES = [NOW - 1_000 * i for i in range(300, 0, -1)]
SERIES_NOW = {name: [float(i) for i in range(300)] for name in SERIES}
STEPS = [{**FIGURES["steps"][0], "name": f"step {i}", "busy": i / 40} for i in range(40)]
FULL = {
    **FIGURES, "steps": STEPS, "bottleneck": {"step": "step 39", "why": "it works " * 40},
}  # fmt: skip
LIST = TopSeen(NOW, JOBS, "there is no server at http://127.0.0.1:8780: Connection refused")
ONE = TopSeen(NOW, (BIG,), None, FULL, TIMES, SERIES_NOW)


def lines_of(frame: Any, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(frame)
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize("height", [12, 24, 60])
@pytest.mark.parametrize("width", [30, 50, 80, 100, 200])
def test_a_frame_fits(width, height):
    """No line reaches the last column, and all of it is on the screen."""
    many = TopSeen(NOW, tuple(replace(BIG, name=f"job-{i}") for i in range(50)))
    few = TopSeen(NOW, (JOBS[1], JOBS[2]))
    for frame in (
        list_frame(LIST, width, height, keys=True), list_frame(many, width, height, keys=True),
        list_frame(few, width, height, keys=True),
        job_frame(ONE, width, max(height, 24), keys=True),
        job_frame(TopSeen(NOW, (JOBS[1],)), width, height, keys=True),
    ):  # fmt: skip
        lines = lines_of(frame, width)
        assert max(map(len, lines)) < width
        assert len(lines) <= max(height, 24)
        assert lines[-1].startswith("q quit")
        assert "\x1b[31m" not in "".join(lines)


def test_on_a_narrow_terminal_the_less_important_columns_go_first():
    def head(width: int) -> list[str]:
        lines = lines_of(list_frame(TopSeen(NOW, (BIG,)), width), width)
        return next(line for line in lines if line.startswith("job ")).split()

    assert " ".join(head(200)) == "job state rows/s lag p95 watermark at work late dead epoch"
    assert head(60)[:4] == ["job", "state", "rows/s", "lag"] and "epoch" not in head(60)
    assert head(30)[:2] == ["job", "state"]


def test_only_trouble_is_a_warning_and_is_said_whole_where_there_is_room():
    long = "HR-STEP-001 it raised " + "and raised " * 20 + "to the end"
    jobs = (
        TopJob("a", "ended", reason="it was drained"), TopJob("b", "failed", reason=long),
        TopJob("c", "running", reason="version 2 has failed before its first batch"),
    )  # fmt: skip
    lines = lines_of(list_frame(TopSeen(NOW, jobs), 80), 80)
    said = " ".join(lines[lines.index("") + 1 :])
    assert said.startswith("! b: HR-STEP-001") and said.endswith("to the end")
    assert "drained" not in said and "version 2" not in said
    assert lines_of(list_frame(TopSeen(NOW), 80), 80) == ["0 jobs", "there are no jobs"]


def test_what_is_not_shown_is_counted():
    many = TopSeen(NOW, tuple(TopJob(f"job-{i:02}", "running") for i in range(50)))
    lines = lines_of(list_frame(many, 80, 20), 80)
    shown = [line for line in lines if line.startswith("job-")]
    assert f"+{50 - len(shown)}" in lines
    assert len(lines) <= 20 and "50 jobs: 50 running" in lines[0]
    steps = [line for line in lines_of(job_frame(ONE, 80, 36), 80) if line.startswith("step ")]
    assert steps[1].startswith("step 39")  # those that work most


def test_jobs_are_sorted_by_each_column_and_in_the_other_order():
    def names(sort: str, reverse: bool = False) -> list[str]:
        lines = lines_of(list_frame(TopSeen(NOW, JOBS), 250, sort=sort, reverse=reverse), 250)
        first = [line.split()[0][:5] for line in lines if line]
        return [name for name in first if name in ("the-o", "shop", "new", "small")]

    assert names("job") == ["new", "shop", "small", "the-o"]
    assert names("rows/s")[:2] == ["the-o", "small"]
    assert names("state")[0] == "shop" and names("state", reverse=True)[-1] == "shop"
    assert names("job", reverse=True) == ["the-o", "small", "shop", "new"]
    for sort in SORTS:
        assert len(names(sort)) == 4


def test_one_job_says_what_limits_it_and_how_it_was():
    text = "\n".join(lines_of(job_frame(ONE, 100), 100))
    for words in (
        "epoch 12,345, committed 2.3s ago", "latency p95, from event time", "1.5s", "▁▂",
        "bottleneck step 39: it works", "read 10.0k = used 9000 + filtered 900 + late 60 + dead 40",
        "orders", "window", "alarms", "\\x1b[31mred [bold]x[/bold]",
    ):  # fmt: skip
        assert words in text, (words, text)


# jobs of folders


def build(rows: int) -> hr.Job:
    job = hr.Job("here")
    made = job.read(hr.generate(None, lambda n: {"n": n}, total=rows), name="rows")
    made.key_by("n").agg(m=hr.count(), unbounded=True, name="sums").write("collect:", name="out")
    return job


def test_a_job_of_a_folder_while_it_runs_and_after(tmp_path: Path) -> None:
    watched, folder, clock = WatchedJobs(None, tmp_path), tmp_path / "here", ManualClock(NOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert watched.look(NOW).jobs == ()
        driver = Driver(build(30), folder, max_batch=10, clock=clock)
        try:
            (job,) = watched.look(NOW).jobs
            assert (job.name, job.state, job.epoch) == ("here", "running", 0)
            driver.epoch()
            one = WatchedFolder(folder)
            assert one.look(NOW).jobs[0].epoch == 1
            clock.advance(5_000)
            driver.epoch()
            seen = one.look(NOW + 5_000)
            assert seen.jobs[0].rate_in == 2.0 and len(seen.times) == 2
            assert seen.series["rate_in"] == [None, 2.0]
            assert seen.figures is not None and seen.figures["totals"]["read"] == 20
            json.dumps(seen.json_of_one)
            late = WatchedFolder(folder).look(NOW + 5_000)  # the first look has rates, too
            assert late.jobs[0].rate_in == 2.0
        finally:
            driver.close()
        (job,) = watched.look(NOW + 9_000).jobs
        assert (job.state, job.rate_in) == ("stopped", None)
        recent = Recent(folder)
        first = recent.look(NOW + 9_000)
        assert first is not None and first.rate_in == 2.0 and first.latency["ingest"]
        assert (
            recent.look(NOW + 9_000) == recent.look(NOW + 99_000) == first
        )  # as of its last batch
        assert WatchedFolder(folder).look(NOW + 9_000).time == NOW + 9_000


def test_a_folder_that_cannot_be_read_is_a_job_that_says_so(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "job.json").write_text("{")
    (job,) = WatchedJobs(None, tmp_path).look(NOW).jobs
    assert job.state == "unreadable" and job.reason is not None and "HR-" in job.reason


# jobs of a server


@pytest.fixture
def service(monkeypatch, tmp_path) -> MemoryService:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_SERVER_TOKEN", TOKENS["read"])
    return MemoryService("shop", "fire alarm")


def test_a_server_that_goes_and_comes_back(service):
    first = serve(service, port=0, tokens=TOKENS)
    watched = WatchedJobs(first.url, Path("none"))
    assert [job.name for job in watched.look(NOW).jobs] == ["fire alarm", "shop"]
    first.close()
    gone = watched.look(NOW)
    assert gone.trouble is not None and "no server at" in gone.trouble
    assert [job.name for job in gone.jobs] == ["fire alarm", "shop"]
    service.become("shop", State.FAILED, "HR-STEP-001 it raised")
    with serve(service, port=first.port, tokens=TOKENS):
        back = watched.look(NOW)
    assert back.trouble is None and back.jobs[1].state == "failed"


def top(*words: str) -> Any:
    return CliRunner().invoke(app, ["top", *words], env={"COLUMNS": "100"})


def test_without_a_terminal_it_is_printed_once(service):
    with serve(service, port=0, tokens=TOKENS) as rest:
        listed = top("--server", rest.url).stdout
        assert "2 jobs: 2 inactive" in listed and "fire alarm" in listed
        assert "1200" in listed or "1.2k" in listed
        one = top("shop", "--server", rest.url).stdout
        assert "avg temp" in one and "alarms" in one
        found = json.loads(top("--json", "--server", rest.url).stdout)
        assert [job["name"] for job in found["jobs"]] == ["fire alarm", "shop"]
        found = json.loads(top("shop", "--json", "--server", rest.url).stdout)
        assert found["job"]["latency_p95"] == 1500.0 and found["figures"]["epoch"] == 7
        assert found["series"] == {"rate_in": [None]}
        missing = top("none", "--server", rest.url)
        assert missing.exit_code == 1 and "HR-SERVER-001" in missing.stderr
    away = top("--server", rest.url)
    assert away.exit_code == 1 and "HR-SERVER-080" in away.stderr


class Terminal:
    """`headrace top` as its user sees it, on a pseudo-terminal."""

    def __init__(self, *words: str) -> None:
        self.fd, child = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
        command = [sys.executable, "-P", "-m", "headrace_command", "top", *words]
        self.process = subprocess.Popen(
            command, stdin=child, stdout=child, stderr=child, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(child)
        self.text = ""

    def until(self, words: str) -> None:
        deadline = time.monotonic() + 120
        while words not in self.text:
            assert time.monotonic() < deadline, self.text
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.fd, 65_536).decode(errors="replace")
                except OSError:  # it has ended
                    assert words in self.text, self.text
        self.text = self.text.rpartition(words)[2]

    def press(self, key: str) -> None:
        os.write(self.fd, key.encode())

    def end(self) -> int:
        with open(self.fd, "rb", closefd=False) as screen:
            while True:
                try:
                    if not os.read(screen.fileno(), 65_536):
                        break
                except OSError:
                    break
        os.close(self.fd)
        return self.process.wait(120)


LEFT = "\x1b[?1049l"  # the screen that was there before


@pytest.mark.parametrize("leave", ["q", "ctrl-c", "SIGTERM"])
def test_on_a_terminal_it_answers_keys_and_leaves_the_screen_as_it_was(service, leave):
    with serve(service, port=0, tokens=TOKENS) as rest:
        terminal = Terminal("--server", rest.url, "--every", "100ms")
        terminal.until("2 jobs")
        terminal.press("s")
        terminal.until("s sort (state)")
        terminal.press("r")
        terminal.until("other way round")
        service.become("shop", State.FAILED, "HR-STEP-001 it raised")
        terminal.until("it raised")
        if leave == "SIGTERM":
            terminal.process.send_signal(signal.SIGTERM)
        elif leave == "ctrl-c":
            terminal.process.send_signal(signal.SIGINT)
        else:
            terminal.press("q")
        terminal.until(LEFT)
        assert terminal.end() == 0
