"""What identifies state in manifests, written out: a change here refuses the state of every user.

`tests/golden` has whole folders of earlier versions; this page is the same in words.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import headrace as hr
from headrace import ops
from headrace.ops.contract import Spec
from headrace.ops.process.state_kinds import ValueState
from headrace.plan.draft import place_name
from headrace.sources.memory import MemorySource

for module in pkgutil.walk_packages(ops.__path__, "headrace.ops."):
    importlib.import_module(module.name)

STEPS = {
    "PaneWindows": "WindowAgg",
    "FoldWindows": "WindowFold",
    "PaneFolds": "PaneFold",
    "GeneralWindows": "AnyWindow",
    "RowWindows": "RowWindow",
    "TriggeredRowWindows": "TriggeredRowWindow",
    "RunningAggregates": "Rolling",
    "RunningFold": "Fold",
    "ProcessSpec": "Process",
    "BoltSpec": "Bolt",
    "ShellBoltSpec": "Bolt",
}
WORDS = {
    "value": "Kept",
    "list": "KeptList",
    "map": "KeptMap",
    "last": "KeptLast",
    "running result": "KeptRunning",
    "shared map": "KeptShared",
    "operator value": "KeptOperatorValue",
    "operator list": "KeptOperatorList",
}
TEXTS = [
    (hr.tumbling("5s"), "tumbling 5s"),
    (hr.tumbling("1h", offset="15m"), "tumbling 1h offset 15m"),
    (hr.tumbling("1500ms"), "tumbling 1500ms"),
    (hr.sliding("60s", every="5s"), "sliding 1m every 5s"),
    (hr.session("10m"), "session gap 10m"),
    (hr.session(hr.col("gap")), "session gap `gap`"),
    (hr.cumulating("1d", every="1h"), "cumulating 1d every 1h"),
    (hr.everything(), "everything"),
    (hr.tumbling(rows=3), "3 rows"),
    (hr.sliding(rows=6, every_rows=2), "6 rows every 2"),
    (hr.delta("price", 5), "until price moves by more than 5 since first"),
    (hr.delta("price", 0.5, since="previous"), "until price moves by more than 0.5 since previous"),
    (hr.until("done"), "until done"),
    (hr.until("done", inside=False), "until before done"),
    (hr.sliding(rows=5, every="10s"), "last 5 rows every 10s"),
    (hr.sliding("1m", every_rows=3), "last 1m every 3 rows"),
    (hr.pattern("a", "x > 1").then("b", within="5s").within("1m"), "a then within 5s b within 1m"),
    (
        hr.pattern("a").next("b").times(2, 3).then_not("c").within("1h"),
        "a next b{2,3} then not c within 1h",
    ),
    (hr.calendar("month", zone="Europe/Berlin"), "calendar month in Europe/Berlin"),
]


def below(kind: type) -> Iterator[Any]:
    for one in kind.__subclasses__():
        yield from below(one)
        if not inspect.isabstract(one):
            yield one


def test_every_kind_of_step_is_known_by_the_name_it_always_had() -> None:
    known = {one.__name__: one.at_rest for one in below(Spec)}
    assert STEPS.items() <= known.items()
    assert {known[name] for name in known if name not in STEPS} == {"Apply"}


def test_every_kind_of_value_is_known_by_the_name_it_always_had() -> None:
    plain = {
        one.word: one.at_rest
        for one in [ValueState, *below(ValueState)]
        if one.at_rest != "WindowValue"
    }
    assert plain == WORDS
    assert type(hr.window_value(int)).at_rest == "WindowValue"


@pytest.mark.parametrize(("window", "text"), TEXTS)
def test_windows_and_patterns_are_known_by_the_same_text(window: Any, text: str) -> None:
    assert window.at_rest() == text


def test_what_users_classes_get_from_us_is_known_by_the_name_it_always_had() -> None:
    class Counts(hr.KeyedProcess):
        seen = hr.value(int, default=0, ttl="1h")

        def on_row(self, row: Any, ctx: Any) -> None: ...

    given = {n: vars(Counts)[n].__qualname__ for n in ("__getattr__", "__delattr__")}
    assert given == {"__getattr__": "_found", "__delattr__": "_forget"}


def test_the_name_of_an_input_that_a_program_makes_is_not_its_class():
    class Renamed(MemorySource):
        pass

    made = hr.rows([{"n": 1}])
    made.__class__ = Renamed

    assert place_name(made) == "memory"
    assert place_name(hr.generate(1, lambda i: {"n": i}, total=1)) == "generate"
