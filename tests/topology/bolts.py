"""Bolts that the tests of topologies share; those of the decks among them."""

from __future__ import annotations

from typing import Any, ClassVar

import headrace as hr


class Exclaim(hr.Bolt):
    output = "word string"

    def process(self, tup: Any, collector: Any) -> None:
        collector.emit([tup.word + "!!!"])


class Split(hr.Bolt):
    output = "word string"
    outputs: ClassVar[Any] = {"empty": "line string"}

    def process(self, tup: Any, collector: Any) -> None:
        words = tup.line.split()
        for word in words:
            collector.emit((word,))
        if not words:
            collector.emit({"line": tup.line}, "empty")


class Count(hr.Bolt):
    output = "word string, n bigint, task int"
    counts = hr.map_of(str, int)

    def process(self, tup: Any, collector: Any) -> None:
        if tup.word == "bad":
            raise ValueError("a bad word")
        n = self.counts[tup.word] = self.counts.get(tup.word, 0) + 1
        collector.emit((tup.word, n, collector.task))


class Seen(hr.Bolt):
    """Numbers the tuples of a task."""

    output = "task int, n bigint, v bigint"
    n = hr.value(int, default=0)

    def process(self, tup: Any, collector: Any) -> None:
        self.n += 1
        collector.emit((collector.task, self.n, tup.v))


def word_count(tasks: int = 3, splitters: int = 2, **options: Any) -> hr.Topology:
    topology = hr.Topology("words", **options)
    topology.bolt("out", "collect:").shuffle("count")  # in any order
    topology.bolt("count", Count(), tasks=tasks).fields("split", "word")
    topology.bolt("split", Split(), tasks=splitters).shuffle("lines")
    topology.bolt("none", "collect:").global_("split", "empty")
    topology.spout("lines", "log:lines", schema="line string")
    return topology


def numbered(tasks: int, grouping: str, *more: Any, **options: Any) -> hr.Topology:
    """Numbers by one grouping."""
    topology = hr.Topology("numbers", **options)
    topology.spout("numbers", "log:numbers", schema="v bigint")
    getattr(topology.bolt("seen", Seen(), tasks=tasks), grouping)("numbers", *more)
    topology.bolt("out", "collect:").shuffle("seen")
    return topology
