"""The rows of a window: a sequence like any other, and columns by name."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.ops.window.function import WindowRows, rows_of_windows
from headrace.testing import Harness

SIZES = [3, 1, 5_000, 1, 2]  # one is larger than what objects are made of at a time
COUNT = sum(SIZES)
STARTS = (np.cumsum(SIZES) - SIZES).tolist()
TABLE = pa.table({"n": range(COUNT), "text": [f"é{i}" for i in range(COUNT)], "__o": range(COUNT)})
PLAIN = [(i, f"é{i}") for i in range(COUNT)]


def windows() -> list[tuple[WindowRows, list[tuple[int, str]]]]:
    """The rows of each window, and the same as a plain list."""
    found = dict(rows_of_windows(TABLE, STARTS, ["n", "text"]))
    assert list(found) == list(range(len(SIZES)))
    pairs = zip(STARTS, SIZES, strict=True)
    lists = [PLAIN[start : start + size] for start, size in pairs]
    return list(zip(found.values(), lists, strict=True))


ASKED: list[Callable[[Any], Any]] = [
    len, list, sorted, lambda r: [*reversed(r)], lambda r: r[0], lambda r: r[-1],
    lambda r: r[1:], lambda r: r[::-1], lambda r: r[:-1:2], lambda r: r[5:2], lambda r: r[-2:],
    lambda r: (0, "é0") in r, max, lambda r: list(pairwise(r)),
    lambda r: r == list(r), lambda r: r == [], bool, lambda r: r.index(r[-1]),
    lambda r: r.count(r[0]), repr,
]  # fmt: skip


@pytest.mark.parametrize("ask", ASKED)
def test_they_are_a_sequence(ask: Callable[[Any], Any]) -> None:
    for rows, plain in windows():
        if ask is repr:
            assert ask(rows).count("Row(n=") == len(plain)
        else:
            assert ask(rows) == ask(plain)


def test_columns_come_by_name_and_are_lists_of_ones_own() -> None:
    for rows, plain in windows():
        assert rows["n"] == [n for n, _ in plain] and rows["text"] == [t for _, t in plain]
        rows["n"].clear()
        assert rows["n"] == [row.n for row in rows]


@pytest.mark.parametrize("place", [3, -4])
def test_there_are_no_more_rows_than_there_are(place: int) -> None:
    with pytest.raises(IndexError):
        windows()[0][0][place]


@pytest.mark.parametrize("name", ["m", "__o"])
def test_a_column_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(KeyError, match=f"the rows have no column '{name}'; there are n, text"):
        windows()[0][0][name]


def test_no_object_is_made_that_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[pa.DataType] = []
    import headrace.ops.window.function as module

    known = module.pylist

    def told(column: pa.ChunkedArray) -> list[Any]:
        made.append(column.type)
        return known(column)

    monkeypatch.setattr(module, "pylist", told)
    assert [sum(rows["n"]) for rows, _ in windows()]
    assert set(made) == {pa.int64()}


def play(window: Any, fn: Any) -> tuple[Any, Any]:
    job = hr.Job("columns")
    rows = job.read(hr.rows([], "k string, at bigint, n bigint"), time="at", delay="1m", name="in")
    made = rows.key_by("k").window(window).process(fn, schema="total bigint, first string")
    made.write("collect:", name="out")
    harness = Harness(job)
    for n in range(1, 7):
        harness.send("in", [{"k": "a", "at": 1_000 * n, "n": n}, {"k": "b", "at": 500, "n": -n}])
    harness.end()
    return harness.output("out"), harness.dead()


WINDOWS = [hr.tumbling(rows=3), hr.everything(), hr.sliding(rows=2, every_rows=2)]


@pytest.mark.parametrize("window", WINDOWS)
def test_functions_may_mix_rows_and_columns(window: Any) -> None:
    def by_column(key: Any, window: Any, rows: Any) -> Any:
        return sum(rows["n"]), rows["k"][0]

    def by_row(key: Any, window: Any, rows: Any) -> Any:
        return sum(row.n for row in rows), rows[0].k

    def mixed(key: Any, window: Any, rows: Any) -> Any:
        return sum(row.n for row in rows), rows["k"][-1]

    shown, _ = play(window, by_row)
    assert shown and play(window, by_column)[0] == play(window, mixed)[0] == shown


def test_they_may_be_given_as_they_are() -> None:
    def same(key: Any, window: Any, rows: Any) -> Any:
        return rows

    job = hr.Job("same")
    rows = job.read(hr.rows([], "n bigint"), name="in")
    rows.window(hr.tumbling(rows=2)).process(same, schema="n bigint").write("collect:", name="out")
    harness = Harness(job)
    harness.send("in", [(1,), (2,), (3,)])
    harness.end()
    assert [row["n"] for row in harness.output("out")] == [1, 2, 3] and not harness.dead()


def test_a_wrong_name_is_a_dead_letter() -> None:
    def wrong(key: Any, window: Any, rows: Any) -> Any:
        return sum(rows["m"]), key

    shown, dead = play(hr.tumbling(rows=3), wrong)
    assert not shown and len(dead) == 4
    assert "the rows have no column 'm'; there are k, at, n" in dead[0]["error"]
