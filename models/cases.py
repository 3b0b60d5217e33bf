"""The cases: a program over the rows, and the SQL that says what it should give.

The SQL is DuckDB's, over the same rows as Parquet; it shares nothing with the program. Columns
are compared by place, rows as a multiset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace import Stream

Build = Callable[[Stream, Callable[[], Stream]], Stream]  # of x, and of y where it is read


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    build: Build
    sql: str
    topic: str = "x"  # or "ordered"
    ours: str = "from came"  # what of the output is compared, where that is not all of it


class Total(hr.KeyedProcess):
    output = "id bigint, k bigint, total bigint"
    total = hr.value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.total += row.v
        return (row.id, ctx.key, self.total)


class TotalOfChunks(hr.KeyedProcess):
    output = "id bigint, k bigint, total bigint"
    total = hr.value(int, default=0)

    def on_chunk(self, chunk: pa.Table, ctx: Any) -> Any:
        sums = np.cumsum(chunk["v"].to_numpy())
        before = np.append(0, sums)[ctx.starts]
        totals = self.total.to_numpy()[ctx.index] + sums - before[ctx.index]
        self.total = totals[np.append(ctx.starts[1:], len(sums)) - 1]
        return pa.table({"id": chunk["id"], "k": chunk["k"], "total": totals})


class Reminder(hr.KeyedProcess):
    output = "k bigint, due bigint"

    def on_row(self, row: Any, ctx: Any) -> None:
        ctx.timer(ctx.time + 60_000)

    def on_timer(self, time: int, ctx: Any) -> Any:
        return (ctx.key, time)


class Both(hr.KeyedProcess):
    output = "source string, id bigint, k bigint"
    seen = hr.map_of(str, int)

    def on_x(self, row: Any, ctx: Any) -> Any:
        self.seen["left"] = row.id
        return ("left", row.id, ctx.key)

    def on_y(self, row: Any, ctx: Any) -> Any:
        self.seen["right"] = row.id
        return ("right", row.id, ctx.key)


class Sizes(hr.WindowProcess):
    def process(self, key: Any, window: Any, rows: Any) -> Any:
        return (len(rows), sum(rows["v"]))


def _owed(key: Any, left: Any, right: Any) -> Any:
    return (sum(row.v for row in left), len(right))


def _mapped(row: Any) -> dict[str, int]:
    return {"id": row.id, "twice": row.v * 2}


def _several(row: Any) -> list[tuple[int, int]]:
    return [(row.id, i) for i in range(row.kind)]


def _counted(row: Any, n: Any) -> Any:
    n = (n or 0) + 1
    return (row.id, n), n


def _pair(m: Any) -> Any:
    (_, a), (_, b) = m.rows
    return (a.id, b.id)


NUMBERS = {"n": hr.count(), "total": hr.sum("v"), "low": hr.min("v"), "high": hr.max("v"),
           "kinds": hr.count_distinct("kind"), "top": hr.max_by("id", "ts")}  # fmt: skip
_SQL = "count(*), sum(v), min(v), max(v), count(distinct kind), max_by(id, ts)"
_MS = "epoch_ms(ts)"
_ORDER = "partition by k order by ts"


def _tumbling(size: int) -> str:
    return f"select k, {_SQL} from x group by k, {_MS} // {size}"


def _hopping(size: int, slide: int) -> str:
    starts = f"generate_series({_MS} // {slide} * {slide} - {size - slide}, {_MS}, {slide})"
    return f"select k, {_SQL} from (select *, unnest({starts}) s from x) group by k, s"


def _plain(stream: Any) -> Stream:
    found: Stream = stream.drop("window_start", "window_end")
    return found


def _cool(y: Callable[[], Stream]) -> Stream:
    """Without the key that has so many rows that nobody would wait for its pairs."""
    return y().where("k <> 0")


SESSIONS = f"""
with marked as (select *, case when {_MS} - lag({_MS}) over ({_ORDER}) <= 600000 then 0 else 1 end
                as fresh from x),
     numbered as (select *, sum(fresh) over ({_ORDER}) as session from marked)
select k, {_SQL} from numbered group by k, session"""

# The first of a key goes on, and then the first that is a minute after the last that did.
DISTINCT = """
with recursive by_key as (select k, list(epoch_ms(ts) order by ts) t, list(id order by ts) i
                        from x where k <> 0 group by k),
     went(k, t, i, n) as (
        select k, t, i, 1 from by_key
        union all
        select * from (
            select k, t, i, list_position(list_transform(t, lambda u: u >= t[n] + 60000), true) m
            from went) where m > 0)
select i[n] from went"""

CASES = (
    Case("where, select", lambda x, y: x.where("v % 3 = 0 and kind <> 2").select(
            "id", w="v * 2 - id"),
         "select id, v * 2 - id from x where v % 3 = 0 and kind <> 2"),
    Case("map", lambda x, y: x.map(_mapped, schema="id bigint, twice bigint"),
         "select id, v * 2 from x"),
    Case("flat_map", lambda x, y: x.flat_map(_several, schema="id bigint, i bigint"),
         "select id, i from x, generate_series(0, kind - 1) as series(i)"),
    Case("tumbling", lambda x, y: _plain(x.key_by("k").window(hr.tumbling("10m")).agg(**NUMBERS)),
         _tumbling(600_000)),
    Case("tumbling by text", lambda x, y: _plain(
            x.key_by("name").window(hr.tumbling("10m")).agg(**NUMBERS)),
         _tumbling(600_000).replace("select k", "select k::text")),
    Case("sliding", lambda x, y: _plain(
            x.key_by("k").window(hr.sliding("20m", every="5m")).agg(**NUMBERS)),
         _hopping(1_200_000, 300_000)),
    Case("session", lambda x, y: _plain(x.key_by("k").window(hr.session("10m")).agg(**NUMBERS)),
         SESSIONS),
    Case("cumulating", lambda x, y: _plain(
            x.key_by("k").window(hr.cumulating("1h", every="10m")).agg(**NUMBERS)),
         f"select k, {_SQL} from (select *, unnest(generate_series(({_MS} // 600000 + 1) * 600000, "
         f"({_MS} // 3600000 + 1) * 3600000, 600000)) s from x) group by k, s"),
    Case("best of each window", lambda x, y: x.key_by("k").window(hr.tumbling("10m")).agg(
            last=hr.max("id")).top(20, by="last").select("k", "last", "rank"),
         "select k, high, row_number() over (partition by w order by high desc) as place from "
         f"(select k, {_MS} // 600000 w, max(id) high from x group by k, w) qualify place <= 20"),
    Case("windows of all rows", lambda x, y: _plain(x.window(hr.tumbling("10s")).agg(**NUMBERS)),
         f"select {_SQL} from x group by {_MS} // 10000"),
    Case("windows of three rows", lambda x, y: _plain(
            x.key_by("k").window(hr.tumbling(rows=3)).agg(**NUMBERS)),
         f"select k, {_SQL} from (select *, (row_number() over ({_ORDER}) - 1) // 3 as part "
         "from x) group by k, part", "ordered"),
    Case("process(key, window, rows)", lambda x, y: _plain(
            x.key_by("k").window(hr.tumbling("10m")).process(
                Sizes(), schema="n bigint, total bigint")),
         f"select k, count(*), sum(v) from x group by k, {_MS} // 600000"),
    Case("fold in windows", lambda x, y: _plain(x.key_by("k").window(hr.tumbling("10m")).fold(
            0, lambda total, row: total + row.v, schema="total bigint")),
         f"select k, sum(v) from x group by k, {_MS} // 600000"),
    Case("process by row", lambda x, y: x.key_by("k").process(Total(), unbounded=True),
         f"select id, k, sum(v) over ({_ORDER}) from x", "ordered"),
    Case("process by chunk", lambda x, y: x.key_by("k").process(TotalOfChunks(), unbounded=True),
         f"select id, k, sum(v) over ({_ORDER}) from x", "ordered"),
    Case("timers", lambda x, y: x.key_by("k").process(Reminder()),
         f"select distinct k, {_MS} + 60000 from x", "ordered"),
    Case("connect", lambda x, y: x.key_by("k").connect(y().key_by("k")).process(
            Both(), unbounded=True),
         "select 'left', id, k from x union all select 'right', id, k from y", "ordered"),
    Case("map_with_state", lambda x, y: x.key_by("k").map_with_state(
            _counted, state=int, output="id bigint, n bigint", unbounded=True),
         f"select id, count(*) over ({_ORDER} rows unbounded preceding) from x", "ordered"),
    Case("running aggregates", lambda x, y: x.key_by("k").agg(
            n=hr.count(), high=hr.max("v"), unbounded=True),
         "select k, count(*), max(v) from x group by k",
         ours="select k, max(n), max(high) from came group by k"),
    Case("running fold", lambda x, y: x.key_by("k").fold(
            0, lambda n, row: n + 1, schema="n bigint", unbounded=True),
         "select k, count(*) from x group by k", ours="select k, max(n) from came group by k"),
    Case("batch", lambda x, y: x.key_by("k").batch(5, unbounded=True),
         f"select k, list(id order by ts) from (select *, (row_number() over ({_ORDER}) - 1) // 5 "
         "as part from x) group by k, part", "ordered",
         ours="select k, list_transform(rows, lambda r: r.id) from came"),
    Case("deduplicate", lambda x, y: x.key_by("k").deduplicate("kind", unbounded=True).select("id"),
         "select id from x qualify row_number() over (partition by k, kind order by ts) = 1",
         "ordered"),
    Case("deduplicate within a minute", lambda x, y: x.where("k <> 0").key_by("k").deduplicate(
            within="60s").select("id"), DISTINCT, "ordered"),
    Case("changes_only", lambda x, y: x.key_by("k").changes_only("kind", unbounded=True)
            .select("id"),
         f"select id from x qualify lag(kind) over ({_ORDER}) is distinct from kind", "ordered"),
    Case("throttle", lambda x, y: x.key_by("k").throttle(2, per="30m").select("id"),
         f"select id from x qualify row_number() over (partition by k, {_MS} // 1800000 "
         "order by ts) <= 2", "ordered"),
    Case("pattern", lambda x, y: x.key_by("k").match(
            hr.pattern("a", "kind = 0").next("b", "kind = 1"), select=_pair,
            output="a bigint, b bigint", unbounded=True).select("a", "b"),
         f"select a, b from (select lag(id) over ({_ORDER}) a, id b, kind, lag(kind) "
         f"over ({_ORDER}) was from x) where was = 0 and kind = 1", "ordered"),
    Case("interval join", lambda x, y: x.join(_cool(y), on="k", within=("-2m", "3m")).select(
            "id", "id_right"),
         "select x.id, y.id from x join y using (k) where epoch_ms(y.ts) "
         "between epoch_ms(x.ts) - 120000 and epoch_ms(x.ts) + 180000 and x.k <> 0"),
    Case("interval join, left", lambda x, y: x.join(
            _cool(y), on="k", how="left", within=("-2m", "3m")).select("id", "id_right"),
         "select x.id, y.id from x left join y on x.k = y.k and x.k <> 0 and epoch_ms(y.ts) "
         "between epoch_ms(x.ts) - 120000 and epoch_ms(x.ts) + 180000"),
    Case("window join", lambda x, y: x.join(_cool(y), on="k", window=hr.tumbling("10m")).select(
            "id", "id_right"),
         "select x.id, y.id from x join y using (k) where epoch_ms(x.ts) // 600000 = "
         "epoch_ms(y.ts) // 600000 and x.k <> 0"),
    Case("cogroup", lambda x, y: _plain(x.cogroup(
            y(), _owed, on="k", window=hr.tumbling("10m"), schema="v bigint, n bigint")),
         f"with a as (select k, {_MS} // 600000 w, sum(v) v from x group by all), "
         f"b as (select k, {_MS} // 600000 w, count(*) n from y group by all) "
         "select k, coalesce(v, 0), coalesce(n, 0) from a full join b using (k, w)"),
    Case("join of several", lambda x, y: hr.join_all(on="k", within="1m", x=x, y=_cool(y)).select(
            "id_x", "id_y"),
         "select x.id, y.id from x join y using (k) where x.k <> 0 and "
         "abs(epoch_ms(y.ts) - epoch_ms(x.ts)) <= 60000"),
    Case("latest row", lambda x, y: x.join(y().table("k", unbounded=True), on="k", how="left")
            .select("id", "id_right"),
         "select x.id, y.id from x asof left join y on x.k = y.k and x.ts >= y.ts"),
)  # fmt: skip
