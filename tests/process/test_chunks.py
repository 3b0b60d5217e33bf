"""Process functions over chunks, against the same function over rows."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.process.playing import job_of, said


class ByRow(hr.KeyedProcess):
    """Running sums, forgotten after ten seconds of silence."""

    output = "k string, v bigint, total bigint"
    outputs: ClassVar[Any] = {"best": "k string, top bigint"}
    total = hr.value(int, default=100, ttl="10s")
    top = hr.value(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.total += row.v
        if self.top is None or row.v > self.top:
            self.top = row.v
        ctx.counter("rows").add()
        return (ctx.key, row.v, self.total)


class ByChunk(ByRow):
    """The same for all keys at once."""

    on_row = None  # type: ignore[assignment]

    def on_chunk(self, chunk: pa.Table, ctx: Any) -> Any:
        v = chunk["v"].to_numpy()
        sums = np.cumsum(v)
        before = np.append(0, sums)[ctx.starts]
        totals = self.total.to_numpy()[ctx.index] + sums - before[ctx.index]
        ends = np.append(ctx.starts[1:], len(v)) - 1
        self.total = totals[ends]
        known = self.top.fill_null(-(10**9)).to_numpy()
        self.top = np.maximum(known, np.maximum.reduceat(v, ctx.starts))
        ctx.counter("rows").add(len(v))
        ctx.emit("best", ctx.keys.append_column("top", self.top_array()))
        return pa.table({"k": chunk["k"], "v": v, "total": totals})

    def top_array(self) -> pa.Array:
        return pa.array(self.top)


ROWS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(-5, 5), st.sampled_from([0, 0, 500, 4_000])),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(batches=st.lists(ROWS, min_size=1, max_size=5), data=st.data())
def test_a_chunk_gives_and_keeps_what_its_rows_would(batches: Any, data: Any) -> None:
    at, tops = 0, dict[str, int]()
    tasks = data.draw(st.integers(1, 3))
    with (
        Harness(job_of(ByChunk(), "best"), tasks=tasks) as chunks,
        Harness(job_of(ByRow()), tasks=1) as rows,
    ):
        for batch in batches:
            at += data.draw(st.sampled_from([0, 3_000, 12_000]))
            sent = [(k, v, at) for k, v, _ in batch]  # one time: a key lives through a batch
            if data.draw(st.booleans()):
                chunks.crash()
            for test in (chunks, rows):
                test.send("rows", sent)
                test.watermark("rows", at)
            for k, v, _ in batch:
                tops[k] = max(v, tops.get(k, v))
            assert sorted(said(chunks)) == sorted(said(rows))
            assert sorted(said(chunks, "best")) == sorted(
                (k, tops[k]) for k in {r[0] for r in batch}
            )
        assert chunks.progress.metrics == rows.progress.metrics
        held = [test.state("p")["values"].sort_by("k0") for test in (chunks, rows)]
        assert held[0].equals(held[1])


class Seen(hr.KeyedProcess):
    """Tells what it was shown."""

    output = "said string"

    def on_chunk(self, chunk: pa.Table, ctx: Any) -> Any:
        rows = [f"{k}{v}" for k, v in zip(*(chunk[n].to_pylist() for n in "kv"), strict=True)]
        said = f"{rows} {ctx.index.tolist()} {ctx.starts.tolist()} {ctx.keys.to_pydict()}"
        said += f" {ctx.times.tolist()} {ctx.watermark}"
        return pa.table({"said": [said]}), [0]


def test_rows_come_by_key_and_each_keys_in_order_of_time() -> None:
    with Harness(job_of(Seen()), tasks=1) as test:
        test.watermark("rows", 1)
        test.send("rows", [("a", 1, 9), ("b", 2, 8), ("a", 3, 4), ("b", 4, 20)])
        ((told,),) = said(test)
    # Keys come in the order of their hashes, which is always the same.
    assert told == "['b2', 'b4', 'a3', 'a1'] [0, 0, 1, 1] [0, 2] {'k': ['b', 'a']} [8, 20, 4, 9] 1"


class Odd(hr.KeyedProcess):
    output = "k string, n bigint"
    n = hr.value(int, default=0)

    def on_chunk(self, chunk: pa.Table, ctx: Any) -> Any:
        if -1 in chunk["v"].to_pylist():
            raise ValueError("below zero")
        self.n = np.asarray(self.n) + np.bincount(ctx.index)
        given = ctx.keys.append_column("n", pa.array(self.n))
        if 7 in chunk["v"].to_pylist():
            self.n = self.n[:-1]
        return given


def test_a_key_that_fails_is_set_aside_with_all_its_rows(play: Any) -> None:
    test = play(Odd())
    test.send("rows", [(k, i, i) for i, k in enumerate("abcabc")])
    test.output()
    test.send("rows", [("a", 0, 9), ("b", -1, 9), ("b", 5, 9), ("c", 0, 9), ("d", 7, 9)])
    assert sorted(said(test)) == [("a", 3), ("c", 3)]
    errors = [letter["error"] for letter in test.dead()]
    assert errors.count("ValueError: below zero") == 2
    assert [e for e in errors if "below" not in e] == ["ValueError: self.n has 0 values for 1 keys"]
    held = test.state("p")["values"].to_pydict()
    assert dict(zip(held["k0"], held["n"], strict=True)) == {"a": 3, "b": 2, "c": 3}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (lambda c, x: "text", "returns a str, not an Arrow table"),
        (lambda c, x: pa.table({"k": c["k"]}), "returns no column 'n'"),
        (lambda c, x: pa.table({"k": ["a"] * 9, "n": range(9)}), "say which rows they come from"),
        (lambda c, x: (pa.table({"k": ["a"], "n": [1]}), [99]), "1 rows and 1 places among"),
        (lambda c, x: pa.table({"k": c["k"], "n": ["x"] * len(c)}), "string is no bigint"),
        (lambda c, x: x.emit("side", c), "no side output 'side'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(play: Any, given: Any, error: str) -> None:
    class Given(hr.KeyedProcess):
        output = "k string, n bigint"

        def on_chunk(self, chunk: pa.Table, ctx: Any) -> Any:
            return given(chunk, ctx)

    test = play(Given())
    test.send("rows", [("a", 1, 1), ("a", 2, 1)])
    assert error in test.dead()[0]["error"]


def test_rows_given_have_the_times_of_those_they_came_from(harness: Any) -> None:
    class Last(hr.KeyedProcess):
        output = "k string, n bigint"

        def on_chunk(self, chunk: pa.Table, ctx: Any) -> Any:
            return ctx.keys.append_column("n", pa.array(np.bincount(ctx.index)))

    job = hr.Job("times")
    rows = job.read("log:rows", schema="k string, v bigint, at bigint", time="at", delay="1h")
    made = rows.key_by("k").process(Last())
    made.key_by("k").window(hr.tumbling("10s")).agg(n=hr.sum("n")).write("collect:", name="out")
    test = harness(job)
    test.send("rows", [("a", 1, 9_999), ("a", 1, 10_000), ("b", 1, 5_000)])
    test.end()
    assert {(r["k"], r["window_end"].timestamp(), r["n"]) for r in test.output()} == {
        ("a", 20.0, 2), ("b", 10.0, 1),
    }  # fmt: skip


def test_explain_says_which_path_a_function_takes() -> None:
    def why(fn: hr.KeyedProcess) -> str:
        return str(job_of(fn).explain().json["python"][0]["why"])

    assert why(ByRow()) == "ByRow: a process function, row by row"
    assert why(ByChunk()) == "ByChunk: a process function, by chunk"
