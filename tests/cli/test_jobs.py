"""`headrace run`, `explain` and `plan` as their user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.app import app
from tests.terminal import forget

JOB = """
    import headrace as hr

    job = hr.Job("counts")
    rows = job.read(
        hr.rows([{"k": "ab"[i % 2], "v": i, "at": i * 1_000} for i in range(20)],
                "k string, v bigint, at bigint"),
        time="at", delay="1s", name="rows",
    )
    rows.key_by("k").agg(total=hr.sum("v"), unbounded=True, name="totals").write("console:")
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Type a command in a folder of its own, with the files it talks about."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def type_in(*words: str, **files: str) -> Any:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(dedent(text), encoding="utf-8")
        try:
            return CliRunner().invoke(app, list(words))
        finally:
            forget(tmp_path)

    return type_in


def failed(result: Any) -> str:
    """What a refused command says: text, never a traceback, and exit code 1."""
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output and result.stdout == ""
    return str(result.stderr)


# help


def test_help_names_the_commands_and_shows_what_to_try(call):
    text = call("--help").output
    assert all(word in text for word in ("run", "explain", "plan", "topic", "--version"))
    assert "headrace run job.py --until end" in text


@pytest.mark.parametrize("command", ["run", "explain", "plan"])
def test_each_command_has_help_with_an_example(call, command):
    result = call(command, "--help")
    assert result.exit_code == 0 and f"headrace {command} examples/fire_alarm.py" in result.output


def test_without_words_it_shows_its_help(call):
    assert "headrace explain job.py" in call().output


def test_an_unknown_option_is_a_wrong_command_line(call):
    assert call("run", "job.py", "--untill", "end", job=JOB).exit_code == 2
    assert call("run", "job.py", "--until", "noon", job=JOB).exit_code == 2


# the file


def test_a_missing_file_a_folder_and_another_kind_of_file_are_refused(call, tmp_path):
    assert "HR-CLI-001 there is no file 'nope.py'" in failed(call("run", "nope.py"))
    assert "HR-CLI-001" in failed(call("explain", str(tmp_path)))
    (tmp_path / "job.txt").write_text("job")
    assert "HR-CLI-001 'job.txt' is not a Python file" in failed(call("plan", "job.txt"))


def test_a_file_without_a_job_is_refused_with_what_to_write(call):
    text = failed(call("run", "empty.py", empty="x = 1"))
    assert "HR-CLI-002 'empty.py' makes no job" in text and 'hr.Job("name")' in text


TWO = """
    import headrace as hr

    jobs = [hr.Job("not at the top level")]
    a, b = hr.Job("one"), hr.Job("two")
    for job in (a, b):
        job.read(hr.rows([{"v": 1}])).write("console:")
"""


def test_of_several_jobs_one_must_be_named(call):
    text = failed(call("explain", "both.py", both=TWO))
    assert "HR-CLI-003 'both.py' makes 2 jobs: 'one', 'two'" in text and "--job" in text
    assert call("explain", "both.py", "--job", "two").stdout.startswith("job two")
    assert "has no job 'three', only" in failed(call("explain", "both.py", "--job", "three"))


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("import headrace as hr\n\nhr.Job('x').read(1 / 0)\n", "broken.py:3", "ZeroDivisionError"),
        ("x = 1\ny = = 2\n", "broken.py:2", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "broken.py:2", "SystemExit"),
        ("import nowhere_at_all\n", "broken.py:1", "ModuleNotFoundError"),
    ],
)
def test_a_file_that_fails_is_one_error_with_its_line(call, text, where, what):
    said = failed(call("run", "broken.py", broken=text))
    assert said.startswith(f"HR-CLI-004 broken.py raised {what}") and f"({where})" in said


def test_a_file_may_have_the_name_of_a_known_module_and_import_its_neighbours(call):
    neighbour = "import headrace as hr\nROWS = hr.rows([{'v': 1}])\n"
    text = "import headrace as hr\nfrom near import ROWS\njob = hr.Job('j')\n"
    text += "job.read(ROWS).write('console:')\n"
    assert call("explain", "json.py", json=text, near=neighbour).exit_code == 0
    assert sys.modules["json"] is json


# plans


WRONG = """
    import headrace as hr

    job = hr.Job("wrong")
    rows = job.read("log:t", schema="area string, celsius double")
    rows.where("celcius > 40").key_by("area").window(hr.tumbling("5s")).agg(n=hr.count()).write(
        "log:n"
    )
"""


@pytest.mark.parametrize("command", ["run", "explain", "plan"])
def test_every_problem_of_a_program_is_told_with_code_line_and_hint(call, command):
    text = failed(call(command, "wrong.py", wrong=WRONG))
    assert "HR-EXPR-001 there is no column 'celcius'  (wrong.py:6)" in text
    assert "Did you mean 'celsius'?" in text
    assert "HR-PLAN-002" in text and 'time="at"' in text
    assert "starting Spark" not in text


def test_a_wrong_window_is_told_where_it_is_written(call):
    text = "import headrace as hr\n\nwindow = hr.sliding('60s', every='90s')\n"
    assert "HR-WINDOW-003" in (said := failed(call("run", "w.py", w=text))) and "(w.py:3)" in said


def test_explain_shows_both_plans_and_what_each_output_offers(call):
    result = call("explain", "job.py", job=JOB)
    assert result.exit_code == 0
    for line in ("logical plan", "physical plan", "level 1: tasks by slot", "at least once"):
        assert line in result.stdout


def test_explain_as_json_is_for_machines_and_nothing_is_left_behind(call, tmp_path):
    data = json.loads(call("explain", "job.py", "--json", job=JOB).stdout)
    assert data["job"] == "counts" and data["depth"] == 1
    assert [o["guarantee"] for o in data["outputs"]] == ["at least once"]
    assert not (tmp_path / ".headrace").exists()


# runs


@pytest.mark.spark
def test_run_prints_outputs_to_stdout_and_tells_the_rest_on_stderr(spark, call, capfd):
    result = call("run", "job.py", "--until", "end", job=JOB)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""  # what is printed comes from a process that Spark started
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()] == [
        "totals.write:"
    ] * 20
    lines = result.stderr.splitlines()
    assert lines[0] == "counts: starting Spark"
    whole = lines.index("  if it is killed: at least once: output 'totals.write' may repeat rows")
    assert [line.split(": ")[:2] for line in lines[whole + 1 : whole + 4]] == [
        ["    input rows", "exactly once"],
        ["    output totals.write", "at least once"],
        ["    output dead", "exactly once"],
    ]
    assert any(line.startswith("counts: epoch 1  ") for line in lines)
    assert "counts: ended after epoch 1" in lines
    assert "  input  rows: read 20 = used 20 + filtered 0 + late 0 + dead 0" in lines
    assert "  output totals.write: wrote 20" in lines
    again = call("run", "job.py", "--until", "end", job=JOB).stderr
    assert "it had ended before, so nothing was read or computed" in again
    assert "had ended before" not in result.stderr


ENDLESS = """
    import headrace as hr

    job = hr.Job("numbers")
    job.read(hr.generate(1_000, lambda i: {"n": i}), name="all").write("console:", name="each")
"""


@pytest.mark.spark
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_all_finishes_the_batch_in_hand_and_is_no_error(call, sent):
    assert call("plan", "job.py", job=ENDLESS).exit_code == 0
    environment = {k: v for k, v in os.environ.items() if k != "HEADRACE_ZYGOTE"}
    command = [sys.executable, "-m", "headrace.cli.app", "run", "job.py", "--master", "local[2]"]
    with open("printed", "w") as printed, subprocess.Popen(
        command, stdout=printed, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    ) as process:  # fmt: skip
        told = []
        for line in process.stderr:
            told.append(line.rstrip())
            if line.startswith("numbers: epoch "):
                os.killpg(process.pid, sent)  # as Ctrl-C and `timeout` do: all of them get it
    assert process.returncode == 0, told
    assert told[0] == "numbers: starting Spark" and "Traceback" not in "".join(told)
    assert told[-3].startswith("numbers: stopped after epoch ")
    rows = Path("printed").read_text().splitlines()
    read = f"{len(rows):,}"
    assert told[-2] == f"  input  all: read {read} = used {read} + filtered 0 + late 0 + dead 0"
    assert rows == [f"each: n={i}" for i in range(len(rows))]


@pytest.mark.spark
def test_run_fails_with_the_error_of_the_users_function_and_what_was_read(spark, call):
    text = JOB.replace('hr.Job("counts")', 'hr.Job("counts", on_error="fail")')
    text = text.replace("rows.key_by", 'rows.filter(lambda r: 1 // (r.v - 3) or bool("x")).key_by')
    result = call("run", "job.py", "--until", "end", job=text)
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert "HR-STEP-001" in result.stderr and "ZeroDivisionError" in result.stderr
    assert "counts: failed after epoch 0" in result.stderr


@pytest.mark.spark
def test_of_a_failed_job_spark_itself_says_nothing(call):
    text = JOB.replace('hr.Job("counts")', 'hr.Job("counts", on_error="fail")')
    text = text.replace(".write(", ".filter(lambda r: 1 // 0).write(")
    assert call("plan", "job.py", job=text).exit_code == 0
    environment = {k: v for k, v in os.environ.items() if k != "HEADRACE_ZYGOTE"}
    command = [sys.executable, "-m", "headrace.cli.app", "run", "job.py", "--master", "local[2]"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 1 and "HR-STEP-001" in done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("spark:")] == []


def test_plan_compares_two_files_without_a_folder(call, tmp_path):
    same = call("plan", "job.py", "new.py", job=JOB, new=JOB)
    assert same.exit_code == 0
    assert same.stdout.split("\n")[:2] == ["operator  totals: same", "input     rows: same"]
    added = JOB.replace('total=hr.sum("v")', 'total=hr.sum("v"), n=hr.count()')
    refused = call("plan", "job.py", "new.py", new=added)
    assert refused.exit_code == 1 and "the aggregate 'n' is new" in refused.stdout
    assert "HR-EVOLVE-001" in refused.stderr
    said = call(
        "plan", "job.py", "new.py", new=added.replace("hr.count()", 'hr.count(), since="restart"')
    )
    assert said.exit_code == 0 and "totals.n: new" in said.stdout
    assert call("plan", "new.py", "job.py").exit_code == 1
    assert call("plan", "new.py", "job.py", "--drop", "totals.n").exit_code == 0
    assert not (tmp_path / ".headrace").exists()


def test_plan_of_two_files_refuses_what_is_about_a_folder_or_another_job(call):
    assert "HR-EVOLVE-006" in failed(call("plan", "job.py", "job.py", "--folder", "x", job=JOB))
    other = call("plan", "job.py", "new.py", new=JOB.replace('"counts"', '"other"'))
    assert "HR-EVOLVE-007" in failed(other)


@pytest.mark.spark
def test_plan_says_what_is_new_same_renamed_dropped_and_refused(spark, call):
    assert "has not run yet: everything is new" in call("plan", "job.py", job=JOB).stdout
    call("run", "job.py", "--until", "end", "--folder", "here")
    same = call("plan", "job.py", "--folder", "here")
    assert same.exit_code == 0 and "operator  totals: same" in same.stdout

    renamed = JOB.replace('name="totals"', 'name="sums", was="totals"')
    found = call("plan", "job.py", "--folder", "here", job=renamed)
    assert found.exit_code == 0 and "operator  sums: renamed from totals" in found.stdout

    gone = JOB.replace('key_by("k").agg(total=hr.sum("v"), unbounded=True, name="totals").', "")
    refused = call("plan", "job.py", "--folder", "here", job=gone)
    assert refused.exit_code == 1 and "operator  totals: dropped" in refused.stdout
    assert "HR-EVOLVE-002" in refused.stderr and "'totals'" in refused.stderr
    assert call("plan", "job.py", "--folder", "here", "--drop", "totals").exit_code == 0
    assert call("plan", "job.py", "--folder", "here", "--drop-all").exit_code == 0

    changed = call("plan", "job.py", "--folder", "here", job=JOB.replace("sum", "max"))
    assert changed.exit_code == 1 and "operator  totals: refused, because" in changed.stdout
    assert "HR-EVOLVE-001" in changed.stderr


@pytest.mark.spark
def test_a_folder_of_another_job_is_refused(spark, call):
    call("run", "job.py", "--until", "end", "--folder", "here", job=JOB)
    other = JOB.replace('hr.Job("counts")', 'hr.Job("other")')
    assert "HR-STATE-001" in failed(call("plan", "job.py", "--folder", "here", job=other))
