"""Joins: near in time, in the same window, with tables, of several streams, and lookups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace as hr
from tests.golden.programs.base import orders, program, readings, write

HOWS = ("inner", "left", "right", "full", "semi", "anti")
TITLES = pa.table({"area": ["a", "b"], "title": ["Alps", "Baltic"]})


def sides(root: Path, job: hr.Job) -> tuple[hr.Stream, hr.Stream]:
    left = readings(root, job).select("area", "id", "zone", "at")
    return left, orders(root, job).select("area", "amount", "gone", "due", zone="amount % 4")


def compared(key: Any, left: list[Any], right: list[Any]) -> dict[str, int]:
    return {"ids": sum(row.id for row in left), "amounts": sum(row.amount for row in right)}


def titles() -> list[dict[str, str]]:
    return [{"area": "a", "title": "Alps"}, {"area": "c", "title": "Coast"}]


@program("readings", "orders")
def near(root: Path, job: hr.Job) -> None:
    """Rows whose times are near each other."""
    left, right = sides(root, job)
    for how in HOWS:
        found = left.join(right, on="area", how=how, within=("-3s", "5s"), name=how)
        found.write("collect:", name=f"{how} out")
    waits = left.join(
        right, on=["area", "zone"], within="4s", lateness="10s", how="left", name="waits"
    )
    write(waits=waits, late=waits.late, others=waits.late_of("right"))
    streams = {"first": left.key_by("area"), "second": right.key_by("area")}
    third = left.where("zone < 2").key_by("area")
    for how in ("inner", "left", "full"):
        all_ = hr.join_all(how=how, within="3s", name=f"all {how}", **streams, third=third)
        all_.write("collect:", name=f"all {how} out")


@program("readings", "orders")
def together(root: Path, job: hr.Job) -> None:
    """Rows of the same window, and functions over them."""
    left, right = sides(root, job)
    kinds: dict[str, Any] = {
        "tumbling": hr.tumbling("10s"), "sliding": hr.sliding("10s", every="5s"),
        "cumulating": hr.cumulating("20s", every="10s"), "day": hr.calendar("day"),
        "session": hr.session("2s"), "own gap": hr.session(hr.col("zone") * 500 + 500),
    }  # fmt: skip
    for name, window in kinds.items():
        how = HOWS[list(kinds).index(name) % 4]
        found = left.join(right, on="area", how=how, window=window, name=name)
        found.write("collect:", name=f"{name} out")
    for name in ("tumbling", "session"):
        said: dict[str, Any] = {"on": "area", "schema": "ids bigint, amounts bigint"}
        grouped = left.cogroup(right, compared, window=kinds[name], name=f"{name} groups", **said)
        grouped.write("collect:", name=f"{name} groups out")


@program("readings", "orders")
def latest(root: Path, job: hr.Job) -> None:
    """Rows with the version of a table that they saw."""
    left, right = sides(root, job)
    versions = right.drop("zone").table("area", delete="gone", unbounded=True)
    for how in HOWS:
        found = left.join(versions, on="area", how=how, name=how)
        found.write("collect:", name=f"{how} out")
    young = right.table("area")
    write(
        within=left.join(young, on="area", within="6s", how="full", name="within"),
        late=left.join(versions, on="area", lateness="5s", name="late"),
        now=left.join(versions, on="area", time="processing", how="left", name="now"),
    )


@program("readings", "orders")
def tables(root: Path, job: hr.Job) -> None:
    """Tables with tables, told as changes."""
    left, right = sides(root, job)
    ours = left.where("area is not null").table("area", unbounded=True)
    theirs = right.table("area", delete="gone", unbounded=True)
    for how in HOWS:
        ours.join(theirs, how=how, name=how).write("collect:", name=f"{how} out")
    things = left.table("id", unbounded=True)
    write(
        foreign=things.join(theirs, on="area", how="left", name="foreign"),
        changes=theirs.changes(name="changes"),
        now=theirs.changes(time="processing", name="now"),
    )


@program("readings")
def lookups(root: Path, job: hr.Job) -> None:
    """Rows completed from tables outside: with nulls, as dead letters, and rows that wait."""
    rows = readings(root, job).select("id", "area", "at")
    said: dict[str, Any] = {"on": "area", "schema": "area string, title string"}
    write(
        nulls=rows.lookup(TITLES, on="area", name="nulls"),
        lost=rows.lookup(titles, on_missing="dead", name="lost", **said),
        waits=rows.lookup(
            titles, on_missing="wait", refresh="5s", patience="20s", name="waits", **said
        ),
    )
