"""Attributes of bolts that are not declared: what changes of them is never lost silently."""

from __future__ import annotations

import datetime
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import headrace as hr
from headrace.ops.topology import attributes
from headrace.ops.topology.attributes import unwatched
from headrace.testing import Harness


class Counter:
    def __init__(self) -> None:
        self.n = 0

    def add(self) -> None:
        self.n += 1


@dataclass(frozen=True)
class Frozen:
    of: Any


class Named(NamedTuple):
    of: Any


def function() -> None:
    pass


@pytest.mark.parametrize(
    "value",
    [
        None, 1, "a", b"a", 1.5, (1, "a"), frozenset({1}), [1, [2]], {"a": {"b": [1]}}, {1, 2},
        re.compile("a"), datetime.datetime(2026, 1, 1), datetime.UTC, Path("a"), Frozen(1), int,
        Named(2), function, functools.partial(function, 1), np.int64(1), len, re, "a".upper,
        [Frozen("a")], bytearray(b"a"),
    ],
)  # fmt: skip
def test_watched(value: Any) -> None:
    assert unwatched(value) is None


@pytest.mark.parametrize(
    "value",
    [
        Counter(), [Counter()], {"a": [Counter()]}, (1, Counter()), Frozen(Counter()), object(),
        Frozen([1]), ([1],), Named([1]), Counter().add, functools.partial(function, []),
        np.zeros(2), iter([1]), lambda: 1,
    ][:-1],
)  # fmt: skip
def test_not_watched(value: Any) -> None:
    assert unwatched(value) is not None


def test_a_large_container_holds_only_what_cannot_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "_LARGE", 2)
    assert unwatched([1, 2, 3]) is None and unwatched([[1], [2]]) is None
    assert unwatched([[1], [2], [3]]) == [1]


class Holds(hr.Bolt):
    output = "n bigint"

    def __init__(self) -> None:
        self.counter = Counter()

    def process(self, tup: Any, collector: Any) -> None:
        self.counter.add()
        collector.emit((self.counter.n,))


class Prepares(hr.Bolt):
    output = "n bigint"

    def prepare(self, context: Any) -> None:
        self.counter = Counter()

    process = Holds.process


class Says(Holds):
    transient = ("counter",)


def topology(bolt: hr.Bolt) -> hr.Topology:
    made = hr.Topology("holds")
    made.spout("numbers", "log:numbers", schema="v bigint")
    made.bolt("holds", bolt).shuffle("numbers")
    made.bolt("out", "collect:").shuffle("holds")
    return made


def test_refused_when_built_or_when_prepared() -> None:
    with pytest.raises(hr.PlanError, match=r"HR-TOPOLOGY-033.*self.counter.*of Counter"):
        topology(Holds()).check()
    with (
        Harness(topology(Prepares())) as test,
        pytest.raises(hr.PlanError, match=r"HR-TOPOLOGY-033.*self.counter"),
    ):
        test.send("numbers", [(1,)])
    with Harness(topology(Says())) as test:
        test.send("numbers", [(1,)])
        assert [row["n"] for row in test.output("out")] == [1]


class ClassDict(hr.Bolt):
    output = "n bigint"
    counts = {}  # noqa: RUF012

    def process(self, tup: Any, collector: Any) -> None:
        self.counts[tup.n] = 1
        collector.emit((len(self.counts),))


class ClassSet(hr.Bolt):
    output = "n bigint"
    seen: set[int] = set()  # noqa: RUF012

    def process(self, tup: Any, collector: Any) -> None:
        type(self).seen.add(tup.n)
        collector.emit((1,))


class ClassNumber(hr.Bolt):
    output = "n bigint"
    total = 0

    def process(self, tup: Any, collector: Any) -> None:
        type(self).total += tup.n
        collector.emit((self.total,))


class Constants(hr.Bolt):
    output = "n bigint"
    WORDS = {1: "one", 2: "two"}  # noqa: RUF012

    def process(self, tup: Any, collector: Any) -> None:
        for _ in (*self.WORDS.get(tup.n, ()), *()):
            pass
        collector.emit((len(self.WORDS),))


def _of(bolt: hr.Bolt) -> hr.Topology:
    made = hr.Topology("attributes")
    made.spout("numbers", "log:numbers", schema="n bigint")
    made.bolt("bolt", bolt, tasks=2).shuffle("numbers")
    made.bolt("out", "collect:").shuffle("bolt")
    return made


@pytest.mark.parametrize("kind", [ClassDict, ClassSet, ClassNumber])
def test_what_a_class_holds_may_not_change_either(kind: Any) -> None:
    with pytest.raises(hr.HeadraceError, match="HR-TOPOLOGY-021"), Harness(_of(kind())) as test:
        test.send("numbers", [(1,), (2,), (3,)])


def test_constants_of_a_class_are_read() -> None:
    with Harness(_of(Constants())) as test:
        for _ in range(2):
            test.send("numbers", [(1,), (2,), (3,)])
            assert test.output("out") == [{"n": 2}] * 3
    assert Constants.WORDS == {1: "one", 2: "two"}


def test_an_object_in_a_class_must_be_named_transient() -> None:
    class Holds(hr.Bolt):
        output = "n bigint"
        counter = Counter()

        def process(self, tup: Any, collector: Any) -> None:
            self.counter.add()

    with pytest.raises(hr.PlanError, match="HR-TOPOLOGY-033"):
        _of(Holds()).check()
