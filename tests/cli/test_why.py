"""`headrace why` as its user types it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.app import app
from headrace.cli.loading import load_job
from headrace.inspect.stall import note
from headrace.testing import Driver
from tests.terminal import forget

JOB = """
    import headrace as hr

    job = hr.Job("asked")
    rows = job.read("log:rows", schema="k string, at bigint", time="at", delay="1s", idle="1h")
    hot = rows.where("k = 'hot'", name="hot")
    hot.key_by("k").window(hr.tumbling("10s")).agg(n=hr.count(), name="counts").write("collect:")
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "job.py").write_text(dedent(JOB), encoding="utf-8")
    hr.EmbeddedLog().create("rows", schema="k string, at bigint")

    def type_in(*words: str) -> Any:
        try:
            return CliRunner().invoke(app, ["why", *words])
        finally:
            forget(tmp_path)

    return type_in


def run(rows: list[dict[str, Any]]) -> None:
    """Let rows come, and the job have its turn in this process."""
    hr.EmbeddedLog().append("rows", rows)
    try:
        Driver(load_job(Path("job.py")), ".headrace/jobs/asked", until=None).drain()
    finally:
        forget(Path.cwd())


def test_help_says_what_mostly_explains_it_and_shows_examples(call):
    text = call("--help").output
    assert "headrace why examples/fire_alarm.py" in text
    assert "a filter that lets nothing through" in " ".join(text.replace("│", " ").split())


def test_a_file_whose_job_has_not_run(call):
    result = call("job.py")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:2] == ["job 'asked'", "  1. job 'asked' has not run"]
    assert not Path(".headrace/jobs").exists()  # nothing is made


def test_a_run_over_an_empty_input_is_not_told_to_start(call):
    run([])
    by_file, by_folder = call("job.py"), call(".headrace/jobs/asked")
    assert "1. input 'rows' is empty: it has delivered no rows yet" in by_file.stdout
    assert "the job's input is empty: it has delivered no rows yet" in by_folder.stdout
    for said in (by_file.stdout, by_folder.stdout):
        assert "has not run" not in said and "headrace run" not in said


def test_the_file_knows_the_condition_and_the_folder_the_rest(call):
    run([{"k": "cold", "at": 1_000}])
    by_file, by_folder = call("job.py"), call(".headrace/jobs/asked")
    assert by_file.exit_code == by_folder.exit_code == 0
    assert "1. step 'hot' let none of 1 rows through" in by_file.stdout
    assert "The condition is: k = 'hot'." in by_file.stdout
    assert "1. step 'hot' let none of 1 rows through" in by_folder.stdout
    assert "input 'rows': read 1 = used 0 + filtered 1 + late 0 + dead 0" in by_folder.stdout


def test_that_a_run_stands_still_comes_first(call):
    run([{"k": "cold", "at": 1}])
    text = "stalled: batch 2 has been under way for 61.0s"
    note(".headrace/jobs/asked", text, 0)
    for words in (["job.py"], [".headrace/jobs/asked"]):
        assert f"  1. the job is {text} (at 1970-01-01 00:00:00 UTC)\n" in call(*words).stdout
    assert json.loads(call("job.py", "--json").stdout)["reasons"][0]["kind"] == "standstill"


def test_as_json_it_is_for_machines(call):
    run([{"k": "hot", "at": 12_000}])
    for place in ("job.py", ".headrace/jobs/asked"):
        data = json.loads(call(place, "--json").stdout)
        assert data["job"] == "asked" and data["epoch"] == 1
        found = [(r["kind"], r["where"]) for r in data["reasons"]]
        assert found == [("split", "rows"), ("window", "counts"), ("starved", "counts.write")]
        assert data["reasons"][1]["facts"] == {"next": 20_000, "watermark": 11_000}


def test_what_is_no_job_is_refused_with_what_to_give(call, tmp_path):
    result = call(str(tmp_path))
    assert result.exit_code == 1 and "HR-CLI-005" in result.stderr and "job.json" in result.stderr
    assert "HR-CLI-001" in call("nowhere.py").stderr


def test_a_folder_of_another_job_is_refused(call):
    run([{"k": "hot", "at": 12_000}])
    text = Path("job.py").read_text().replace('hr.Job("asked")', 'hr.Job("other")')
    Path("job.py").write_text(text)
    assert "HR-STATE-001" in call("job.py", "--folder", ".headrace/jobs/asked").stderr
