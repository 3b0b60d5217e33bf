"""Small programs, one per operator, each beside a plain-Python model of what it means.

Rows are (key, value, at, tag) with event times in milliseconds. A model sees all rows of the
input and says what the output must hold, as a multiset: a program over bounded input gives
the same whatever the batches, tasks and restarts. Models know nothing of Headrace.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace import col

SCHEMA = pa.schema(
    [("k", pa.string()), ("v", pa.int64()), ("at", pa.int64()), ("tag", pa.string())]
)
OUT = "out"
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[hr.Stream], Any]
    model: Callable[[Rows], Iterable[tuple[Any, ...]]]


def make(case: Case, source: Any, name: str = "job") -> hr.Job:
    """A job that runs the case's program over `source` into "collect:out"."""
    job = hr.Job(name)
    rows = job.read(source, time="at", delay="5s", name="rows")
    case.build(rows).write("collect:", name=OUT)
    return job


def ordered(rows: Rows) -> Rows:
    return sorted(rows, key=lambda r: (r["at"], r["split"], r["offset"]))


def by_key(rows: Rows) -> dict[str, Rows]:
    found: dict[str, Rows] = defaultdict(list)
    for row in ordered(rows):
        found[row["k"]].append(row)
    return found


def windows(at: int, size: int, slide: int) -> list[int]:
    first = (at - size) // slide * slide + slide
    return list(range(first, at + 1, slide))


def in_windows(rows: Rows, size: int, slide: int) -> dict[tuple[Any, int], Rows]:
    found: dict[tuple[Any, int], Rows] = defaultdict(list)
    for row in ordered(rows):
        for start in windows(row["at"], size, slide):
            found[row["k"], start].append(row)
    return found


# stateless


def _even(row: Any) -> bool:
    return bool(row.v is not None and row.v % 2 == 0)


def _twice(row: Any) -> list[tuple[str, int]]:
    return [(row.k, i) for i in range((row.v or 0) % 3)]


def _upper(row: Any) -> tuple[str, str]:
    return (row.k, (row.tag or "").upper())


def _batch(table: pa.Table) -> pa.Table:
    return table.select(["k", "v"])


STATELESS = [
    Case(
        "where",
        lambda s: s.where(col("v") > 3).select("k", "v"),
        lambda rows: [(r["k"], r["v"]) for r in rows if r["v"] is not None and r["v"] > 3],
    ),
    Case(
        "a traced lambda is a filter",
        lambda s: s.filter(lambda e: e.v > 3).select("k", "v"),
        lambda rows: [(r["k"], r["v"]) for r in rows if r["v"] is not None and r["v"] > 3],
    ),
    Case(
        "with_columns, drop",
        lambda s: s.with_columns(w=col("v") * 2).drop("at", "tag", "v"),
        lambda rows: [(r["k"], None if r["v"] is None else r["v"] * 2) for r in rows],
    ),
    Case(
        "map by a traced lambda",
        lambda s: s.map(lambda e: {"k": e.k, "w": e.v + 1}),
        lambda rows: [(r["k"], None if r["v"] is None else r["v"] + 1) for r in rows],
    ),
    Case(
        "filter and map by Python functions, fused",
        lambda s: s.filter(_even).map(_upper, schema="k string, t string"),
        lambda rows: [
            (r["k"], (r["tag"] or "").upper())
            for r in rows
            if r["v"] is not None and r["v"] % 2 == 0
        ],
    ),
    Case(
        "flat_map",
        lambda s: s.flat_map(_twice, schema="k string, i bigint"),
        lambda rows: [(r["k"], i) for r in rows for i in range((r["v"] or 0) % 3)],
    ),
    Case(
        "map_batches",
        lambda s: s.map_batches(_batch, schema="k string, v bigint"),
        lambda rows: [(r["k"], r["v"]) for r in rows],
    ),
    Case(
        "union of two branches",
        lambda s: s.where("v > 5").select("k", "v").union(s.where("v < 2").select("k", "v")),
        lambda rows: [
            (r["k"], r["v"]) for r in rows if r["v"] is not None and not 2 <= r["v"] <= 5
        ],
    ),
]

# rolling


def _rolling(rows: Rows) -> Iterable[tuple[Any, ...]]:
    for key, mine in by_key(rows).items():
        seen: list[int] = []
        for row in mine:
            seen += [row["v"]] if row["v"] is not None else []
            total = sum(seen) if seen else None
            yield (key, row["v"], row["at"], row["tag"], total, max(seen, default=None))


def _larger(a: Any, b: Any) -> Any:
    return b if (b.v or 0) >= (a.v or 0) else a


def _running_max(rows: Rows) -> Iterable[tuple[Any, ...]]:
    for mine in by_key(rows).values():
        best = None
        for row in mine:
            if best is None or (row["v"] or 0) >= (best["v"] or 0):
                best = row
            yield (best["k"], best["v"], best["at"], best["tag"])


def _append(state: str, row: Any) -> str:
    return f"{state}{row.tag or '-'}"[-8:]


def _folded(rows: Rows) -> Iterable[tuple[Any, ...]]:
    for key, mine in by_key(rows).items():
        state = ""
        for row in mine:
            state = f"{state}{row['tag'] or '-'}"[-8:]
            yield (key, state)


class Changes(hr.KeyedProcess):
    """Says when a key's tag differs from the one before, and how many rows it has seen."""

    last = hr.value(str)
    seen = hr.value(int, default=0)
    output = "k string, tag string, seen bigint"

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen += 1
        if row.tag != self.last:
            self.last = row.tag
            yield {"k": ctx.key, "tag": row.tag, "seen": self.seen}


def _changes(rows: Rows) -> Iterable[tuple[Any, ...]]:
    for key, mine in by_key(rows).items():
        last = None
        for seen, row in enumerate(mine, 1):
            if row["tag"] != last:
                last = row["tag"]
                yield (key, row["tag"], seen)


ROLLING = [
    Case(
        "rolling agg",
        lambda s: s.key_by("k").agg(total=hr.sum("v"), top=hr.max("v"), unbounded=True),
        _rolling,
    ),
    Case("reduce", lambda s: s.key_by("k").reduce(_larger, unbounded=True), _running_max),
    Case(
        "fold",
        lambda s: s.key_by("k").fold("", _append, schema=str, unbounded=True),
        _folded,
    ),
    Case("process", lambda s: s.key_by("k").process(Changes(), unbounded=True), _changes),
]

# windows


def _window_model(size: int, slide: int, result: Callable[[Rows], tuple[Any, ...]]) -> Any:
    def model(rows: Rows) -> Iterable[tuple[Any, ...]]:
        for (key, start), mine in in_windows(rows, size, slide).items():
            yield (key, start, start + size, *result(mine))

    return model


def _numbers(rows: Rows) -> tuple[Any, ...]:
    values = [r["v"] for r in rows if r["v"] is not None]
    n = len(values)
    mean = sum(values) / n if n else None
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else None
    return (len(rows), sum(values) if n else None, mean, min(values, default=None),
            max(values, default=None), spread)  # fmt: skip


def _tags(rows: Rows) -> tuple[Any, ...]:
    tags = [r["tag"] for r in rows if r["tag"] is not None]
    return (tags[0] if tags else None, tags[-1] if tags else None, len(set(tags)))


def _unkeyed(rows: Rows) -> Iterable[tuple[Any, ...]]:
    found: Counter[int] = Counter()
    for row in rows:
        found.update(windows(row["at"], 10_000, 10_000))
    return [(start, start + 10_000, n) for start, n in found.items()]


def _sum_rows(a: Any, b: Any) -> Any:
    return a._replace(v=(a.v or 0) + (b.v or 0), tag=b.tag)


def _reduced(rows: Rows) -> tuple[Any, ...]:
    first, *rest = rows
    v, tag = first["v"], first["tag"]
    for row in rest:
        v, tag = (v or 0) + (row["v"] or 0), row["tag"]
    return (v, first["at"], tag)


def _chained(rows: Rows) -> Iterable[tuple[Any, ...]]:
    counts: dict[tuple[str, int], int] = {}
    for (key, start), mine in in_windows(rows, 5_000, 5_000).items():
        counts[key, start] = len(mine)
    outer: dict[int, list[int]] = defaultdict(list)
    for (_, start), n in counts.items():
        outer[(start + 4_999) // 20_000 * 20_000].append(n)
    return [(start, start + 20_000, max(ns), len(ns)) for start, ns in outer.items()]


def _concat(state: str, row: Any) -> str:
    return state + (row.tag or "-")


WINDOWS = [
    Case(
        "tumbling window, numbers",
        lambda s: s.key_by("k").window(hr.tumbling("10s")).agg(
            n=hr.count(), total=hr.sum("v"), mean=hr.mean("v"), low=hr.min("v"), high=hr.max("v"),
            spread=hr.stddev("v"),
        ),
        _window_model(10_000, 10_000, _numbers),
    ),
    Case(
        "sliding window, numbers",
        lambda s: s.key_by("k").window(hr.sliding("20s", every="5s")).agg(
            n=hr.count(), total=hr.sum("v"), mean=hr.mean("v"), low=hr.min("v"), high=hr.max("v"),
            spread=hr.stddev("v"),
        ),
        _window_model(20_000, 5_000, _numbers),
    ),
    Case(
        "sliding window, order and texts",
        lambda s: s.key_by("k").window(hr.sliding("20s", every="10s")).agg(
            a=hr.first("tag"), z=hr.last("tag"), d=hr.count_distinct("tag")
        ),
        _window_model(20_000, 10_000, _tags),
    ),
    Case("unkeyed window", lambda s: s.window(hr.tumbling("10s")).agg(n=hr.count()), _unkeyed),
    Case(
        "window on windows",
        lambda s: s.key_by("k").window(hr.tumbling("5s")).agg(n=hr.count())
        .window(hr.tumbling("20s")).agg(most=hr.max("n"), keys=hr.count()),
        _chained,
    ),
]  # fmt: skip

# The user's function sees rows epoch by epoch, so across batches order is arrival.
IN_ORDER = [
    *ROLLING,
    Case(
        "window reduce",
        lambda s: s.key_by("k").window(hr.tumbling("10s")).reduce(_sum_rows),
        _window_model(10_000, 10_000, _reduced),
    ),
    Case(
        "window fold, sliding",
        lambda s: s.key_by("k").window(hr.sliding("20s", every="10s")).fold(
            "", _concat, schema=str
        ),
        _window_model(
            20_000, 10_000, lambda rows: ("".join(r["tag"] or "-" for r in rows),)
        ),
    ),
]  # fmt: skip

CASES = [*STATELESS, *IN_ORDER, *WINDOWS]


def multiset(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows of an output, times as milliseconds and floats rounded, without order."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            micros = column.cast(pa.int64()).to_pylist()
            columns.append([None if t is None else t // 1_000 for t in micros])
        else:
            columns.append([_rounded(v) for v in column.to_pylist()])
    return Counter(zip(*columns, strict=True))


def expected(case: Case, rows: Rows) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_rounded(v) for v in row) for row in case.model(rows))


def _rounded(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value
