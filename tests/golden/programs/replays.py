"""Topologies: tuples that wait, to be processed again or to be acked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
from tests.golden.programs.base import PROGRAMS, Program, readings


class Fails(hr.Bolt):
    """Every third reading fails at its first attempts, every ninth at all."""

    output = "id bigint, attempt int, n bigint"
    n = hr.value(int, default=0)

    def process(self, tup: Any, collector: Any) -> None:
        self.n += 1
        collector.emit((tup.id, collector.attempt, self.n))
        if tup.id % 9 == 0 or (tup.id % 3 == 0 and collector.attempt < 2):
            collector.fail(tup, f"{tup.id} at attempt {collector.attempt}")


class Pairs(hr.Bolt):
    """Two readings of an area are acked together; what is emitted for both waits until then."""

    output = "area string, id bigint"
    outputs: ClassVar[Any] = {"seen": "id bigint"}
    acks = True
    first = hr.map_of(str, str)

    def process(self, tup: Any, collector: Any) -> None:
        collector.emit((tup.area, tup.id), anchors=tup)
        collector.emit((tup.id,), "seen")
        other = self.first.pop(tup.area or "", None)
        if other in (None, collector.id):
            self.first[tup.area or ""] = collector.id
        else:
            collector.ack(other)
            collector.ack(tup)


def build(root: Path) -> hr.Topology:
    topology = hr.Topology("replays", slots=4)
    topology.spout("read", readings(root, topology))
    topology.bolt("fails", Fails(), 2, max_replays=2, backoff="6s").fields("read", "area")
    topology.bolt("pairs", Pairs(), 2, max_replays=1, timeout="20s").fields("read", "area")
    counts = topology.stream("fails").window(hr.tumbling("5s")).agg(n=hr.count())
    counts.write("collect:", name="counts out")
    for name in ("fails", "pairs"):
        topology.bolt(f"{name} out", "collect:").shuffle(name)
    topology.bolt("seen out", "collect:").shuffle("pairs", "seen")
    return topology


PROGRAMS["replays"] = Program("replays", build, ("readings",))
