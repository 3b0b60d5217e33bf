"""Bolts in other languages, against plain Python; whatever their processes do."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.ops.topology import multilang_process, multilang_task
from headrace.ops.topology.multilang_process import running
from headrace.testing import Harness, drive
from tests.topology.shells import COMMANDS, PROGRAMS, SPLIT, needs, numbers, python, split_count

WORDS = st.lists(st.sampled_from(["a", "b", "cc", "bad", "d"]), max_size=4).map(" ".join)


class Words:
    """Word count in plain Python: lines that hold "bad" count for nothing."""

    def __init__(self) -> None:
        self.counts = Counter[str]()

    def send(self, lines: list[str]) -> tuple[list[tuple[str, int]], list[str], int]:
        counted = []
        good = [line.split() for line in lines if "bad" not in line.split()]
        for word in (word for words in good for word in words):
            self.counts[word] += 1
            counted.append((word, self.counts[word]))
        return sorted(counted), [line for line in lines if not line], len(lines) - len(good)


def sent(test: Harness, lines: list[str]) -> tuple[list[tuple[str, int]], list[str], int]:
    test.send("lines", [(line,) for line in lines])
    counted = sorted((row["word"], row["n"]) for row in test.output("out"))
    return counted, [row["line"] for row in test.output("none")], len(test.dead())


@pytest.mark.parametrize("language", list(COMMANDS))
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batches=st.lists(st.tuples(st.booleans(), st.lists(WORDS, max_size=6)), max_size=4),
    tasks=st.integers(1, 3),
)
def test_word_count_is_that_of_a_counter(language: str, batches: Any, tasks: int) -> None:
    model = Words()
    with Harness(split_count(needs(language), tasks), tasks=2) as test:
        for crash, lines in batches:
            if crash:
                test.crash()
            assert sent(test, lines) == model.send(lines)


GARBAGE = {
    "not JSON": "raw('{x')",
    "NaN": """raw('{"command":"emit","tuple":[NaN]}')""",
    "no object": "raw('[1]')",
    "nothing": "raw('')",
    "half a character": "emit('\\ud800')",
    "wrong type": "emit(5)",
    "too few fields": "emit()",
    "too many fields": "emit('a', 'b')",
    "no list": "send(command='emit', tuple='a')",
    "no tuple": "send(command='emit')",
    "unknown command": "send(command='dance')",
    "unknown stream": "emit('a', stream='nowhere')",
    "task of a stream that is not direct": "emit('a', task=1)",
    "unknown id": "ack('no')",
    "id that is no text": "ack(7)",
    "unknown anchor": "emit('a', anchors=['no'])",
    "anchors that are no list": "emit('a', anchors='no')",
    "acked twice": "emit('zz'); ack(); ack()",
    "emitted after the ack": "ack(); emit('zz')",
    "the input closed": "sys.stdin.close()",
    "the output closed": "sys.stdout.flush(); os.close(1); time.sleep(100)",
    "dies": "emit('zz'); die()",
    "is killed": "emit('zz'); sys.stdout.flush(); os.kill(os.getpid(), 9)",
    "hangs": "emit('zz'); sys.stdout.flush(); time.sleep(100)",
    "does not ack": "emit('zz'); values = ['']; ack = fail = lambda: None",
}


@pytest.mark.parametrize("what", list(GARBAGE))
def test_a_process_that_fails_is_restarted_and_its_tuples_are_sent_again(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = f"if n == 2 and once({str(tmp_path / 'once')!r}): {GARBAGE[what]}\n{SPLIT}"
    command = [*COMMANDS["python"][:2], code]
    model = Words()
    topology = split_count(command, 1, timeout="2s" if what in ("hangs", "does not ack") else "20s")
    with Harness(topology) as test, caplog.at_level(logging.WARNING):
        for lines in (["a b"], ["b", "c a", "", "bad a"], ["a"]):
            assert sent(test, lines) == model.send(lines)
    assert (tmp_path / "once").exists()
    then = "neither acked nor failed" if what == "does not ack" else "restart 1 of 3"
    assert any("bolt split[0]" in message and then in message for message in caplog.messages)


def test_a_process_that_fails_before_the_handshake(tmp_path: Path) -> None:
    bolt = hr.ShellBolt(["bash", "-c", "echo no >&2; exit 7"], "v bigint", max_restarts=1)
    match = r"(?s)HR-TOPOLOGY-041.*exit code 7.*no$"
    with Harness(numbers(bolt)) as test, pytest.raises(hr.StepError, match=match):
        test.send("numbers", [(1,)])


def test_a_process_lives_as_long_as_the_job_and_no_longer() -> None:
    with Harness(numbers(python("emit(os.getpid()); ack()"))) as test:
        pids = set()
        for batch in range(3):
            test.send("numbers", [(batch,), (batch,)])
            pids |= {row["v"] for row in test.output("out")}
        (pid,) = pids
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


def test_failed_tuples_are_dead_letters_and_what_was_anchored_to_them_is_not_emitted() -> None:
    code = """
v = values[0]
emit(v)
emit(10 + v, anchors=[])
send(command="error", msg=f"no {v}")
fail() if v % 2 else ack()
"""
    with Harness(numbers(python(code), max_replays=0)) as test:
        test.send("numbers", [(v,) for v in range(4)])
        assert [row["v"] for row in test.output("out")] == [0, 10, 11, 2, 12, 13]
        assert [row["error"] for row in test.dead()] == [
            "TupleFailedError: no 1",
            "TupleFailedError: no 3",
        ]


@pytest.mark.parametrize("crash", [False, True])
def test_failed_tuples_are_sent_again_as_those_of_other_bolts(crash: bool, tmp_path: Path) -> None:
    code = f"""
emit(values[0])
fails = values[0] % 2 and any(once({str(tmp_path)!r} + f"/{{values[0]}}{{i}}") for i in "ab")
fail() if fails else ack()
"""
    with Harness(numbers(python(code), max_replays=2, backoff="1s")) as test:
        test.send("numbers", [(v,) for v in range(4)])
        found = [row["v"] for row in test.output("out")]
        assert found == [0, 2]
        for _ in range(3):
            if crash:
                test.crash()
            test.advance("3s")
            found += [row["v"] for row in test.output("out")]
        assert (found, test.dead()) == ([0, 2, 1, 3], [])


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 5), (4, 1)])
def test_tuples_that_wait_go_to_some_task_of_another_number(
    before: int, after: int, tmp_path: Path
) -> None:
    code = f"emit(*values); fail() if once({str(tmp_path)!r} + f'/{{values[0]}}') else ack()"
    folder = tmp_path / "job"
    with Harness(numbers(python(code), before, backoff="1m"), folder=folder) as test:
        test.send("numbers", [(v,) for v in range(8)])
        assert test.output("out") == []
        test.restart(numbers(python(code), after, backoff="1m"))
        test.advance("1m")
        assert sorted(row["v"] for row in test.output("out")) == list(range(8))
        assert test.dead() == []


def test_tuples_may_be_acked_together_and_anchored_to_several() -> None:
    code = """
waiting = globals().setdefault("waiting", []) + [id]
if values[0] == 5:
    emit(len(waiting), anchors=waiting)
    [ack(i) for i in reversed(waiting)]
"""
    with Harness(numbers(python(code))) as test:
        test.send("numbers", [(v,) for v in range(6)])
        assert [row["v"] for row in test.output("out")] == [6]


@pytest.mark.parametrize("size", [10, 300_000])
def test_pipes_never_fill_up(size: int) -> None:
    """Neither by what it writes before it reads, nor by answers that it waits for."""
    waits = """
def receive_ids():
    sys.stdout.flush()
    while True:
        found = receive()
        if isinstance(found, list): return found
        later.append(found)
later = globals().setdefault("later", [])
for message in [message]:
    emit("x" * len(values[0]), need_task_ids=True)
    receive_ids()
    ack()
while later:
    message = later.pop(0)
    if message["stream"] == "__heartbeat":
        send(command="sync")
        continue
    id, values = message["id"], message["tuple"]
    emit("x" * len(values[0]), need_task_ids=True)
    receive_ids()
    ack()
"""
    count = 2_000_000 // max(size, 1_000)
    with Harness(numbers(python(waits, "s string"), schema="s string")) as test:
        test.send("numbers", [("y" * size,)] * count)
        assert [len(row["s"]) for row in test.output("out")] == [size] * count


def test_direct_streams(tmp_path: Path) -> None:
    bolt = python("emit(values[0], stream='to', task=values[0] % 3); ack()", None,
                  streams={"to": "v bigint"}, direct=("to",))  # fmt: skip

    class Where(hr.Bolt):
        output = "v bigint, task int"

        def process(self, tup: Any, collector: Any) -> None:
            collector.emit((tup.v, collector.task))

    topology = hr.Topology("direct")
    topology.spout("numbers", hr.rows([{"v": v} for v in range(7)]))
    topology.bolt("bolt", bolt).shuffle("numbers")
    topology.bolt("where", Where(), tasks=3).direct("bolt", "to")
    topology.bolt("out", "collect:").shuffle("where")
    found = drive(topology, tmp_path).output("out").to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(v, v % 3) for v in range(7)]


def test_what_the_handshake_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    code = """
context = setup["context"]
emit(json.dumps([context["componentid"], context["taskid"], context["source->stream->fields"],
     context["task->component"][str(message["task"])], message["comp"], os.getcwd(),
     os.environ.get("SECRET_TOKEN"), os.environ.get("LEVEL"),
     os.listdir(setup["pidDir"]) == [str(os.getpid())]]))
ack()
"""
    bolt = python(code, "s string", env={"LEVEL": "3"}, cwd=tmp_path)
    with Harness(numbers(bolt)) as test:
        test.send("numbers", [(1,)])
        (row,) = test.output("out")
    place, fields = str(tmp_path.resolve()), {"numbers": {"default": ["v"]}}

    assert json.loads(row["s"]) == ["bolt", 0, fields, "numbers", "numbers", place, None, "3", True]


def test_its_log_and_standard_error_are_logged_under_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    code = """
send(command="log", msg="one", level=3)
send(command="log", msg="two")
print("three", file=sys.stderr, flush=True)
ack()
"""
    with Harness(numbers(python(code), tasks=1)) as test, caplog.at_level(logging.INFO):
        test.send("numbers", [(1,)])
    said = {(r.levelno, r.getMessage()) for r in caplog.records if r.name == "headrace.multilang"}
    assert said >= {
        (logging.WARNING, "bolt bolt[0]: one"),
        (logging.INFO, "bolt bolt[0]: two"),
        (logging.WARNING, "bolt bolt[0]: three"),
    }


def test_a_tuple_that_belongs_to_no_batch_stops_the_job() -> None:
    code = """
import threading
ack()
def late():
    time.sleep(0.3)
    emit(7, anchors=[])
    sys.stdout.flush()
threading.Thread(target=late).start()
"""
    with Harness(numbers(python(code))) as test:
        test.send("numbers", [(1,)])
        time.sleep(0.8)  # by its own clock
        with pytest.raises(hr.StepError, match=r"HR-TOPOLOGY-044.*emitted \[7\]"):
            test.send("numbers", [(2,)])


def test_what_a_process_emits_when_it_starts_belongs_to_its_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if it is faster than the first tuple that is sent to it."""

    def waited_for(key: Any, start: Any) -> Any:
        child = running(key, start)
        while not (child.ids or child._whole or child._received or child.wait(False, 1)[0]):
            pass  # what it emits came with its handshake, or is to be read
        return child

    monkeypatch.setattr(multilang_task, "running", waited_for)
    command = [sys.executable, str(PROGRAMS / "starting.py"), str(tmp_path / "once")]
    bolt = hr.ShellBolt(command, "v bigint", timeout="20s")
    with Harness(numbers(bolt)) as test, caplog.at_level(logging.INFO):
        test.send("numbers", [(1,), (2,)])
        assert sorted(row["v"] for row in test.output("out")) == [-1, 1, 2]
        test.send("numbers", [(3,)])
        assert [row["v"] for row in test.output("out")] == [3]
        test.send("numbers", [(4,), (5,)])  # the process dies at 5, once
        assert sorted(row["v"] for row in test.output("out")) == [-1, 4, 5]
    assert "bolt bolt[0]: metric started 1" in caplog.messages


# what is refused


@pytest.mark.parametrize(
    ("command", "words"),
    [("node split.js", r"\['node', 'split.js'\]"), ([], "no list"), (["a", 5], "no list"),
     ([""], "no list"), (b"cat", r"\['cat'\]")],
)  # fmt: skip
def test_a_command_is_a_list(command: Any, words: str) -> None:
    with pytest.raises(hr.PlanError, match=rf"(?s)HR-TOPOLOGY-040.*{words}"):
        hr.ShellBolt(command, "v bigint")


@pytest.mark.parametrize(
    "options", [{"timeout": "0s"}, {"max_restarts": -1}, {"max_restarts": True}, {"env": {"A": 1}}]
)
def test_options_are_checked(options: Any) -> None:
    with pytest.raises(hr.PlanError, match="HR-TOPOLOGY-040"):
        hr.ShellBolt(["cat"], "v bigint", **options)


def test_types_without_a_form_as_json_are_refused_when_built() -> None:
    bolt = hr.ShellBolt(["cat"], pa.schema([("t", pa.time64("us"))]))
    with pytest.raises(hr.PlanError, match=r"HR-TOPOLOGY-045.*'t'"):
        numbers(bolt).check()


@pytest.mark.parametrize(
    ("command", "options", "code"),
    [(["no-such-program"], {}, "HR-TOPOLOGY-042"), (["./no"], {}, "HR-TOPOLOGY-042"),
     (["cat"], {"cwd": "/no/such/folder"}, "HR-TOPOLOGY-043")],
)  # fmt: skip
def test_a_program_that_is_not_there(command: list[str], options: Any, code: str) -> None:
    topology = numbers(hr.ShellBolt(command, "v bigint", **options))
    with Harness(topology) as test, pytest.raises(hr.StepError, match=code):
        test.send("numbers", [(1,)])


# changes between runs


def test_another_command_goes_on_and_other_fields_are_judged_as_for_other_bolts(
    tmp_path: Path,
) -> None:
    for code in ("emit(values[0]); ack()", "emit(10 + values[0]); ack()"):
        topology = numbers(python(code))
        with Harness(topology, folder=tmp_path) as test:
            test.send("numbers", [(1,), (2,)])
            last = [row["v"] for row in test.output("out")]
    assert last[-2:] == [11, 12]
    with pytest.raises(hr.OutputError, match="HR-OUTPUT-006"):
        Harness(numbers(python("emit('x'); ack()", "v string")), folder=tmp_path)


@pytest.mark.spark
def test_a_splitter_in_node_on_spark(tmp_path: Path) -> None:
    model, topology = Words(), split_count(needs("node"))
    with Harness(topology, on="spark", folder=tmp_path, tasks=2) as test:
        for lines in (["a b a", "", "c bad"], ["a c"]):
            assert sent(test, lines) == model.send(lines)
            test.crash()


def test_a_bounded_input_in_small_batches(tmp_path: Path) -> None:
    topology = hr.Topology("bounded")
    topology.spout("numbers", hr.rows([{"v": v} for v in range(25)]))
    topology.bolt("twice", python("emit(2 * values[0]); ack()"), tasks=2).shuffle("numbers")
    topology.bolt("out", "collect:").shuffle("twice")
    found = drive(topology, tmp_path, max_batch=4).output("out").column("v").to_pylist()
    assert sorted(found) == [2 * v for v in range(25)]


@pytest.mark.parametrize("piece", [1, 7])
def test_messages_may_be_cut_anywhere(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilang_process, "_PIECE", piece)
    model = Words()
    with Harness(split_count(COMMANDS["python"], 1)) as test:
        for lines in (["a bb", "", "bad"], ["bb é a"]):
            assert sent(test, lines) == model.send(lines)


def together(newline: str, *more: str) -> hr.ShellBolt:
    command = [sys.executable, str(PROGRAMS / "together.py"), newline, *more]
    return hr.ShellBolt(command, "v bigint", timeout="5s", max_restarts=0)


@pytest.mark.parametrize("batch", [2, 100])
def test_a_tuple_in_one_write_with_the_sync_stops_the_job(batch: int, tmp_path: Path) -> None:
    topology = hr.Topology("after")
    topology.spout("numbers", hr.rows([{"v": i} for i in range(6)]))
    topology.bolt("bolt", together("LF", "after")).shuffle("numbers")
    topology.bolt("out", "collect:").shuffle("bolt")
    with pytest.raises(hr.StepError, match="HR-TOPOLOGY-044"):
        drive(topology, str(tmp_path / "job"), max_batch=batch)


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    topology = hr.Topology("crlf")
    topology.spout("numbers", hr.rows([{"v": i} for i in range(6)]))
    topology.bolt("bolt", together("CRLF")).shuffle("numbers")
    topology.bolt("out", "collect:").shuffle("bolt")
    found = drive(topology, str(tmp_path / "job"), max_batch=2).output("out")
    assert found.column("v").to_pylist() == [7] * 6
