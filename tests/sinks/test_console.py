"""The terminal as an output."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from uuid import uuid4

import pytest
from tests.sinks.writing import ALONE, SCHEMA, refusal, table

from headrace.sinks import open_sink
from headrace.sinks.console import STDOUT, reopened


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(tmp_path, content, stream=None, **options) -> str:
    stream = stream or io.StringIO()
    sink = open_sink("console:", SCHEMA, options | {"stream": stream}, str(tmp_path), "averages")
    sink.publish(3, sink.stage(content, 3, uuid4().hex), ALONE)
    return stream.getvalue()


def test_a_pipe_gets_a_line_for_each_row(tmp_path):
    assert printed(tmp_path, table(3, 1, 2)) == (
        'averages: epoch=3 n=1 text=é "1"\naverages: epoch=3 n=2 text=é "2"\n'
    )


def test_a_person_gets_a_table_of_the_first_rows(tmp_path):
    shown = printed(tmp_path, table(3, *range(30)), Terminal())

    assert "averages · epoch 3" in shown and "and 10 more" in shown
    assert "┃" in shown and 'é "19"' in shown and 'é "20"' not in shown


def test_json_is_json(tmp_path):
    lines = printed(tmp_path, table(3, 1, 2), format="json").splitlines()

    assert [json.loads(line)["n"] for line in lines] == [1, 2]


def test_the_number_of_rows_can_be_chosen(tmp_path):
    assert len(printed(tmp_path, table(3, *range(9)), rows=2).splitlines()) == 2


def test_values_cannot_draw_on_the_terminal(tmp_path):
    rows = table(3, 1).set_column(2, "text", [["\x1b[31m[bold]red\n"]])

    for stream in (io.StringIO(), Terminal()):
        shown = printed(tmp_path, rows, stream)
        assert "\x1b[31m" not in shown and "[bold]red" in shown


def test_without_a_stream_it_is_standard_output(tmp_path, capsys):
    sink = open_sink("console:", SCHEMA, {}, str(tmp_path), "o")
    sink.publish(0, sink.stage(table(0, 1), 0, "a"), ALONE)

    assert capsys.readouterr().out.startswith("o: epoch=0")


@pytest.mark.parametrize("options", [{"format": "xml"}, {"row": 5}])
def test_options_that_make_no_sense_are_refused(tmp_path, options):
    error = refusal(open_sink, "console:", SCHEMA, options, str(tmp_path), "o")

    assert error.code == "HR-OUTPUT-008"


def test_standard_output_that_cannot_be_opened_again_is_refused_by_name(tmp_path, monkeypatch):
    """As that of another user, which no test that runs as root can make: here it is a socket."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as standard_output:
        standard_output.bind(path)
        monkeypatch.setenv(STDOUT, path)
        sink = open_sink("console:", SCHEMA, {}, str(tmp_path), "o")
        error = refusal(sink.publish, 0, sink.stage(table(0, 1), 0, "a"), ALONE)

    assert error.code == "HR-OUTPUT-014"
    assert "| cat" in error.hint


def test_a_pipe_that_nobody_reads_any_more_is_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert refusal(reopened, str(pipe)).code == "HR-OUTPUT-014"


def test_a_job_that_could_not_print_does_not_start(tmp_path):
    """Refused before Spark is started, in the words of the error."""
    job = tmp_path / "job.py"
    job.write_text(
        "import headrace as hr\njob = hr.Job('prints', folder='state')\n"
        "job.read(hr.rows([{'n': 1}])).write('console:')\n"
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-m", "headrace.cli.app", "run", str(job), "--until", "end"]
        done = subprocess.run(
            command, check=False, stdout=theirs, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            timeout=120,
        )  # fmt: skip

    assert "HR-OUTPUT-014" in done.stderr
    assert done.returncode != 0
