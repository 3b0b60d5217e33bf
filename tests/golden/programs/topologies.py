"""Topologies: state by task, ticks, windows of tasks, and every grouping."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
from tests.golden.programs.base import PROGRAMS, Program, readings


class Highest(hr.Bolt):
    """The highest reading of each area of a task, and at ticks how many areas there are."""

    output = "area string, celsius double, task int"
    outputs: ClassVar[Any] = {"ticks": "task int, areas int, n bigint"}
    tick_every = "10s"
    tick_by = "event"
    highest = hr.map_of(str, float)
    n = hr.value(int, default=0)

    def process(self, tup: Any, collector: Any) -> None:
        self.n += 1
        if tup.celsius is not None and tup.celsius > self.highest.get(tup.area or "", -1e9):
            self.highest[tup.area or ""] = tup.celsius
            collector.emit((tup.area, tup.celsius, collector.task))

    def tick(self, collector: Any) -> None:
        collector.emit((collector.task, len(self.highest), self.n), "ticks")


class Tally(hr.Bolt):
    output = "task int, n bigint, id bigint"
    n = hr.value(int, default=0)

    def process(self, tup: Any, collector: Any) -> None:
        self.n += 1
        collector.emit((collector.task, self.n, tup.id))


class Send(hr.Bolt):
    output = "id bigint"
    direct = ("default",)

    def process(self, tup: Any, collector: Any) -> None:
        collector.emit_direct(tup.id % 3, (tup.id,))


def by_id(tup: Any, tasks: int) -> list[int]:
    return [tup.id % tasks, (tup.id + 1) % tasks]


def counted(key: Any, window: Any, rows: Any) -> Any:
    return (len(rows),)


def build(root: Path) -> hr.Topology:
    topology = hr.Topology("topologies", slots=4)
    topology.spout("read", readings(root, topology))
    topology.bolt("highest", Highest(), tasks=3).fields("read", "area")
    topology.bolt("send", Send(), tasks=2).local("read")
    topology.bolt("direct", Tally(), tasks=3).direct("send")
    topology.bolt("shuffle", Tally(), tasks=5).shuffle("read")
    topology.bolt("all", Tally(), tasks=2).all("read")
    topology.bolt("global", Tally(), tasks=2).global_("read")
    topology.bolt("custom", Tally(), tasks=4).custom("read", by_id)
    window = hr.tumbling("5s")
    topology.bolt("window", counted, 3, window=window, schema="n bigint").fields("read", "area")
    for name in ("highest", "direct", "shuffle", "all", "global", "custom", "window"):
        topology.bolt(f"{name} out", "collect:").shuffle(name)
    topology.bolt("ticks out", "collect:").shuffle("highest", "ticks")
    return topology


PROGRAMS["topologies"] = Program("topologies", build, ("readings",))
