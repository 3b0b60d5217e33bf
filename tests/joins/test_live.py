"""What a join holds, looked at from outside: the rows that were sent, and whose they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness

LEFT, RIGHT = "k string, v double, at bigint", "id string, v bigint, w bigint, at bigint"
ON = {"k": "id"}
LEFTS = [("a", 1.0, 0), ("b", 2.0, 10), ("a", 3.0, 20)]
RIGHTS = [("a", 5, 50, 500), ("c", 6, 60, 15)]
MODEL = [
    ("a", "left", 1.0, None, None, 0), ("b", "left", 2.0, None, None, 10),
    ("a", "left", 3.0, None, None, 20),
    ("a", "right", None, 5, 50, 500), ("c", "right", None, 6, 60, 15),
]  # fmt: skip
NOW = [row for row in MODEL if row[2] != 1.0]  # of a table that counts at once, the latest
TUMBLING, SESSION = hr.tumbling("1m"), hr.session("1m")
Build = Callable[[hr.Stream, hr.Stream], hr.Stream]


def table(of: hr.Stream, key: str) -> Any:
    return of.table(key, unbounded=True)


def counted(key: str, left: list[Any], right: list[Any]) -> tuple[int]:
    return (len(left) + len(right),)


def cogroup(a: hr.Stream, b: hr.Stream, window: Any) -> hr.Stream:
    return a.cogroup(b, counted, on=ON, window=window, schema="n int", name="p")


JOINS: dict[str, Build] = {
    "interval": lambda a, b: a.join(b, on=ON, within="1m", name="p"),
    "outer": lambda a, b: a.join(b, on=ON, within="1m", how="full", name="p"),
    "semi": lambda a, b: a.join(b, on=ON, within="1m", how="semi", name="p"),
    "window": lambda a, b: a.join(b, on=ON, window=TUMBLING, name="p"),
    "session": lambda a, b: a.join(b, on=ON, window=SESSION, name="p"),
    "cogroup": lambda a, b: cogroup(a, b, TUMBLING),
    "cogroup in sessions": lambda a, b: cogroup(a, b, SESSION),
    "as of": lambda a, b: a.join(table(b, "id"), on=ON, name="p"),
    "as of, full": lambda a, b: a.join(table(b, "id"), on=ON, how="full", name="p"),
    "tables": lambda a, b: table(a, "k").join(table(b, "id"), on=ON, name="p"),
}


def looked_at(
    build: Build, folder: Path, lefts: Any = LEFTS, rights: Any = RIGHTS, mark: int | None = None
) -> Any:
    job = hr.Job("looked-at")
    a = job.read("log:a", schema=LEFT, time="at", delay="1s", name="a")
    b = job.read("log:b", schema=RIGHT, time="at", delay="1s", name="b")
    build(a, b).write("collect:", name="out")
    with Harness(job, folder=str(folder)) as test:
        test.send("a", lefts)
        test.send("b", rights)
        for name in "ab" if mark is not None else "":
            test.watermark(name, mark)
        return hr.peek(job, "p", folder=str(folder / "job"))


def seen(rows: Any) -> list[tuple[Any, ...]]:
    """Without the time, which must be that of the row."""
    for row in rows.to_pylist():
        assert round(row["time"].timestamp() * 1_000) == row["at"]
    names = ("k", "side", "v", "v_right", "w", "at")
    return sorted((tuple(r[n] for n in names) for r in rows.to_pylist()), key=repr)


@pytest.mark.parametrize("name", JOINS)
def test_the_rows_of_both_sides_are_there_under_their_key(name: str, tmp_path: Path) -> None:
    state = looked_at(JOINS[name], tmp_path)
    assert state.to_arrow().column_names == ["k", "side", "time", "v", "at", "v_right", "w"]
    assert seen(state.to_arrow()) == sorted(MODEL, key=repr)
    for key in ("a", "b", "c", "nobody"):
        assert seen(state.get(key)) == sorted((r for r in MODEL if r[0] == key), key=repr)
    early = [r for r in MODEL if 10 <= r[-1] < 500]
    assert seen(state.slice(10, 500).to_arrow()) == sorted(early, key=repr)
    assert state.sql("SELECT count(*) AS n FROM state WHERE side = 'right'").to_pylist() == [
        {"n": 2}
    ]


def test_of_tables_that_the_watermark_has_passed_the_latest_rows_are_there(tmp_path: Path) -> None:
    state = looked_at(JOINS["tables"], tmp_path, mark=1_000)
    assert seen(state.to_arrow()) == sorted(NOW, key=repr)


@pytest.mark.parametrize("name", ["outer", "window", "session"])
def test_a_row_without_a_key_is_there_while_it_waits_to_come_out(name: str, tmp_path: Path) -> None:
    window = {"window": TUMBLING, "session": SESSION}.get(name)
    how: Any = {"within": "1m"} if window is None else {"window": window}
    rows = [*LEFTS, (None, 7.0, 30)]
    state = looked_at(
        lambda a, b: a.join(b, on=ON, how="left", name="p", **how), tmp_path, lefts=rows
    )
    assert seen(state.to_arrow()) == sorted([*MODEL, (None, "left", 7.0, None, None, 30)], key=repr)


def test_rows_of_a_table_that_wait_to_delete_are_not_shown(tmp_path: Path) -> None:
    def build(a: hr.Stream, b: hr.Stream) -> hr.Stream:
        gone = b.table("id", delete="w = 0", unbounded=True)
        return a.join(gone, on=ON, name="p")

    state = looked_at(build, tmp_path, rights=[*RIGHTS, ("b", 1, 0, 40)])
    assert seen(state.to_arrow()) == sorted(MODEL, key=repr)


@pytest.mark.parametrize("how", ["inner", "full"])
def test_by_foreign_key_the_rows_that_point_to_it_are_found(how: str, tmp_path: Path) -> None:
    def build(a: hr.Stream, b: hr.Stream) -> hr.Stream:
        return a.table("at", unbounded=True).join(table(b, "id"), on=ON, how=how, name="p")

    state = looked_at(build, tmp_path, mark=1_000)
    assert seen(state.to_arrow()) == sorted(MODEL, key=repr)
    assert seen(state.get("a")) == sorted((r for r in MODEL if r[0] == "a"), key=repr)
    assert state.get("b").column("change").to_pylist() == ["+"]


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_many_inputs_have_their_own_names(how: str, tmp_path: Path) -> None:
    def build(a: hr.Stream, b: hr.Stream) -> hr.Stream:
        b = b.select("w", "at", k="id")
        return hr.join_all(on="k", how=how, within="1m", order=a, payment=b, name="p")

    keyless = [(None, 7.0, 30)], [(None, 8, 80, 30)]
    state = looked_at(build, tmp_path, [*LEFTS, *keyless[0]], [*RIGHTS, *keyless[1]])
    assert sorted((r["side"], r["v"] or r["w"]) for r in state.get("a").to_pylist()) == [
        ("order", 1.0), ("order", 3.0), ("payment", 50),
    ]  # fmt: skip
    waits = [r["v"] or r["w"] for r in state.to_arrow().to_pylist() if r["k"] is None]
    assert sorted(waits) == {"inner": [], "left": [7.0], "full": [7.0, 80]}[how]


def test_a_table_whose_changes_are_told_shows_its_rows(tmp_path: Path) -> None:
    def build(a: hr.Stream, b: hr.Stream) -> hr.Stream:
        b.write("collect:", name="b-out")
        return table(a, "k").changes(name="p")

    state = looked_at(build, tmp_path, mark=1_000)
    assert state.to_arrow().column_names == ["k", "time", "v", "at"]
    assert sorted((r["k"], r["v"]) for r in state.to_arrow().to_pylist()) == [
        ("a", 3.0),
        ("b", 2.0),
    ]
    assert state.get("a").column("v").to_pylist() == [3.0]


def test_columns_called_as_ours_keep_their_names(tmp_path: Path) -> None:
    def build(a: hr.Stream, b: hr.Stream) -> hr.Stream:
        return a.select("k", "at", side="v").join(b, on=ON, within="1m", name="p")

    rows = looked_at(build, tmp_path).get("b").to_pylist()
    assert [(r["side"], r["side_"]) for r in rows] == [(2.0, "left")]
