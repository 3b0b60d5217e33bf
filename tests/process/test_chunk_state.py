"""Lists, maps and timers over chunks: against the same function over rows, and a plain model."""

from __future__ import annotations

import heapq
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.process.playing import job_of, said


class ByRow(hr.KeyedProcess):
    """Lists what it saw and counts values; a timer emits both, and sets another while v is odd.

    A row of 0 cancels the timer at 9 000 ms, one of 7 sets a timer that is due at once.
    """

    output = "k string, what string, at bigint, n bigint"
    seen = hr.list_of(int)
    counts = hr.map_of(int, int)
    recent = hr.value(int, default=0, ttl="6s")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen.append(row.v)
        self.counts[row.v] = self.counts.get(row.v, 0) + 1
        self.recent += 1
        if row.v == 0:
            ctx.cancel(9_000)
        elif row.v == 7:
            ctx.timer(ctx.time - 5_000)
        else:
            ctx.timer(ctx.time + 1_000 * row.v)
        return (ctx.key, "row", ctx.time, len(self.seen) * 100 + self.counts[row.v])

    def on_timer(self, time: int, ctx: Any) -> Any:
        last = self.seen[-1] if self.seen else -1
        self.seen = self.seen[-3:]
        if last % 2:
            ctx.timer(time + 2_500)
            self.seen[-1:] = [last - 1]
        return (ctx.key, "timer", time, 100 * last + sum(self.counts.values()) + self.recent)


class ByChunk(ByRow):
    """The same: Arrow in and out, though a loop over keys is between."""

    on_row = None  # type: ignore[assignment]

    def on_chunk(self, chunk: pa.Table, ctx: Any) -> Any:
        assert pa.types.is_list(self.seen.type)
        assert pa.types.is_map(self.counts.type)
        seen, recent = self.seen.to_pylist(), self.recent.to_pylist()
        counts = [dict(entries) for entries in self.counts.to_pylist()]
        out = []
        for i, (k, v) in enumerate(zip(*(chunk[n].to_pylist() for n in "kv"), strict=True)):
            key, at = int(ctx.index[i]), int(ctx.times[i])
            seen[key].append(v)
            recent[key] += 1
            counts[key][v] = counts[key].get(v, 0) + 1
            if v == 0:
                ctx.cancel([9_000], keys=[key])
            else:
                ctx.timer(at - 5_000 if v == 7 else at + 1_000 * v, keys=[key])
            out.append((k, "row", at, len(seen[key]) * 100 + counts[key][v]))
        self.seen, self.counts, self.recent = (
            seen,
            pa.array(counts_of(counts), self.counts.type),
            recent,
        )
        return table_of(out)

    def on_timer(self, times: pa.Array, ctx: Any) -> Any:
        seen = self.seen.to_pylist()
        last = [items[-1] if items else -1 for items in seen]
        seen = [items[-3:] for items in seen]
        again = [
            at + 2_500 if v % 2 else None for at, v in zip(times.to_pylist(), last, strict=True)
        ]
        ctx.timer(pa.array(again, pa.int64()))
        self.seen = [[*s[:-1], v - 1] if v % 2 else s for s, v in zip(seen, last, strict=True)]
        totals = [sum(dict(entries).values()) for entries in self.counts.to_pylist()]
        lengths = self.recent.to_pylist()
        numbers = [100 * v + t + n for v, t, n in zip(last, totals, lengths, strict=True)]
        return (
            ctx.keys.append_column("what", pa.array(["timer"] * len(times)))
            .append_column("at", times)
            .append_column("n", pa.array(numbers))
        )


def counts_of(counts: list[dict[int, int]]) -> list[list[tuple[int, int]]]:
    return [list(entries.items()) for entries in counts]


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table(columns, names=["k", "what", "at", "n"])


class Model:
    """One key after the other: its rows, then its timers that are due, in order."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.watermark = -(2**62)

    def batch(self, rows: list[tuple[str, int, int]], watermark: int) -> list[tuple[Any, ...]]:
        before, self.watermark = self.watermark, max(watermark, self.watermark)
        for k, _, _ in rows:
            self.keys.setdefault(k, {"seen": [], "counts": {}, "recent": 0, "at": None,
                                     "timers": set()})  # fmt: skip
        out = []
        for k, key in self.keys.items():
            for _, v, at in sorted((r for r in rows if r[0] == k), key=lambda r: r[2]):
                self.expire(key, max(at, before))
                key["seen"].append(v)
                key["recent"] += 1
                key["at"] = max(key["at"] or at, at, before)
                key["counts"][v] = key["counts"].get(v, 0) + 1
                if v == 0:
                    key["timers"].discard(9_000)
                else:
                    key["timers"].add(at - 5_000 if v == 7 else at + 1_000 * v)
                out.append((k, "row", at, len(key["seen"]) * 100 + key["counts"][v]))
            due = [t for t in key["timers"] if t <= self.watermark]
            heapq.heapify(due)
            while due:
                time = heapq.heappop(due)
                key["timers"].discard(time)
                self.expire(key, max(time, before))
                last = key["seen"][-1] if key["seen"] else -1
                key["seen"] = key["seen"][-3:]
                total = sum(key["counts"].values()) + key["recent"]
                out.append((k, "timer", time, 100 * last + total))
                if last % 2:
                    key["seen"][-1:] = [last - 1]
                    if time + 2_500 not in key["timers"]:
                        key["timers"].add(time + 2_500)
                        if time + 2_500 <= self.watermark:
                            heapq.heappush(due, time + 2_500)
        return sorted(out)

    def expire(self, key: Any, now: int) -> None:
        if key["at"] is not None and key["at"] + 6_000 <= now:
            key["recent"], key["at"] = 0, None


ROWS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from([0, 1, 2, 3, 7, 8]),
              st.integers(0, 4).map(lambda s: 500 * s)),
    max_size=7,
)  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(batches=st.lists(ROWS, min_size=1, max_size=6), data=st.data())
def test_a_chunk_does_what_its_rows_would(batches: Any, data: Any) -> None:
    """Rows of a key within a batch have one time, so that what has a ttl lives through it.

    A timer that is due at once comes before the key's next row; of a chunk, after its rows. So it
    is the last row of a key that sets one.
    """
    at, model = 0, Model()
    tasks = data.draw(st.integers(1, 3))
    with (
        Harness(job_of(ByChunk()), tasks=tasks) as chunks,
        Harness(job_of(ByRow()), tasks=1) as rows,
    ):
        for batch in batches:
            at += data.draw(st.sampled_from([0, 1_000, 3_000, 8_000]))
            sent = [(k, v, at) for k, v, _ in batch if v != 7]
            sent += [(k, 7, at) for k in sorted({k for k, v, _ in batch if v == 7})]
            if data.draw(st.booleans()):
                chunks.crash()
            for test in (chunks, rows):
                test.send("rows", sent)
            expected = model.batch(sent, -(2**62))
            assert sorted(said(chunks)) == sorted(said(rows)) == expected
            for test in (chunks, rows):
                test.watermark("rows", at)
            expected = model.batch([], at)
            assert sorted(said(chunks)) == sorted(said(rows)) == expected
        for test in (chunks, rows):
            test.end()
        assert sorted(said(chunks)) == sorted(said(rows))
        assert not chunks.dead()


def test_the_class_may_change_from_rows_to_chunks_and_back() -> None:
    with Harness(job_of(ByRow())) as test:
        test.send("rows", [("a", 2, 0), ("b", 8, 0)])
        test.output()
        test.restart(job_of(ByChunk()))
        test.watermark("rows", 2_000)
        assert said(test) == [("a", "timer", 2_000, 202)]
        test.send("rows", [("a", 8, 3_000)])
        assert said(test) == [("a", "row", 3_000, 201)]
        test.restart(job_of(ByRow()))
        test.watermark("rows", 11_000)
        assert sorted(said(test)) == [("a", "timer", 11_000, 802), ("b", "timer", 8_000, 801)]


class ByClock(hr.KeyedProcess):
    output = "k string, at bigint, by_clock boolean"

    def on_chunk(self, chunk: pa.Table, ctx: Any) -> Any:
        if 13 in chunk["v"].to_pylist():
            ctx.timer(2**62)
        ctx.clock_timer(ctx.clock + 5_000)
        ctx.clock_timer([ctx.clock + 7_000], keys=[0])
        ctx.cancel_clock(ctx.clock + 7_000)

    def on_timer(self, times: pa.Array, ctx: Any) -> Any:
        if "bad" in ctx.keys["k"].to_pylist():
            raise ValueError("a bad key")
        flags = pa.array(ctx.by_clock)
        return ctx.keys.append_column("at", times).append_column("by_clock", flags)


def test_timers_by_the_clock_and_those_that_fail() -> None:
    with Harness(job_of(ByClock())) as test:
        test.send("rows", [("a", 1, 0), ("bad", 1, 0), ("c", 1, 0)])
        now = test.now
        test.advance("6s")
        assert sorted(said(test)) == [("a", now + 5_000, True), ("c", now + 5_000, True)]
        (letter,) = test.dead()
        assert "a bad key" in letter["error"]
        test.advance("6s")
        assert said(test) == []
        test.send("rows", [("d", 13, 1)])
        assert "would never fire" in test.dead()[-1]["error"]


class Wrong(hr.KeyedProcess):
    output = "k string"

    def on_chunk(self, chunk: pa.Table, ctx: Any) -> Any:
        ctx.timer([1, 2, 3])

    def on_timer(self, times: pa.Array, ctx: Any) -> None: ...


def test_so_many_times_as_keys() -> None:
    with Harness(job_of(Wrong())) as test:
        test.send("rows", [("a", 1, 0)])
        (letter,) = test.dead()
        assert letter["error"] == "ValueError: 3 times of timers for 1 of 1 keys"


def test_timers_need_a_handler(play: Any) -> None:
    kind = type("P", (Wrong,), {"on_timer": None})
    with pytest.raises(hr.PlanError, match="HR-PROCESS-003"):
        play(kind())
