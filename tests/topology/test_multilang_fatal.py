"""Tuples that the process of a bolt in another language does not survive, and broken programs."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness, drive
from tests.topology.shells import COMMANDS, PROGRAMS, needs, numbers, python, split_count

FATAL = {
    "dies": ("die(4)", "ended with exit code 4"),
    "is killed": ("os.kill(os.getpid(), 9)", "died by the signal SIGKILL"),
    "emits first": ("emit(99); emit(98, anchors=[]); ack(); die(4)", "ended with exit code 4"),
    "writes garbage": ("raw('{x'); ack()", "wrote what is not JSON"),
    "emits what does not fit": ("emit('x'); ack()", "field 'v' (bigint) cannot be \"x\""),
    "hangs": ("sys.stdout.flush(); time.sleep(100)", "hangs: for 1s"),
}


def dead(test: Harness) -> list[tuple[Any, str]]:
    return sorted((json.loads(row["record"])["v"], row["error"]) for row in test.dead())


@pytest.mark.parametrize("way", list(FATAL))
def test_a_tuple_that_is_never_survived_is_a_dead_letter_and_all_others_are_processed_once(
    way: str,
) -> None:
    code, why = FATAL[way]
    count, fatal = (5, {3}) if way == "hangs" else (23, {0, 7, 8, 22})
    bolt = python(
        f"print('I cannot go on', file=sys.stderr, flush=True) if values[0] in {fatal} else None\n"
        f"if values[0] in {fatal}: {code}\nelse: emit(values[0]); ack()",
        timeout="1s" if way == "hangs" else "20s",
        max_restarts=1,
    )
    with Harness(numbers(bolt, max_replays=1)) as test:
        test.send("numbers", [(v,) for v in range(count)])
        out = [row["v"] for row in test.output("out")]
        found = dead(test)
        test.send("numbers", [(100,)])
        assert [row["v"] for row in test.output("out")] == [100]
    assert sorted(out) == sorted(set(range(count)) - fatal)
    assert [v for v, _ in found] == sorted(fatal)
    for _, error in found:
        assert why in error
        assert "its standard error ends with: I cannot go on" in error
        assert error.endswith("; attempts: 2")


@pytest.mark.parametrize("language", list(COMMANDS))
def test_in_every_language(language: str) -> None:
    topology = split_count(needs(language), tasks=2, max_restarts=0)
    with Harness(topology) as test:
        test.send("lines", [(line,) for line in ["a b", "die a", "", "b", "a die", "c", "a"]])
        counted = sorted((row["word"], row["n"]) for row in test.output("out"))
        errors = [row["error"] for row in test.dead()]
    assert counted == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1)]
    assert len(errors) == 2
    assert all("exit code 5" in e and "I cannot go on; attempts: 4" in e for e in errors)


def test_the_number_of_starts_is_bounded(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    code = f"""
if n == 1:
    open({str(starts)!r}, "a").write("x")
die() if values[0] in (5, 90) else ack()
"""
    with Harness(numbers(python(code, max_restarts=2), max_replays=1)) as test:
        test.send("numbers", [(v,) for v in range(100)])
        assert [v for v, _ in dead(test)] == [5, 90]
    halves = 2 * math.ceil(math.log2(100))
    assert len(starts.read_text()) <= 1 + 3 + halves + 3  # the last: they are sent once more


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_program_that_dies_whatever_it_is_sent_stops_the_job(count: int) -> None:
    bolt = python("emit(1); die(4)", max_restarts=1)
    with Harness(numbers(bolt)) as test, pytest.raises(hr.StepError) as raised:
        test.send("numbers", [(v,) for v in range(count)])
    assert raised.value.code == "HR-TOPOLOGY-041"
    for words in ("bolt bolt[0]", "exit code 4", "I cannot go on"):
        assert words in str(raised.value)


def test_a_program_that_breaks_stops_the_job_and_no_more_than_a_batch_is_lost(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "broken"
    code = f"die() if os.path.exists({str(broken)!r}) else (emit(values[0]), ack())"
    with Harness(numbers(python(code, max_restarts=0), backoff="1h")) as test:
        test.send("numbers", [(1,), (2,)])
        broken.touch()
        with pytest.raises(hr.StepError, match="HR-TOPOLOGY-041"):
            for v in range(3, 9):
                test.send("numbers", [(v,), (10 * v,)])
        assert test.dead() == []


def test_a_program_that_no_longer_starts_stops_the_job(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    code = f"emit(values[0]); ack()\nif values[0] == 3: open({str(broken)!r}, 'w'); die(9)"
    command = python(code).command.arguments
    launch = ["bash", "-c", f'[ -e {broken} ] && exit 7; exec "$@"', "launch", *command]
    bolt = hr.ShellBolt(launch, "v bigint", timeout="20s", max_restarts=1)
    with Harness(numbers(bolt)) as test:
        test.send("numbers", [(1,), (2,)])
        with pytest.raises(hr.StepError, match=r"(?s)HR-TOPOLOGY-041.*2 times.*exit code 7"):
            test.send("numbers", [(3,), (4,)])


def test_a_tuple_alone_that_kills_a_process_which_has_survived_others_is_a_dead_letter() -> None:
    code = "die(4) if values[0] == 2 else (emit(values[0]), ack())"
    with Harness(numbers(python(code, max_restarts=1), max_replays=2)) as test:
        for v in (1, 2, 3):
            test.send("numbers", [(v,)])
        assert [row["v"] for row in test.output("out")] == [1, 3]
        ((v, error),) = dead(test)
        assert (v, error.endswith("attempts: 3")) == (2, True)


def test_a_fatal_tuple_waits_over_a_crash_and_nothing_else_is_repeated() -> None:
    code = "die(4) if values[0] == 2 else (emit(values[0]), ack())"
    bolt = python(code, max_restarts=0)
    with Harness(numbers(bolt, max_replays=1, backoff="10s")) as test:
        test.send("numbers", [(v,) for v in range(6)])
        found = sorted(row["v"] for row in test.output("out"))
        assert (found, test.dead()) == ([0, 1, 3, 4, 5], [])
        test.crash()
        test.advance("20s")
        assert test.output("out") == []
        assert [v for v, _ in dead(test)] == [2]


def test_on_error_fail_stops_at_a_fatal_tuple(tmp_path: Path) -> None:
    topology = hr.Topology("numbers", on_error="fail", max_replays=0)
    topology.spout("numbers", hr.rows([{"v": v} for v in range(5)]))
    bolt = python("die(4) if values[0] == 2 else (emit(values[0]), ack())", max_restarts=0)
    topology.bolt("bolt", bolt).shuffle("numbers")
    topology.bolt("out", "collect:").shuffle("bolt")
    with pytest.raises(hr.StepError, match=r"(?s)exit code 4.*I cannot go on"):
        drive(topology, tmp_path)


@pytest.mark.parametrize("acks", [False, True])
def test_a_tuple_that_is_never_acked_is_a_dead_letter(acks: bool) -> None:
    """Without `acks` the batch waits for it, with it the tuple waits."""
    code = "emit(values[0])\nif values[0] % 4 != 1: ack()"
    bolt = python(code, timeout="1s", acks=acks)
    with Harness(numbers(bolt, max_replays=1, timeout="10s")) as test:
        test.send("numbers", [(v,) for v in range(6)])
        out = [row["v"] for row in test.output("out")]
        test.advance("11s")
        test.advance("11s")
        found = dead(test)
        assert [*out, *(row["v"] for row in test.output("out"))] == [0, 2, 3, 4]
    assert [v for v, _ in found] == [1, 5]
    assert all("neither acked nor failed within 1" in error for _, error in found)


@pytest.mark.parametrize("said", [(), ("said",)])
@pytest.mark.parametrize("group", [2, 100])
def test_a_program_that_dies_when_it_processes_what_it_has_stored(
    group: int, said: tuple[str, ...]
) -> None:
    """As a bolt that writes to a database: what it dies of may have come long before."""
    command = [sys.executable, str(PROGRAMS / "stores.py"), str(group), *said, "1", "4"]
    bolt = hr.ShellBolt(command, "v bigint", acks=True, tick_every="10s", max_restarts=1)
    with Harness(numbers(bolt, max_replays=1, timeout="60s")) as test:
        for first in range(0, 9, 3):
            test.send("numbers", [(v,) for v in range(first, first + 3)])
            test.advance("10s")
        for _ in range(4):
            test.advance("61s")
        assert sorted(row["v"] for row in test.output("out")) == [0, 2, 3, 5, 6, 7, 8]
        found = dead(test)
    assert [v for v, _ in found] == [1, 4]
    assert all("exit code 4" in error for _, error in found)


def test_a_tuple_is_not_blamed_for_another_that_the_process_has_stored() -> None:
    """Without ticks it cannot be found: it waits until its time is over, and others go on."""
    command = [sys.executable, str(PROGRAMS / "stores.py"), "2", "4"]
    bolt = hr.ShellBolt(command, "v bigint", acks=True, max_restarts=0)
    with Harness(numbers(bolt, max_replays=1, timeout="60s")) as test:
        for v in range(4):
            test.send("numbers", [(v,)])
        for v in range(4, 10):
            test.send("numbers", [(v,)])
        assert dead(test) == []
