"""`headrace topic` as its user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.app import app
from headrace.log import EmbeddedLog

Call = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("HEADRACE_LOG", str(tmp_path / "log"))

    def type_in(*words: str, stdin: str | bytes | None = None) -> Any:
        return CliRunner().invoke(app, ["topic", *words], input=stdin)

    return type_in


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    return EmbeddedLog(tmp_path / "log")


def done(result: Any) -> str:
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def failed(result: Any) -> str:
    """What a refused command says: text, never a traceback, and exit code 1."""
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    return str(result.stderr)


def test_a_topic_goes_through_its_life(call, log):
    said = done(call(
        "create", "readings", "--partitions", "4", "--schema", "area string, at timestamp",
        "--key", "area", "--retention", "7d", "--retention-bytes", "1GB",
    ))  # fmt: skip
    assert said == "created topic 'readings': area string, at timestamp, 4 partitions\n"
    info = log.describe("readings")
    assert (info.retention_ms, info.retention_bytes, info.key) == (604_800_000, 10**9, "area")

    lines = [{"area": f"a{i}", "at": f"2026-03-01T12:00:0{i}+00:00"} for i in range(5)]
    result = call("produce", "readings", stdin="\n".join(map(json.dumps, lines)))
    assert done(result) == ""
    assert result.stderr == "appended 5 records to 'readings'\n"

    said = done(call("consume", "readings", "--from-beginning", "--no-follow"))
    assert sorted(map(json.loads, said.splitlines()), key=lambda r: r["area"]) == lines

    assert done(call("list")).splitlines()[1].split()[:3] == ["readings", "4", "5"]
    assert done(call("delete", "readings", "--yes")) == "deleted topic 'readings'\n"
    assert log.topics() == []


def test_a_byte_topic_takes_and_gives_lines_of_text(call):
    done(call("create", "words"))
    done(call("produce", "words", stdin="grün\n\nlast without newline".encode() + b" \xff"))
    said = done(call("consume", "words", "--from-beginning", "--no-follow"))
    assert said == "grün\n\nlast without newline \\xff\n"


def test_a_field_of_json_can_be_the_key_of_a_byte_topic(call, log):
    done(call("create", "t", "--partitions", "3"))
    lines = ['{"k": "a", "n": 1}', '{"k": "b", "n": 2}', '{"k": "a", "n": 3}']
    done(call("produce", "t", "--key", "k", stdin="\n".join(lines)))
    said = done(call("consume", "t", "--from-beginning", "--no-follow", "--keys")).splitlines()
    assert sorted(said) == sorted(f"{json.loads(x)['k']}\t{x}" for x in lines)
    assert "line 2 has no field 'k'" in failed(
        call("produce", "t", "--key", "k", stdin='{"k": 1}\n{"n": 1}')
    )
    assert sum(log.latest("t").values()) == 4


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("{oops", "is not JSON"), ("[1, 2]", "is not a JSON object but '[1, 2]'"),
        ('{"area": "a", "more": 1}', "no column 'more'"),
        ('{"area": "a", "celsius": "warm"}', "column 'celsius', a record has 'warm'"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_and_nothing_of_it_is_appended(call, log, bad, why):
    done(call("create", "t", "--schema", "area string, celsius double"))
    good = '{"area": "a", "celsius": 1}'
    said = failed(call("produce", "t", stdin=f"{good}\n\n{good}\n{bad}\n{good}\n"))
    assert "HR-LOG-006 line 4" in said
    assert why in said
    assert "Nothing of line 4 was appended" in said
    assert '{"area": ..., "celsius": ...}' in said
    assert "appended 2 records to 't'" in said
    assert log.latest("t") == {0: 2}


def test_describe_shows_settings_and_every_partition(call):
    done(call("create", "t", "--partitions", "2", "--retention", "12h"))
    done(call("produce", "t", "--partition", "1", stdin="a\nb\n"))
    said = done(call("describe", "t"))
    assert "columns    bytes" in said
    assert "retention  12h" in said
    rows = [line.split() for line in said.splitlines()[-3:]]
    assert rows[0] == ["partition", "earliest", "latest", "records", "size"]
    assert rows[1] == ["0", "0", "0", "0", "0", "B"]
    assert rows[2][:4] == ["1", "0", "2", "2"]

    info = json.loads(done(call("describe", "t", "--json")))
    assert (info["latest"], info["schema"]) == ([0, 2], None)
    assert json.loads(done(call("list", "--json"))) == [info]


def test_consume_stops_after_max_and_keeps_to_a_partition(call):
    done(call("create", "t", "--partitions", "2"))
    done(call("produce", "t", stdin="0\n1\n2\n3\n4\n5\n"))
    said = done(call("consume", "t", "--from-beginning", "--max", "4"))
    assert said.split() == ["0", "2", "4", "1"]
    assert done(call("consume", "t", "--from-beginning", "--max", "2", "--partition", "1")) == (
        "1\n3\n"
    )
    assert done(call("consume", "t", "--since", "1h", "--no-follow", "--max", "1")) == "0\n"
    assert done(call("consume", "t", "--since", "2100-01-01", "--no-follow")) == ""


def test_consume_begins_at_the_end_and_says_so_when_nothing_can_come(call):
    done(call("create", "t"))
    done(call("produce", "t", stdin="a\n"))
    result = call("consume", "t", "--no-follow")
    assert done(result) == ""
    assert "--from-beginning" in result.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["describe", "nope"], "HR-LOG-002"), (["produce", "nope"], "HR-LOG-002"),
        (["consume", "nope"], "HR-LOG-002"), (["delete", "nope", "--yes"], "HR-LOG-002"),
        (["create", "../x"], "HR-LOG-001"), (["create", "t"], "HR-LOG-003"),
        (["create", "x", "--partitions", "0"], "HR-LOG-004"),
        (["create", "x", "--retention-bytes", "much"], "HR-LOG-004"),
        (["create", "x", "--retention", "soon"], "HR-TIME-001"),
        (["create", "x", "--schema", "a strng"], "HR-SCHEMA-002"),
        (["create", "x", "--schema", "a string", "--key", "b"], "HR-LOG-004"),
        (["consume", "t", "--partition", "7"], "HR-LOG-005"),
        (["consume", "t", "--since", "soon"], "HR-LOG-004"),
        (["produce", "t", "--partition", "7"], "HR-LOG-005"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_with_a_code_and_a_hint(call, words, code):
    done(call("create", "t"))
    said = failed(call(*words, stdin="x\n"))
    assert code in said
    assert "\n  " in said  # the hint


def test_a_key_that_is_no_column_is_refused_before_anything_is_read(call):
    done(call("create", "t", "--schema", "area string"))
    assert "has no column 'nope'" in failed(call("produce", "t", "--key", "nope", stdin="{}"))


def test_an_empty_log_says_how_to_begin(call):
    result = call("list")
    assert done(result) == ""
    assert "headrace topic create NAME" in result.stderr


def test_delete_asks_and_takes_no_for_an_answer(call, log):
    done(call("create", "t"))
    assert call("delete", "t", stdin="n\n").exit_code == 1
    assert call("delete", "t", stdin="").exit_code == 1
    assert log.topics() == ["t"]
    assert call("delete", "t", stdin="y\n").exit_code == 0
    assert log.topics() == []


def test_the_folder_can_be_given(call, tmp_path):
    done(call("create", "t", "--log", str(tmp_path / "elsewhere")))
    assert EmbeddedLog(tmp_path / "elsewhere").topics() == ["t"]
    assert done(call("list")) == ""


@pytest.mark.parametrize("command", ["create", "list", "describe", "produce", "consume", "delete"])
def test_every_help_teaches_with_an_example(call, command):
    said = " ".join(done(call(command, "--help")).split())
    assert f"headrace topic {command}" in said.partition("Example:")[2]


SIZES = {"1000": 1_000, "1.5 kB": 1_500, "2MiB": 2 << 20, "3g": 3 * 10**9}


@pytest.mark.parametrize("text", SIZES)
def test_sizes_are_read_as_people_write_them(call, log, text):
    done(call("create", "t", "--retention-bytes", text))
    assert log.describe("t").retention_bytes == SIZES[text]


def test_follow_prints_what_comes_and_a_reader_that_leaves_is_no_error(call, log):
    done(call("create", "t"))
    command = [sys.executable, "-m", "headrace.cli.app", "topic", "consume", "t"]
    with subprocess.Popen(
        [*command, "--from-beginning"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        log.append("t", [b"one"])
        assert process.stdout.readline() == "one\n"
        log.append("t", [b"two"])
        assert process.stdout.readline() == "two\n"
        process.stdout.close()
        while process.poll() is None:
            log.append("t", [b"x" * 1_000] * 100)
        assert process.stderr.read() == ""
    assert process.returncode == 0


# Consumer groups


def test_a_group_goes_on_where_it_stopped_and_is_shown_reset_and_deleted(call, log):
    log.create("t", 2)
    log.append("t", [b"a", b"b", b"c", b"d"])
    first = done(call("consume", "t", "--group", "g", "--from-beginning", "--max", "1"))
    rest = done(call("consume", "t", "--group", "g", "--no-follow"))
    assert sorted((first + rest).split()) == ["a", "b", "c", "d"]
    assert done(call("consume", "t", "--group", "g", "--no-follow")) == ""
    assert done(call("groups")).split() == ["group", "topics", "members", "lag", "g", "t", "0", "0"]
    log.append("t", [b"e"], partition=1)
    shown = done(call("lag", "g"))
    assert shown.splitlines()[0].split() == [
        "topic",
        "partition",
        "committed",
        "latest",
        "lag",
        "read",
        "by",
    ]
    assert shown.splitlines()[2].split() == ["t", "1", "2", "3", "1", "nobody"]
    said = done(call("reset-offsets", "g", "t", "--to", "earliest"))
    assert said.splitlines()[1:] == ["t      0          2       0", "t      1          2       0"]
    assert done(call("reset-offsets", "g", "t", "--to", "1", "--partition", "1")).endswith("1\n")
    assert len(done(call("consume", "t", "--group", "g", "--no-follow")).split()) == 4
    done(call("reset-offsets", "g", "t", "--to", "10m ago"))
    assert sum(log.group("g").committed.values()) == 0
    fields = json.loads(done(call("lag", "g", "--json")))
    assert [p["lag"] for p in fields["partitions"]] == [2, 3]
    assert json.loads(done(call("groups", "--json")))[0]["name"] == "g"
    assert done(call("delete-group", "g", "--yes")) == "deleted group 'g'\n"
    assert "HR-LOG-025" in failed(call("lag", "g"))
    assert "--group" in call("groups").stderr


def test_a_new_group_starts_at_the_end_unless_told_otherwise(call, log):
    log.create("t")
    log.append("t", [b"old"])
    assert done(call("consume", "t", "--group", "g", "--no-follow")) == ""
    log.append("t", [b"new"])
    assert done(call("consume", "t", "--group", "g", "--no-follow")) == "new\n"


def test_a_group_that_a_reset_makes_is_said_to_be_new_and_only_made_if_the_place_is_there(
    call, log
):
    log.create("t")
    log.append("t", [b"a", b"b"])
    for wrong, code in (
        (("none", "--to", "latest"), "HR-LOG-002"),
        (("t", "--to", "latest", "--partition", "1"), "HR-LOG-005"),
        (("t", "--to", "3"), "HR-LOG-007"),
    ):
        assert code in failed(call("reset-offsets", "new", *wrong))
    assert log.groups() == []
    said = done(call("reset-offsets", "new", "t", "--to", "1"))
    assert said.splitlines()[0] == "created group 'new'"
    assert said.splitlines()[-1].split() == ["t", "0", "none", "1"]
    assert "created" not in done(call("reset-offsets", "new", "t", "--to", "0"))
    assert done(call("consume", "t", "--group", "new", "--no-follow")) == "a\nb\n"


def test_offsets_of_an_active_group_are_not_reset(call, log):
    log.create("t")
    with hr.Consumer("t", "g", log=log) as consumer:
        consumer.poll("0s")
        assert "HR-LOG-024" in failed(call("reset-offsets", "g", "t", "--to", "latest"))
        assert "HR-LOG-024" in failed(call("delete-group", "g", "--yes"))
    done(call("reset-offsets", "g", "t", "--to", "latest"))
    assert "HR-LOG-007" in failed(call("reset-offsets", "g", "t", "--to", "5"))
    assert "HR-LOG-005" in failed(call("reset-offsets", "g", "t", "--to", "0", "--partition", "3"))
    assert "HR-LOG-004" in failed(call("reset-offsets", "g", "t", "--to", "soon"))
    assert "HR-LOG-019" in failed(call("consume", "t", "--group", "g", "--since", "1h"))
