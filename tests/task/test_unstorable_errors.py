"""Errors whose text cannot be stored as it is: half a character, as in a name of a file that is no
text, or in what another program says."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness
from tests.topology.shells import python

HALF = "\ud800"


class Raises(hr.Bolt):
    output = "v bigint"

    def process(self, tup: Any, collector: Any) -> None:
        if tup.v == 2:
            raise FileNotFoundError(f"no {HALF}")
        collector.emit((tup.v,))


class Fails(hr.Bolt):
    output = "v bigint"

    def process(self, tup: Any, collector: Any) -> None:
        if tup.v == 2:
            collector.fail(tup, f"no {HALF}")
        collector.emit((tup.v,))


def raises(row: Any) -> dict[str, Any]:
    if row.v == 2:
        raise ValueError(f"no {HALF}")
    return {"v": row.v}


SAYS = {
    "an error": 'send(command="error", msg="no \\ud800"); fail()',
    "a reason": 'send(command="fail", id=id, msg="no \\ud800")',
    "an id": 'ack("no \\ud800")',
    "a stream": 'emit(1, stream="no \\ud800")',
    "its standard error": 'os.write(2, b"no \\xff\\n"); die()',
    "a value": 'emit("no \\ud800")',
}


def out_and_dead(build: Any) -> tuple[list[int], list[str]]:
    topology = hr.Topology("numbers")
    topology.spout("numbers", "log:numbers", schema="v bigint")
    build(topology)
    with Harness(topology) as test:
        test.send("numbers", [(v,) for v in range(4)])
        test.advance("1m")
        return [row["v"] for row in test.output("out")], [row["error"] for row in test.dead()]


def test_of_a_row_function() -> None:
    def build(topology: hr.Topology) -> None:
        rows = topology.stream("numbers").map(raises, schema="v bigint")
        rows.write("collect:", name="out")

    out, dead = out_and_dead(build)
    assert (out, dead) == ([0, 1, 3], ["ValueError: no \\ud800"])


@pytest.mark.parametrize("replays", [0, 1])
@pytest.mark.parametrize("bolt", [Raises, Fails])
def test_of_a_bolt(bolt: Any, replays: int) -> None:
    def build(topology: hr.Topology) -> None:
        topology.bolt("bolt", bolt(), max_replays=replays).shuffle("numbers")
        topology.bolt("out", "collect:").shuffle("bolt")

    out, dead = out_and_dead(build)
    assert sorted(out) == [0, 1, 3]
    assert len(dead) == 1
    assert "no \\ud800" in dead[0]


@pytest.mark.parametrize("replays", [0, 1])
@pytest.mark.parametrize("what", list(SAYS))
def test_of_a_program_in_another_language(what: str, replays: int) -> None:
    code = f"if values[0] == 2: {SAYS[what]}\nelse: emit(values[0]); ack()"

    def build(topology: hr.Topology) -> None:
        bolt = python(code, max_restarts=0)
        topology.bolt("bolt", bolt, max_replays=replays).shuffle("numbers")
        topology.bolt("out", "collect:").shuffle("bolt")

    out, dead = out_and_dead(build)
    assert sorted(out) == [0, 1, 3]
    assert len(dead) == 1
    assert "no " in dead[0]
