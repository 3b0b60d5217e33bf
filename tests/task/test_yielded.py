"""A function may yield or return one object again and again, changed in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import drive


@dataclass
class Sum:
    n: int = 0
    seen: list[int] = field(default_factory=list)


def one_dict(row: Any) -> Iterator[Any]:
    made: dict[str, Any] = {"n": 0, "seen": []}
    for i in range(row.v):
        made["n"] += i
        made["seen"].append(i)
        yield made


def one_record(row: Any) -> Iterator[Any]:
    made = Sum()
    for i in range(row.v):
        made.n += i
        made.seen.append(i)
        yield made


def one_list_in_tuples(row: Any) -> Iterator[Any]:
    seen: list[int] = []
    for i in range(row.v):
        seen.append(i)
        yield (sum(seen), seen)


FUNCTIONS = [one_dict, one_record, one_list_in_tuples]
EXPECTED = [(sum(range(i + 1)), list(range(i + 1))) for v in (3, 2) for i in range(v)]


def _run(tmp_path: Path, build: Any) -> list[Any]:
    job = hr.Job("yielded")
    stream = build(job.read(hr.rows([(3,), (2,)], "v bigint"), name="rows"))
    stream.write("collect:", name="out")
    return drive(job, tmp_path).output("out").to_pylist()


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_each_row_is_what_it_was_when_it_was_yielded(tmp_path: Path, fn: Any) -> None:
    rows = _run(tmp_path, lambda s: s.flat_map(fn, schema="n bigint, seen array<bigint>"))
    assert [(r["n"], r["seen"]) for r in rows] == EXPECTED


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_also_for_the_step_after(tmp_path: Path, fn: Any) -> None:
    def again(row: Any) -> tuple[Any, ...]:
        return (row.n, len(row.seen))

    def build(stream: Any) -> Any:
        made = stream.flat_map(fn, schema="n bigint, seen array<bigint>")
        return made.map(again, schema="n bigint, count bigint")

    rows = _run(tmp_path, build)
    assert [(r["n"], r["count"]) for r in rows] == [(n, len(seen)) for n, seen in EXPECTED]


def test_rows_without_lists(tmp_path: Path) -> None:
    rows = _run(tmp_path, lambda s: s.flat_map(one_dict, schema="n bigint"))
    assert [r["n"] for r in rows] == [n for n, _ in EXPECTED]


class Shared:
    """Counts its calls in one object, which it returns each time: `made` of the dict it fills."""

    def __init__(self, made: Any) -> None:
        self.count: dict[str, Any] = {"n": 0, "seen": []}
        self.returned = made(self.count)

    def __call__(self, *arguments: Any) -> Any:
        self.count["n"] += 1
        self.count["seen"].append(self.count["n"])
        return self.returned


class SharedProcess(hr.KeyedProcess):
    output = "n bigint, seen array<bigint>"

    def __init__(self, made: Any) -> None:
        self.call = Shared(made)

    def on_row(self, row: Any, ctx: Any) -> Any:
        return self.call()


class SharedWindow(hr.WindowProcess):
    def __init__(self, made: Any) -> None:
        self.call = Shared(made)

    def process(self, key: Any, window: Any, rows: Any) -> Any:
        return self.call()


COUNTED = "n bigint, seen array<bigint>"
SECOND = hr.tumbling("1s")
STEPS = {
    "map": lambda s, made: s.map(Shared(made), schema=COUNTED),
    "flat_map": lambda s, made: s.flat_map(Shared(made), schema=COUNTED),
    "process": lambda s, made: s.key_by("k").process(SharedProcess(made), unbounded=True),
    "window": lambda s, made: s.key_by("k").window(SECOND).process(Shared(made), schema=COUNTED),
    "session": lambda s, made: (
        s.key_by("k").window(hr.session("1ms")).process(Shared(made), schema=COUNTED)
    ),
    "rows": lambda s, made: (
        s.key_by("k").window(hr.tumbling(rows=1)).process(Shared(made), schema=COUNTED)
    ),
    "window process": lambda s, made: (
        s.key_by("k").window(SECOND).process(SharedWindow(made), schema=COUNTED)
    ),
    "match": lambda s, made: s.key_by("k").match(
        hr.pattern("a", "true"), select=Shared(made), output=COUNTED
    ),
    "map_async": lambda s, made: s.map_async(Shared(made), output=COUNTED, concurrency=1),
}
RETURNED = {"a dict": lambda count: count, "a list": lambda count: [count]}
ONE_ROW, ROWS = {"map", "map_async"}, {"flat_map"}
CASES = [(s, "a dict") for s in STEPS if s not in ROWS]
CASES += [(s, "a list") for s in STEPS if s not in ONE_ROW]


@pytest.mark.parametrize(("step", "returned"), CASES)
def test_a_function_may_return_the_object_it_returned_before(
    tmp_path: Path, step: str, returned: str
) -> None:
    job = hr.Job("shared")
    rows = [(key, i) for i, key in enumerate("abcdef")]
    stream = job.read(hr.rows(rows, "k string, at bigint"), time="at", in_order=True)
    STEPS[step](stream, RETURNED[returned]).write("collect:", name="out")

    out = drive(job, tmp_path, tasks=1).output("out").to_pylist()
    assert sorted((r["n"], r["seen"]) for r in out) == [
        (n, list(range(1, n + 1))) for n in range(1, 7)
    ]


def test_a_cogroup_function_may_return_the_list_it_returned_before(tmp_path: Path) -> None:
    job = hr.Job("shared")
    schema = "k string, at bigint"
    a, b = (
        job.read(hr.rows([("x", 1), ("y", 2), ("z", 3)], schema), time="at", in_order=True, name=n)
        for n in "ab"
    )
    joined = a.cogroup(b, Shared(lambda count: [count]), on="k", window=SECOND, schema=COUNTED)
    joined.write("collect:", name="out")

    rows = drive(job, tmp_path, tasks=1).output("out").to_pylist()
    assert sorted(r["n"] for r in rows) == [1, 2, 3]


def test_an_object_returned_for_several_rows_after_rows_of_another_kind_is_an_error(
    tmp_path: Path,
) -> None:
    made: dict[str, Any] = {"n": 0}

    def mixed(row: Any) -> Any:
        made["n"] = row.v
        return (row.v,) if row.v == 0 else made

    job = hr.Job("mixed")
    rows = job.read(hr.rows([(i,) for i in range(4)], "v bigint"), name="rows")
    rows.map(mixed, schema="n bigint").write("collect:", name="out")
    driver = drive(job, tmp_path)

    assert driver.output("out").to_pylist() == [{"n": 0}]
    letters = hr.read_output(tmp_path / "dead").to_pylist()
    assert [r["offset"] for r in letters] == [1, 2, 3]
    assert "one object for several rows" in letters[0]["error"]


@pytest.mark.parametrize(
    "value", [{"x": 1}.values(), {1: "x"}.keys(), {1}, (1,), [1], frozenset([1])], ids=repr
)
@pytest.mark.parametrize("step", ["map", "flat_map", "process", "map_async"])
def test_values_that_cannot_be_copied_or_changed_are_rows_as_well(
    tmp_path: Path, step: str, value: Any
) -> None:
    class Process(hr.KeyedProcess):
        output = "v array<bigint>"

        def on_row(self, row: Any, ctx: Any) -> Any:
            return {"v": value}

    steps = {
        "map": lambda s: s.map(lambda r: {"v": value}, schema="v array<bigint>"),
        "flat_map": lambda s: s.flat_map(lambda r: [{"v": value}], schema="v array<bigint>"),
        "process": lambda s: s.key_by("k").process(Process(), unbounded=True),
        "map_async": lambda s: s.map_async(
            lambda r: {"v": value, "raw": threading.Lock()}, output="v array<bigint>"
        ),
    }
    job = hr.Job("views")
    steps[step](job.read(hr.rows([("a",)], "k string"))).write("collect:", name="out")

    assert drive(job, tmp_path).output("out").to_pylist() == [{"v": [1]}]


def test_a_cogroup_function_that_empties_its_lists_sees_them_again_when_another_fails(
    tmp_path: Path,
) -> None:
    def counted(key: Any, left: list[Any], right: list[Any]) -> Any:
        n = 0
        while left:
            left.pop()
            n += 1
        if key == "y":
            raise ValueError("no")
        return [(n,)]

    job = hr.Job("emptied")
    schema = "k string, at bigint"
    a, b = (
        job.read(hr.rows([("x", 1), ("x", 1), ("y", 2)], schema), time="at", in_order=True, name=n)
        for n in "ab"
    )
    joined = a.cogroup(b, counted, on="k", window=SECOND, schema="n bigint")
    joined.write("collect:", name="out")
    driver = drive(job, tmp_path, tasks=1)

    assert [r["n"] for r in driver.output("out").to_pylist()] == [2]
    assert hr.read_output(tmp_path / "dead").num_rows == 1


def test_a_reduce_that_changes_its_rows_sees_them_as_they_were_when_another_fails(
    tmp_path: Path,
) -> None:
    def joined(before: Any, row: Any) -> Any:
        if row.v == 9:
            raise ValueError("no")
        before.t.extend(row.t)
        return before

    job = hr.Job("changed")
    rows = [("a", 0, [0]), ("a", 1, [1]), ("b", 2, [2]), ("b", 9, [9]), ("b", 3, [3])]
    stream = job.read(hr.rows(rows, "k string, v bigint, t array<bigint>"), name="rows")
    stream.key_by("k").reduce(joined, unbounded=True).write("collect:", name="out")
    out = drive(job, tmp_path, tasks=1).output("out").to_pylist()

    assert [(r["k"], r["t"]) for r in out] == [
        ("a", [0]), ("a", [0, 1]), ("b", [2]), ("b", [2, 3]),
    ]  # fmt: skip


def test_a_select_that_changes_its_match_sees_it_as_it_was_when_another_does_not_fit(
    tmp_path: Path,
) -> None:
    def emptied(match: Any) -> Any:
        values = [row.v for row in match["a"]]
        match["a"].clear()
        return (values, "text" if values == [2] else 1)

    job = hr.Job("emptied")
    rows = [("a", i, i) for i in range(4)]
    stream = job.read(
        hr.rows(rows, "k string, v bigint, at bigint"), time="at", in_order=True, name="rows"
    )
    matches = stream.key_by("k").match(
        hr.pattern("a", "true"), select=emptied, output="vs array<bigint>, n bigint"
    )
    matches.write("collect:", name="out")

    out = drive(job, tmp_path, tasks=1).output("out").to_pylist()
    assert [r["vs"] for r in out] == [[0], [1], [3]]


@pytest.mark.parametrize(
    "returned", [lambda count: count, lambda count: (count["n"], count["seen"])]
)
def test_a_function_of_generate_may_return_the_object_it_returned_before(
    tmp_path: Path, returned: Any
) -> None:
    count: dict[str, Any] = {"n": 0, "seen": []}

    def numbered(i: int) -> Any:
        count["n"] = i
        count["seen"][:] = [i]
        return returned(count)

    job = hr.Job("generated")
    job.read(hr.generate(None, numbered, total=4, schema=COUNTED)).write("collect:", name="out")

    out = drive(job, tmp_path).output("out").to_pylist()
    assert [(r["n"], r["seen"]) for r in out] == [(i, [i]) for i in range(4)]
