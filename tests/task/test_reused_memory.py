"""Memory that user code fills again: what a function returned stays as it was returned.

Arrow does not copy a NumPy array, so a function that has one buffer for all of its calls would
change the rows of its calls before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.arrays import owned
from headrace.testing import Driver

ROWS = 40
SCHEMA = "v bigint, s string, xs array<bigint>"


class Reusing:
    """Tables whose columns are in the same memory at every call."""

    def __init__(self) -> None:
        self.numbers = np.zeros(ROWS, dtype=np.int64)
        self.letters = np.zeros(ROWS, dtype=np.uint8)
        self.ends = np.arange(ROWS + 1, dtype=np.int32)

    def table(self, values: Any) -> pa.Table:
        n = len(values)
        self.numbers[:n] = values
        self.letters[:n] = np.asarray(values) % 26 + ord("a")
        ends = pa.py_buffer(self.ends)
        texts = pa.Array.from_buffers(pa.string(), n, [None, ends, pa.py_buffer(self.letters)])
        lists = pa.ListArray.from_arrays(pa.array(self.ends[: n + 1]), pa.array(self.numbers[:n]))
        return pa.table({"v": pa.array(self.numbers[:n]), "s": texts, "xs": lists})


def row(v: int) -> dict[str, Any]:
    return {"v": v, "s": chr(v % 26 + ord("a")), "xs": [v]}


def numbers(job: hr.Job) -> hr.Stream:
    """In one batch, but in four splits: a function is called for each."""
    rows = hr.rows([{"v": v} for v in range(ROWS)], splits=4)
    return job.read(rows, time="v", in_order=True, name="in")


class Chunked(hr.KeyedProcess):
    output = SCHEMA

    def __init__(self) -> None:
        self.memory = Reusing()

    def on_chunk(self, rows: pa.Table, ctx: Any) -> Any:
        return self.memory.table(rows["v"].to_numpy())


def by_batches(job: hr.Job) -> hr.Stream:
    memory = Reusing()
    return numbers(job).map_batches(lambda t: memory.table(t["v"].to_numpy()), schema=SCHEMA)


def by_transform(job: hr.Job) -> hr.Stream:
    memory = Reusing()
    return numbers(job).transform(lambda t: memory.table(t["v"].to_numpy()), output=SCHEMA)


def by_chunk(job: hr.Job) -> hr.Stream:
    return numbers(job).key_by(k="v % 3").process(Chunked())


def by_generate(job: hr.Job) -> hr.Stream:
    memory = Reusing()
    made = hr.generate(
        None, memory.table, ROWS, schema=SCHEMA, splits=4, vectorised=True
    )  # fmt: skip
    return job.read(made, time="v", in_order=True)


@pytest.mark.parametrize("make", [by_batches, by_transform, by_chunk, by_generate])
def test_what_was_returned_stays(make: Callable[[hr.Job], hr.Stream], tmp_path: Path) -> None:
    job = hr.Job("reused")
    made = make(job)
    sums = made.key_by(k="v % 5").agg(v=hr.sum("v"), s=hr.min("s"), n=hr.count(), unbounded=True)
    sums.write("collect:", name="sums")
    made.key_by(one="1").window(hr.everything()).agg(
        v=hr.collect("v"), s=hr.collect("s"), xs=hr.collect("xs")
    ).write("collect:", name="all")
    driver = Driver(job, tmp_path)
    driver.drain()
    (found,) = driver.output("all").select(["v", "s", "xs"]).to_pylist()
    rows = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    expected = [row(v) for v in range(ROWS)]
    assert sorted(rows, key=lambda r: r["v"]) == expected
    for r in {r["k"]: r for r in driver.output("sums").to_pylist()}.values():  # the last of a key
        mine = expected[r["k"] :: 5]
        assert (r["v"], r["n"]) == (sum(x["v"] for x in mine), len(mine))
        assert r["s"] == min(x["s"] for x in mine)


def test_rows_are_those_at_the_time_of_the_call(tmp_path: Path) -> None:
    memory, job = Reusing(), hr.Job("reused")
    made = hr.rows(memory.table(range(ROWS)))
    memory.table([0] * ROWS)
    job.read(made).write("collect:", name="out")
    driver = Driver(job, tmp_path)
    driver.drain()
    assert driver.output("out").to_pylist() == [row(v) for v in range(ROWS)]


def test_columns_that_are_passed_on_are_not_copied() -> None:
    source = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})
    mine = source.append_column("c", pa.array(np.arange(3)))
    found = owned(mine, source)
    assert found == mine
    place = {n: found[n].chunk(0).buffers()[-1].address for n in found.column_names}
    same = {n: place[n] == mine[n].chunk(0).buffers()[-1].address for n in place}
    assert same == {"a": True, "b": True, "c": False}


class Emitting(hr.KeyedProcess):
    output = "n double"
    outputs: ClassVar[Any] = {"x": "n double", "y": "n double"}

    def on_chunk(self, rows: pa.Table, ctx: Any) -> Any:
        memory = np.zeros(rows.num_rows)

        def table(value: float) -> pa.Table:
            memory[:] = value
            return pa.table({"n": pa.array(memory)})

        ctx.emit("x", table(1.0))
        ctx.emit("y", (table(2.0), np.arange(rows.num_rows)))
        return table(3.0)


def test_what_was_emitted_stays_though_the_call_goes_on(tmp_path: Path) -> None:
    job = hr.Job("reused")
    made = numbers(job).key_by(k="v % 3").process(Emitting())
    made.write("collect:", name="out")
    made.side("x").write("collect:", name="x")
    made.side("y").write("collect:", name="y")
    driver = Driver(job, tmp_path)
    driver.drain()
    found = {n: set(driver.output(n)["n"].to_pylist()) for n in ("x", "y", "out")}
    assert found == {"x": {1.0}, "y": {2.0}, "out": {3.0}}
