"""What a topology cannot mean is refused when it is built, with the user's line."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import headrace as hr
from headrace.hashing import hash_alike, hash_keys
from headrace.testing import Harness, drive
from tests.topology.bolts import Exclaim, Seen, Split


def topology() -> hr.Topology:
    made = hr.Topology("t")
    made.spout("lines", hr.rows([{"line": "a"}]))
    made.bolt("split", Split()).shuffle("lines")
    made.bolt("out", "collect:").shuffle("split")
    return made


class Quiet(hr.Bolt):
    def process(self, tup: Any, collector: Any) -> None:
        pass


class Nothing(hr.Bolt):
    output = "a string"


class Yields(hr.Bolt):
    output = "a string"

    def process(self, tup: Any, collector: Any) -> Any:
        yield ("a",)


class Short(hr.Bolt):
    output = "a string"

    def process(self, tup: Any) -> None:  # type: ignore[override]
        pass


class OnRow(hr.Bolt):
    output = "a string"

    def process(self, tup: Any, collector: Any) -> None:
        pass

    def on_lines(self, row: Any, ctx: Any) -> None:
        pass


class Assigns(Quiet):
    def process(self, tup: Any, collector: Any) -> None:
        self.last = tup


class ByTask(Quiet):
    n = hr.operator_value(int)


class NoTick(Quiet):
    tick_every = "10s"


class Untimed(Quiet):
    def tick(self, collector: Any) -> None:
        pass


class ByEvent(Untimed):
    tick_every = "10s"
    tick_by = "event"


class Direct(Quiet):
    direct = ("other",)


class Default(Quiet):
    output = "a string"
    outputs: ClassVar[Any] = {"default": "a string"}


REFUSED: list[tuple[str, str, Callable[[hr.Topology], object]]] = [
    ("001", "two components are called 'split'",
        lambda t: t.bolt("split", Split()).shuffle("lines")),
    ("002", "has 0 tasks", lambda t: t.bolt("b", Quiet(), tasks=0).shuffle("lines")),
    ("003", "whose splits say", lambda t: t.spout("s", hr.rows([{"a": 1}]), tasks=2)),
    ("004", "has no option 'partitions'",
        lambda t: t.bolt("b", Quiet(), partitions=2).shuffle("lines")),
    ("004", "has no option 'time'", lambda t: t.spout("s", t.stream("split"), time="a")),
    ("005", "there is no component 'line'", lambda t: t.bolt("b", Quiet()).shuffle("line")),
    ("006", "'out' emits nothing", lambda t: t.bolt("b", Quiet()).shuffle("out")),
    ("007", "the bolt 'b' reads nothing", lambda t: t.bolt("b", Quiet())),
    ("008", "reads 'lines' twice", lambda t: t.bolt("b", Quiet()).shuffle("lines").all("lines")),
    ("009", "fields names no field of 'lines'", lambda t: t.bolt("b", Quiet()).fields("lines")),
    ("011", "sends tuples back to 'a', and its fields are not declared", lambda t: (
        t.bolt("a", Exclaim()).shuffle("c").shuffle("split"), t.bolt("b", Exclaim()).shuffle("a"),
        t.bolt("c", _Process()).fields("b", "word"),
    )),
    ("013", "'a' has no stream 'again'", lambda t:
        t.bolt("a", Exclaim()).shuffle("split").shuffle("a", "again")),
    ("012", "cannot be Split", lambda t: t.bolt("b", Split).shuffle("lines")),
    ("012", "cannot be 3", lambda t: t.bolt("b", 3).shuffle("lines")),
    ("013", "'split' has no stream 'errors'; it has 'default', 'empty'",
        lambda t: t.bolt("b", Quiet()).shuffle("split", "errors")),
    ("014", "is not direct", lambda t: t.bolt("b", Quiet()).direct("split")),
    ("016", "whose state is by key", lambda t: t.bolt("b", _Process()).shuffle("lines")),
    ("017", "each of which would write every tuple",
        lambda t: t.bolt("o", "collect:", tasks=2).all("lines")),
    ("018", "ByTask.n is state that a bolt cannot have",
        lambda t: t.bolt("b", ByTask()).shuffle("lines")),
    ("019", "Assigns.process assigns self.last", lambda t: t.bolt("b", Assigns()).shuffle("lines")),
    ("022", "Nothing has no process", lambda t: t.bolt("b", Nothing()).shuffle("lines")),
    ("022", "Yields yields", lambda t: t.bolt("b", Yields()).shuffle("lines")),
    ("022", "cannot be called with (tup, collector)",
        lambda t: t.bolt("b", Short()).shuffle("lines")),
    ("022", "has on_lines", lambda t: t.bolt("b", OnRow()).shuffle("lines")),
    ("023", "tick_every and no tick", lambda t: t.bolt("b", NoTick()).shuffle("lines")),
    ("023", "a tick that is never called", lambda t: t.bolt("b", Untimed()).shuffle("lines")),
    ("023", "ticks by event time, but", lambda t: t.bolt("b", ByEvent()).shuffle("lines")),
    ("024", "says direct = ('other',)", lambda t: t.bolt("b", Direct()).shuffle("lines")),
    ("024", "declares 'default' among", lambda t: t.bolt("b", Default()).shuffle("lines")),
]  # fmt: skip


class _Process(hr.KeyedProcess):
    output = "a string"

    def on_row(self, row: Any, ctx: Any) -> None:
        pass


@pytest.mark.parametrize(("code", "words", "change"), REFUSED, ids=[w for _, w, _ in REFUSED])
def test_refused_when_built(code: str, words: str, change: Callable[[hr.Topology], object]) -> None:
    made = topology()
    change(made)
    with pytest.raises(hr.PlanError) as error:
        made.check()
    found = [p for p in error.value.problems if p.code != "HR-PLAN-004"]  # what nobody reads
    assert [p.code for p in found] == [f"HR-TOPOLOGY-{code}"] and words in str(found[0])
    assert found[0].site is not None and found[0].site.file == __file__
    assert found[0].site.line < test_refused_when_built.__code__.co_firstlineno


def test_an_unknown_field_names_those_there_are() -> None:
    made = topology()
    made.bolt("b", Quiet()).fields("split", "wrod")
    with pytest.raises(hr.PlanError, match="'wrod'"):
        made.check()


def test_inputs_come_before_the_program_is_used() -> None:
    made = topology()
    late = made.bolt("b", Quiet()).shuffle("split")
    made.check()
    late.all("lines")
    with pytest.raises(hr.PlanError, match="HR-TOPOLOGY-010"):
        made.check()


def test_streams_of_another_job_are_refused() -> None:
    made = topology()
    made.spout("other", hr.Job("other").read(hr.rows([{"a": 1}])))
    with pytest.raises(hr.PlanError, match="HR-PLAN-020"):
        made.check()


# State that is not declared is lost with the batch: it is never lost without an error.


class InInit(hr.Bolt):
    """As one writes a bolt in Storm."""

    output = "v bigint"

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.n = 0

    def process(self, tup: Any, collector: Any) -> None:
        self.counts[tup.v] = 1
        collector.emit((tup.v,))


class InPrepare(InInit):
    def __init__(self) -> None:
        pass

    def prepare(self, context: Any) -> None:
        self.counts = {}


class Indirect(InInit):
    def process(self, tup: Any, collector: Any) -> None:
        setattr(self, "n", 3)  # noqa: B010


class New(InInit):
    def process(self, tup: Any, collector: Any) -> None:
        vars(self)["other"] = 3


def run(bolt: hr.Bolt, folder: Path) -> list[dict[str, Any]]:
    made = hr.Topology("t")
    made.spout("numbers", hr.rows([{"v": 1}, {"v": 2}]))
    made.bolt("b", bolt, tasks=2).all("numbers")
    made.bolt("out", "collect:").shuffle("b")
    return drive(made, folder).output("out").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("bolt", "name"),
    [(InInit(), "counts"), (InPrepare(), "counts"), (Indirect(), "n"), (New(), "other")],
)
def test_undeclared_state_stops_the_job(bolt: hr.Bolt, name: str, tmp_path: Path) -> None:
    with pytest.raises(hr.StepError, match=f"HR-TOPOLOGY-021.*self.{name}"):
        run(bolt, tmp_path)


def test_a_cache_is_transient(tmp_path: Path) -> None:
    class Cache(InPrepare):
        transient = ("counts",)

    assert sorted(r["v"] for r in run(Cache(), tmp_path)) == [1, 1, 2, 2]


def test_prepare_and_cleanup_are_called_in_each_task(tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []

    class Logged(hr.Bolt):
        output = "v bigint"

        def prepare(self, context: Any) -> None:
            self.task = context.task
            calls.append((f"prepare {context.component} of {context.tasks}", context.task))

        def process(self, tup: Any, collector: Any) -> None:
            if tup.v == 1:
                raise ValueError("one")
            collector.emit((tup.v + self.task,))

        def cleanup(self) -> None:
            calls.append(("cleanup", self.task))

    assert sorted(r["v"] for r in run(Logged(), tmp_path)) == [2, 3]
    assert {task for what, task in calls if what == "prepare b of 2"} == {0, 1}
    assert {task for what, task in calls if what == "cleanup"} == {0, 1}


def test_prepare_that_fails_stops_the_job(tmp_path: Path) -> None:
    class Broken(Exclaim):
        def prepare(self, context: Any) -> None:
            raise OSError("no connection")

    with pytest.raises(hr.StepError, match=r"HR-TOPOLOGY-020.*no connection"):
        run(Broken(), tmp_path)


def test_what_process_returns_is_not_lost(tmp_path: Path) -> None:
    class Returns(Seen):
        def process(self, tup: Any, collector: Any) -> Any:
            return (1, 2, 3)

    made = hr.Topology("t")
    made.spout("numbers", "log:numbers", schema="v bigint")
    made.bolt("b", Returns()).shuffle("numbers")
    made.bolt("out", "collect:").shuffle("b")
    with Harness(made) as test:
        test.send("numbers", [(1,)])
        (dead,) = test.dead()
        assert "emit it with collector.emit" in dead["error"]


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("int", "double", False),
        ("decimal(10,2)", "decimal(10,3)", False),
        ("bigint", "decimal(10,0)", False),
        ("bigint", "string", False),
        ("date", "timestamp", False),
        ("int", "bigint", True),
        ("float", "double", True),
        ("decimal(10,2)", "decimal(12,2)", True),
    ],
)
@pytest.mark.parametrize("grouping", ["fields", "partial_key"])
def test_keys_of_two_inputs_that_would_not_meet(
    one: str, other: str, meet: bool, grouping: str
) -> None:
    def refused(tasks: int, first: str = "") -> str:
        made = hr.Topology("t")
        made.spout("a", "log:a", schema=f"k {one}")
        made.spout("b", "log:b", schema=f"x {first or other}, k {other}")
        bolt = made.bolt("bolt", Exclaim(), tasks=tasks)
        getattr(getattr(bolt, grouping)("a", "k"), grouping)("b", *(["x"] if first else []), "k")
        made.bolt("out", "collect:").shuffle("bolt")
        return problems(made)

    assert refused(1) == refused(2, "int") == ""  # all in one task; never one key
    text = refused(2)
    assert meet == (text == "")
    if text:
        assert "HR-TOPOLOGY-050 'bolt' reads 'a' by 'k'" in text and "test_refusals.py" in text


def problems(made: hr.Topology) -> str:
    try:
        made.check()
    except hr.PlanError as error:
        return str(error)
    return ""


def test_keys_of_two_inputs_of_windows_that_would_not_meet() -> None:
    made = hr.Topology("t")
    for name, kind in (("a", "decimal(10,2)"), ("b", "decimal(10,3)")):
        made.spout(name, f"log:{name}", schema=f"at bigint, k {kind}", time="at", in_order=True)
    window = {"window": hr.tumbling("1s"), "schema": "k string"}
    bolt = made.bolt("counts", lambda k, w, rows: [], tasks=2, **window)
    bolt.fields("a", "k").fields("b", "k")
    made.bolt("out", "collect:").shuffle("counts")
    assert "HR-TOPOLOGY-050" in problems(made)


def test_types_that_hash_alike() -> None:
    kinds = [pa.int8(), pa.int64(), pa.uint32(), pa.float32(), pa.float64(), pa.bool_(),
             pa.decimal128(19, 0), pa.decimal128(25, 0), pa.decimal128(25, 1)]  # fmt: skip
    for one, other in product(kinds, kinds):
        values = [pa.array([0, 1], pa.int64()).cast(kind) for kind in (one, other)]
        same = (hash_keys([values[0]]) == hash_keys([values[1]])).all()
        assert same or not hash_alike(one, other), (one, other)


TYPOS: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "of a bolt": (
        "HR-TOPOLOGY-005 there is no component 'slpit'",
        lambda split: split.shuffle("lines"),
        lambda out: out.shuffle("slpit"),
    ),
    "of a spout": (
        "HR-TOPOLOGY-005 there is no component 'lins'",
        lambda split: split.shuffle("lins"),
        lambda out: out.shuffle("split"),
    ),
    "of a field": (
        "HR-EXPR-001 there is no column 'wrod'",
        lambda split: split.shuffle("lines"),
        lambda out: out.fields("split", "wrod"),
    ),
    "of a bolt, left out": (
        "HR-TOPOLOGY-007 the bolt 'split' reads nothing",
        lambda split: split,
        lambda out: out.shuffle("split"),
    ),
    "of an output, left out": (
        "HR-TOPOLOGY-007 the bolt 'out' reads nothing",
        lambda split: split.shuffle("lines"),
        lambda out: out,
    ),
    "of a stream": (
        "HR-TOPOLOGY-013 'split' has no stream 'empyt'",
        lambda split: split.shuffle("lines"),
        lambda out: out.shuffle("split", "empyt"),
    ),
}


@pytest.mark.parametrize("what", list(TYPOS))
@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("first", ["split", "out"])
def test_a_typo_in_a_grouping_is_the_only_problem(what: str, others: bool, first: str) -> None:
    fact, of_split, of_out = TYPOS[what]
    made = hr.Topology("t")
    made.spout("lines", hr.rows([{"line": "a"}]))
    parts = {
        "split": lambda: of_split(made.bolt("split", Split(), tasks=2)),
        "out": lambda: of_out(made.bolt("out", "collect:")),
    }
    for name in sorted(parts, reverse=first == "split"):
        parts[name]()
    if others:
        made.bolt("other", "collect:").shuffle("lines")
    with pytest.raises(hr.PlanError) as raised:
        made.check()
    assert str(raised.value).startswith(fact)
