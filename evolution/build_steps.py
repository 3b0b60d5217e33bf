"""Steps of one stream, as a user writes them; each gives three numbers of its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import headrace as hr
from evolution.model_time import SOON, small_tree
from evolution.places import ROW
from evolution.spec import Step

Built = tuple[hr.Stream, tuple[str, str, str]]
SIGN = "case when change = '+' then 1 else -1 end"
START = "unix_millis(window_start)"
_WHOLE = ("id", "x", "y")
_GIVEN = "k string, p bigint, id bigint, n bigint"


class Sum(hr.KeyedProcess):
    output = f"{_GIVEN}, t bigint"
    n = hr.value("bigint", default=0)
    t = hr.value("bigint", default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.t += row.x
        return (row.k, row.p, row.id, self.n, self.t)


class SumAndMost(hr.KeyedProcess):
    """The same with one more value."""

    output = f"{_GIVEN}, t bigint"
    n = hr.value("bigint", default=0)
    t = hr.value("bigint", default=0)
    m = hr.value("bigint", default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.t += row.x
        self.m = max(self.m, row.x)
        return (row.k, row.p, row.id, self.n, 1000 * self.m + self.t)


class Both(hr.KeyedProcess):
    output = _GIVEN
    first = hr.value("bigint", default=0)
    second = hr.value("bigint", default=0)

    def on_a(self, row: Any, ctx: Any) -> Any:
        self.first += 1
        return (row.k, row.p, row.id, self.first)

    def on_b(self, row: Any, ctx: Any) -> Any:
        self.second += 1
        return (row.k, row.p, row.id, self.second)


class Later(hr.KeyedProcess):
    """Tells of each row, when the time after it has passed."""

    output = "k string, p bigint, at bigint"
    k = hr.value("string", default="")
    p = hr.value("bigint", default=0)

    def __init__(self, length: int) -> None:
        self.length = length

    def on_row(self, row: Any, ctx: Any) -> None:
        self.k, self.p = row.k, row.p
        ctx.timer(ctx.time + self.length)

    def on_timer(self, time: int, ctx: Any) -> Any:
        return (self.k, self.p, time)


class InOrder(hr.KeyedProcess):
    """Tells of each row which of its key it is, and of each silence how many there were before."""

    output = f"{_GIVEN}, at bigint"
    n = hr.value("bigint", default=0)
    last = hr.value("bigint")
    row = hr.value("struct<k: string, p: bigint, id: bigint>")

    def __init__(self, length: int) -> None:
        self.length = length

    def on_row(self, row: Any, ctx: Any) -> Any:
        if self.last is not None:
            ctx.cancel(self.last + self.length)
        self.n, self.last = self.n + 1, ctx.time
        self.row = {"k": row.k, "p": row.p, "id": row.id}
        ctx.timer(ctx.time + self.length)
        return (row.k, row.p, row.id, self.n, 0)

    def on_timer(self, time: int, ctx: Any) -> Any:
        self.n, self.last = 0, None
        return (self.row["k"], self.row["p"], self.row["id"], 0, time)


def made(s: Step, sides: list[hr.Stream], time: str) -> Built:
    if s.of.aggs and s.kind != "agg":
        return _aggregated(s, sides[0])
    return _MAKERS[s.kind](s, sides, time)


def _named(s: Step) -> dict[str, Any]:
    return {"name": s.name, "was": s.was}


def _near(s: Step) -> str:
    return f"{s.length * 1000 + 500}ms"


_TOLD = {"mean": "{} * 1000", "percentile": "{} * 2", "collect": "size({0}) * 1000 + {0}[0]"}


def _aggregates(s: Step) -> dict[str, Any]:
    def made(agg: str) -> Any:
        kind = getattr(hr, agg)
        if agg == "count":
            return kind()
        if agg in ("percentile", "approx_quantile"):
            return kind(s.column, 0.5)
        return kind("id", s.column) if agg in ("max_by", "min_by") else kind(s.column)

    return {name: made(agg) for name, agg in s.aggregates.items()}


def _of_stored(s: Step) -> dict[str, Any]:
    """What it says of the aggregates in its state."""
    return {"since": s.since or None, "was_fields": dict(s.was_names)}


def _results(s: Step, first: str) -> tuple[str, str, str]:
    told = [_TOLD.get(agg, "{}").format(name) for name, agg in s.aggregates.items()]
    return (first, told[0], told[1] if len(told) > 1 else "0")


def _aggregated(s: Step, side: hr.Stream) -> Built:
    size = f"{s.length}s"
    more: dict[str, Any] = {"lateness": f"{s.late}s"} if s.of.waits and s.late else {}
    windows: dict[str, Callable[[], Any]] = {
        "tumbling": lambda: hr.tumbling(size), "patient": lambda: hr.tumbling(size),
        **dict.fromkeys(("sliding", "hopping"), lambda: hr.sliding(f"{2 * s.length}s", size)),
        "session": lambda: hr.session(_near(s)), "everything": hr.everything,
        "cumulating": lambda: hr.cumulating(f"{2 * s.length}s", size),
        "rows": lambda: hr.tumbling(rows=4), "until": lambda: hr.until("x >= 4"),
        "ticks": lambda: hr.sliding(rows=3, every=size),
        "lately": lambda: hr.sliding(_near(s), every_rows=2),
        "last_rows": lambda: hr.sliding(rows=4, every_rows=2),
        "delta": lambda: hr.delta(s.column, 2),
    }  # fmt: skip
    windowed = side.key_by(*s.keys).window(windows[s.kind](), **more)
    return windowed.agg(**_aggregates(s), **_named(s), **_of_stored(s)), _results(s, START)


def _none(s: Step, sides: list[hr.Stream], time: str) -> Built:
    return sides[0], _WHOLE


def _explode(s: Step, sides: list[hr.Stream], time: str) -> Built:
    return sides[0].with_columns(e="array(x, y)").explode("e"), ("id", "e", "0")


def _async(s: Step, sides: list[hr.Stream], time: str) -> Built:
    async def asked(row: Any) -> Any:
        return row._asdict()

    return sides[0].map_async(asked, output=ROW), _WHOLE


def _share(s: Step, sides: list[hr.Stream], time: str) -> Built:
    return sides[0].sample(0.5), _WHOLE


def _python(s: Step, sides: list[hr.Stream], time: str) -> Built:
    def twice(row: Any) -> Any:
        return [row, row._replace(x=row.x + 1)]

    def same(row: Any) -> int:
        return int(row.x)

    return sides[0].flat_map(twice, schema=ROW).with_columns(x=same), _WHOLE


def _union(s: Step, sides: list[hr.Stream], time: str) -> Built:
    return sides[0].union(sides[1]), _WHOLE


def _transform(s: Step, sides: list[hr.Stream], time: str) -> Built:
    return sides[0].key_by(*s.keys).transform(lambda rows: rows), _WHOLE


def _lookup(s: Step, sides: list[hr.Stream], time: str) -> Built:
    known = pa.table({"k": ["a", "b"], "v": [1, 2]})
    return sides[0].lookup(known, on="k"), ("id", "v", "0")


def _agg(s: Step, sides: list[hr.Stream], time: str) -> Built:
    keyed = sides[0].key_by(*s.keys)
    found = keyed.agg(**_aggregates(s), unbounded=True, **_named(s), **_of_stored(s))
    return found, _results(s, "id")


def _fold(s: Step, sides: list[hr.Stream], time: str) -> Built:
    keyed = sides[0].key_by(*s.keys)
    if s.more:
        folded = keyed.fold({"total": 0, "m": 0}, _both, schema="total bigint, m bigint",
                            unbounded=True, **_named(s))  # fmt: skip
        return folded, ("total", "m", "0")
    folded = keyed.fold({"total": 0}, lambda so_far, row: {"total": so_far["total"] + row.id},
                        schema="total bigint", unbounded=True, **_named(s))  # fmt: skip
    return folded, ("total", "0", "0")


def _both(so_far: Any, row: Any) -> Any:
    return {"total": so_far["total"] + row.id, "m": max(so_far["m"], row.x)}


def _reducer(s: Step) -> Callable[[Any, Any], Any]:
    def added(a: Any, b: Any) -> Any:
        return b._replace(**{s.column: getattr(a, s.column) + getattr(b, s.column)})

    return added


def _reduce(s: Step, sides: list[hr.Stream], time: str) -> Built:
    keyed = sides[0].key_by(*s.keys)
    return keyed.reduce(_reducer(s), unbounded=True, **_named(s)), ("id", s.column, "0")


def _process(s: Step, sides: list[hr.Stream], time: str) -> Built:
    keyed, fn = sides[0].key_by(*s.keys), SumAndMost() if s.more else Sum()
    return keyed.process(fn, unbounded=True, **_named(s)), ("id", "n", "t")


def _timers(s: Step, sides: list[hr.Stream], time: str) -> Built:
    later = Later(s.length * 1000 + 500)
    return sides[0].key_by(*s.keys).process(later, unbounded=True, **_named(s)), ("at", "0", "0")


def _ordered(s: Step, sides: list[hr.Stream], time: str) -> Built:
    told = InOrder(s.length * 1000 + 500)
    keyed = sides[0].key_by(*s.keys)
    return keyed.process(told, order="event_time", unbounded=True, **_named(s)), ("id", "n", "at")


def _mapped(s: Step, sides: list[hr.Stream], time: str) -> Built:
    def counted(row: Any, n: Any) -> Any:
        return (row.k, row.p, row.id, (n or 0) + 1), (n or 0) + 1

    keyed = sides[0].key_by(*s.keys)
    found = keyed.map_with_state(counted, state="bigint", output=_GIVEN, unbounded=True,
                                 **_named(s))  # fmt: skip
    return found, ("id", "n", "0")


def _updated(s: Step, sides: list[hr.Stream], time: str) -> Built:
    def counted(rows: list[Any], before: Any) -> Any:
        return (before or 0) + len(rows)

    keyed = sides[0].key_by(*s.keys)
    found = keyed.update_state_by_key(counted, schema="n bigint", unbounded=True, **_named(s))
    return found, ("n", "0", "0")


def _connect(s: Step, sides: list[hr.Stream], time: str) -> Built:
    both = hr.connect(by=list(s.keys), a=sides[0], b=sides[1])
    return both.process(Both(), unbounded=True, **_named(s)), ("id", "n", "0")


def _iterate(s: Step, sides: list[hr.Stream], time: str) -> Built:
    def counted(rows: pa.Table, loop: Any) -> pa.Table:
        held = {tuple(r[k] for k in s.keys): r["n"] for r in loop.kept["counts"].to_pylist()}
        given = []
        for row in rows.to_pylist():
            key = tuple(row[k] for k in s.keys)
            held[key] = held.get(key, 0) + 1
            given.append({"k": row["k"], "p": row["p"], "id": row["id"], "n": held[key]})
        loop.emit(pa.Table.from_pylist(given, schema=_GIVEN_SCHEMA))
        counts = [{**dict(zip(s.keys, key, strict=True)), "n": n} for key, n in held.items()]
        loop.kept["counts"] = pa.Table.from_pylist(counts, schema=loop.kept["counts"].schema)
        return rows.slice(0, 0)

    kept = ", ".join(f"{k} {_TYPES[k]}" for k in s.keys) + ", n bigint"
    found = (
        sides[0]
        .key_by(*s.keys)
        .iterate(
            counted,
            until="empty",
            keep={"counts": kept},
            output=_GIVEN,
            unbounded=True,
            **_named(s),
        )
    )
    return found, ("id", "n", "0")


_TYPES = {"k": "string", "p": "bigint"}
_GIVEN_SCHEMA = pa.schema([("k", pa.string()), ("p", pa.int64()), ("id", pa.int64()),
                           ("n", pa.int64())])  # fmt: skip


def _hops(s: Step, sides: list[hr.Stream], time: str) -> Built:
    def weaker(rows: pa.Table, loop: Any) -> pa.Table:
        loop.emit(rows)
        on = rows.filter(pc.greater(rows["x"], 3))
        return on.set_column(on.schema.names.index("x"), "x", pc.subtract(on["x"], 1))

    found = sides[0].key_by(*s.keys).iterate(weaker, over="batches", output=ROW, **_named(s))
    return found, ("id", "x", "0")


def _changes(s: Step, sides: list[hr.Stream], time: str) -> Built:
    keyed = sides[0].key_by(*s.keys)
    return keyed.changes_only(s.column, unbounded=True, **_named(s)), _WHOLE


def _dedup(s: Step, sides: list[hr.Stream], time: str) -> Built:
    return sides[0].key_by(*s.keys).deduplicate(within=_near(s), **_named(s)), _WHOLE


def _throttle(s: Step, sides: list[hr.Stream], time: str) -> Built:
    return sides[0].key_by(*s.keys).throttle(1, per=f"{s.length}s", **_named(s)), _WHOLE


def _seen(s: Step, sides: list[hr.Stream], time: str) -> Built:
    """With an error so small that no key of a chain is lost."""
    few = {"per": f"{s.length}s", "expected": 50, "error": 1e-6}
    return sides[0].key_by(*s.keys).first_seen(**few, **_named(s)), _WHOLE


def _limit(s: Step, sides: list[hr.Stream], time: str) -> Built:
    return sides[0].key_by(*s.keys).limit(s.length, unbounded=True, **_named(s)), _WHOLE


def _top(s: Step, sides: list[hr.Stream], time: str) -> Built:
    keyed = sides[0].key_by(*s.keys)
    return keyed.top(2, by=s.column, unbounded=True, **_named(s)), ("id", "rank", SIGN)


def _components(s: Step, sides: list[hr.Stream], time: str) -> Built:
    graph = sides[0].key_by(*s.keys).edges("x", "y")
    return graph.components(unbounded=True, **_named(s)), ("vertex", "component", SIGN)


def _degrees(s: Step, sides: list[hr.Stream], time: str) -> Built:
    graph = sides[0].key_by(*s.keys).edges("x", "y")
    return graph.degrees(unbounded=True, **_named(s)), ("vertex", "degree", SIGN)


def _match(s: Step, sides: list[hr.Stream], time: str) -> Built:
    pattern = hr.pattern("a", "x = 1").then("b", "x = 2").within(_near(s))
    chosen = {"first": "a.id", "second": "b.id"}
    keyed = sides[0].key_by(*s.keys)
    return keyed.match(pattern, select=chosen, **_named(s)), ("first", "second", "0")


def _batch(s: Step, sides: list[hr.Stream], time: str) -> Built:
    found = sides[0].key_by(*s.keys).batch(3, within=_near(s), **_named(s))
    return found, ("size(rows)", "rows[0].id", "element_at(rows, -1).id")


def _sample(s: Step, sides: list[hr.Stream], time: str) -> Built:
    found = sides[0].key_by(*s.keys).sample(2, per=f"{s.length}s", **_named(s))
    return found, (f"floor({time} / {1000 * s.length})", "0", "0")


def _suppress(s: Step, sides: list[hr.Stream], time: str) -> Built:
    return sides[0].key_by(*s.keys).suppress(f"{s.length}s", **_named(s)), _WHOLE


def _folded(s: Step, sides: list[hr.Stream], time: str) -> Built:
    windows = sides[0].key_by(*s.keys).window(hr.tumbling(f"{s.length}s"))
    return windows.fold(0, lambda total, row: total + row.id, **_named(s)), (START, "value", "0")


def _evicted(s: Step, sides: list[hr.Stream], time: str) -> Built:
    windows = sides[0].key_by(*s.keys).window(hr.tumbling(rows=4), evict=hr.keep_last(rows=2))
    return windows.fold(0, lambda total, row: total + row.id, **_named(s)), (START, "value", "0")


def _reduced(s: Step, sides: list[hr.Stream], time: str) -> Built:
    windows = sides[0].key_by(*s.keys).window(hr.tumbling(f"{s.length}s"))
    return windows.reduce(_reducer(s), **_named(s)), (START, s.column, "id")


def _merged(s: Step, sides: list[hr.Stream], time: str) -> Built:
    """`inverse` with an even length, so that both ways are drawn."""
    windows = sides[0].key_by(*s.keys).window(hr.sliding(f"{2 * s.length}s", f"{s.length}s"))
    add, subtract = (lambda a, b: a + b), (lambda a, b: a - b)
    inverse = subtract if s.length % 2 == 0 else None
    totals = windows.fold(
        0, lambda total, row: total + row.id, merge=add, inverse=inverse, **_named(s)
    )
    return totals, (START, "value", "0")


def _versions(s: Step, sides: list[hr.Stream], time: str) -> Built:
    found = sides[0].table(*s.keys, unbounded=True).changes(**_named(s))
    return found, ("id", SIGN, "0")


def _learned(s: Step, sides: list[hr.Stream], time: str) -> Built:
    keyed = sides[0].key_by(*s.keys)
    found = keyed.learn(small_tree(), target="x", features=["y"], unbounded=True, **_named(s))
    return found, ("id", "coalesce(prediction, -1)", "0")


def _drifts(s: Step, sides: list[hr.Stream], time: str) -> Built:
    keyed = sides[0].key_by(*s.keys)
    found = keyed.drift("x", detector="page_hinkley", unbounded=True, **SOON, **_named(s))
    return found, ("rows", "cast(value as bigint)", "0")


_MAKERS: dict[str, Callable[[Step, list[hr.Stream], str], Built]] = {
    "none": _none, "explode": _explode, "async": _async, "share": _share, "python": _python,
    "union": _union, "transform": _transform, "lookup": _lookup, "agg": _agg, "fold": _fold,
    "reduce": _reduce, "process": _process, "timers": _timers, "ordered": _ordered,
    "mapped": _mapped, "updated": _updated,
    "connect": _connect, "iterate": _iterate, "hops": _hops, "changes": _changes,
    "dedup": _dedup, "throttle": _throttle, "seen": _seen, "limit": _limit,
    "top": _top, "match": _match, "components": _components, "degrees": _degrees,
    "batch": _batch, "sample": _sample, "suppress": _suppress, "folded": _folded,
    "reduced": _reduced, "merged": _merged, "versions": _versions, "evicted": _evicted,
    "learned": _learned, "drifts": _drifts,
}  # fmt: skip
