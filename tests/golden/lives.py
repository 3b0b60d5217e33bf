"""Ten programs that begin in a folder that a release left, and are changed five times each.

A life has the program of each version, and a model in plain Python of what all versions together
emit, as if each change had been made when it was. Rows come in batches: two before the first
change, one after each, and each is one epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import headrace as hr
from headrace import triggers as t
from tests.golden import feeding

VERSIONS, FIRST = 5, 2  # the batch that the first version after the golden one has
DELAY, BEGIN, END = 3_000, -(10**18), 10**18
Emitted = Counter[tuple[Any, ...]]
Build = Callable[..., Any]  # of a version and its streams


class Seen(NamedTuple):
    """A row, in the order of event time in its batch."""

    batch: int
    at: int
    area: str | None
    row: dict[str, Any]


def batches() -> Iterator[tuple[list[Seen], int, int]]:
    """The rows of each batch, and where the watermark stands before and after it."""
    furthest, before = [BEGIN, BEGIN], BEGIN
    for batch in range(FIRST + VERSIONS):
        rows = feeding.readings(batch)
        for row in rows:
            part = row["id"] % 2
            furthest[part] = max(furthest[part], row["at"])
        last = batch == FIRST + VERSIONS - 1
        after = min(furthest) - DELAY
        found = [Seen(batch, row["at"], row["area"], row) for row in rows]
        yield (
            sorted(found, key=lambda one: (one.at, one.row["id"] % 2, one.row["id"])),
            before,
            END if last else after,
        )
        before = after


def version_of(batch: int) -> int:
    """The program a batch has come to: 0 is the golden one."""
    return max(batch - FIRST + 1, 0)


@dataclass(frozen=True)
class Life:
    """`build` takes the version and its rows; the columns of results are those of the model."""

    folder: str
    build: Build
    model: Callable[[], Emitted]
    topology: bool = False


# Windows: other aggregates, then others of them, then a trigger that comes and goes.

_WINDOWS = [(20_000, 5_000)] * 2 + [(20_000, 10_000), (10_000, 10_000)] + [(10_000, 10_000)] * 2


def windows(version: int, rows: hr.Stream) -> hr.Stream:
    size, slide = _WINDOWS[version]
    early = {"trigger": t.at_watermark(early=t.after_rows(99))} if version == 4 else {}
    cut = rows.key_by("area").window(hr.sliding(f"{size}ms", every=f"{slide}ms"), **early)
    found = cut.agg(count=hr.count(), ids=hr.sum("id"), most=hr.max("celsius"), name="sliding",
                    since="restart", was_fields={"count": "n"})  # fmt: skip
    return found.select("area", "count", "ids", "most", end="unix_millis(window_end)")


def windows_model() -> Emitted:
    found, held = Emitted(), list[tuple[Seen, int]]()
    for rows, before, after in batches():
        held += [(one, before) for one in rows]
        version = version_of(rows[0].batch)
        size, slide = _WINDOWS[version]
        cut = dict[Any, list[Seen]]()
        for one, mark in held:
            for start in range(one.at // slide * slide, one.at - size, -slide):
                if start + size > mark and before < start + size <= after:
                    cut.setdefault((one.area, start + size), []).append(one)
        for (area, end), inside in cut.items():
            since = [one.row["celsius"] for one in inside if version_of(one.batch) >= 1]
            most = max(since, default=None)
            ids = sum(one.row["id"] for one in inside)
            if version:
                found[area, len(inside), ids, most, end] += 1
    return found


# Sessions: shorter gaps, under another name, with an aggregate less.

_GAPS = [4_000, 3_000, 2_000, 2_000, 1_200, 900]


def sessions(version: int, rows: hr.Stream) -> hr.Stream:
    named = {"name": "session"} if version < 3 else {"name": "visits", "was": "session"}
    cut = rows.key_by("area").window(hr.session(f"{_GAPS[version]}ms"))
    more = {} if version >= 3 else {"total": hr.sum("celsius"), "ids": hr.collect("id")}
    found = cut.agg(n=hr.count(), **more, **named)
    bounds = {name: f"unix_millis(window_{name})" for name in ("start", "end")}
    return found.select("area", "n", **bounds)


def sessions_model() -> Emitted:
    found, gap = Emitted(), _GAPS[0]
    open_ = list[tuple[str | None, int, int, int]]()  # of an area, from, to, so many
    for rows, before, after in batches():
        version = version_of(rows[0].batch)
        shorter, gap = gap - _GAPS[version], _GAPS[version]
        open_ = [(a, b, max(e - shorter, min(e, before + 1)), n) for a, b, e, n in open_]
        for one in rows:
            area, begin, end, count = one.area, one.at, one.at + gap + 1, 1
            if end <= before:
                continue
            near = [o for o in open_ if o[0] == area and o[1] < end and begin < o[2]]
            open_ = [o for o in open_ if o not in near]
            begin, end = min([begin, *(o[1] for o in near)]), max([end, *(o[2] for o in near)])
            open_.append((area, begin, end, count + sum(o[3] for o in near)))
        over = [o for o in open_ if o[2] <= after]
        open_ = [o for o in open_ if o[2] > after]
        if version:
            found.update((area, n, begin, end - 1) for area, begin, end, n in over)
    return found


# Deduplicate: shorter times, another condition, another name, and further levels before it.

_WITHIN = [8_000, 6_000, 6_000, 6_000, 3_000, 1_000]


def once(version: int, rows: hr.Stream) -> hr.Stream:
    named = {"name": "once"} if version < 3 else {"name": "rarely", "was": "once"}
    some = rows.where("zone < 3") if version >= 2 else rows
    if version == 5:  # two inputs of a union, after a step with a key of its own
        keyed = some.where("ok").union(some.where("not ok")).key_by("zone")
        some = keyed.agg(m=hr.count(), unbounded=True, name="before")
    keyed = some.select("area", "state", "id", "at").key_by("area")
    found = keyed.deduplicate("state", within=f"{_WITHIN[version]}ms", **named)
    return found.select("area", "id")


def once_model() -> Emitted:
    found, seen = Emitted(), dict[Any, list[int]]()
    for rows, before, _ in batches():
        version = version_of(rows[0].batch)
        for one in rows:
            key, row = (one.area, one.row["state"]), one.row
            near = any(abs(one.at - other) < _WITHIN[version] for other in seen.get(key, []))
            if one.at < before or near or (version >= 2 and row["zone"] >= 3):
                continue
            seen.setdefault(key, []).append(one.at)
            if version:
                found[one.area, row["id"]] += 1
    return found


# A process function: values come, go and get other names; its class is another at last.


class First(hr.KeyedProcess):
    output = "area string, id bigint, n bigint, more double"
    n = hr.value(int, default=0)
    best = hr.reducing(float, max)
    hot = hr.value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.best.add(row.celsius)
        self.hot += row.celsius > 25
        return (ctx.key, row.id, self.n, self.best.value + 100 * self.hot)


class Second(hr.KeyedProcess):
    output = "area string, id bigint, n bigint, more double"
    n = hr.value(int, default=0)
    warm = hr.value(int, default=0, was="hot")
    last = hr.value(float)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.warm += row.celsius > 25
        before, self.last = self.last, row.celsius
        return (ctx.key, row.id, self.n, (before or 0.0) + 100 * self.warm)


class Third(Second):
    warm = hr.value(int, default=0)
    last = hr.value(float, ttl="1h")


_CLASSES = [First, First, First, Second, Third, Third]


def process(version: int, rows: hr.Stream) -> hr.Stream:
    named = {"name": "everything"} if version < 2 else {"name": "values", "was": "everything"}
    if version == 5:
        rows = rows.where("ok").union(rows.where("not ok"))
    return rows.key_by("area").process(_CLASSES[version](), unbounded=True, **named)


def process_model() -> Emitted:
    found, held = Emitted(), dict[Any, dict[str, Any]]()
    for rows, _, _ in batches():
        version = version_of(rows[0].batch)
        for one in rows:
            known = held.setdefault(one.area, {"n": 0, "best": BEGIN, "hot": 0, "last": 0.0})
            celsius = one.row["celsius"]
            known["n"] += 1
            known["best"] = max(known["best"], celsius)
            known["hot"] += celsius > 25 and version > 0
            more = known["best"] if version < 3 else known["last"]
            known["last"] = celsius if version >= 3 else 0.0
            if version:
                found[one.area, one.row["id"], known["n"], more + 100 * known["hot"]] += 1
    return found


# A fold: fields of its record come and go, and get another order.

_FIELDS = ["n total", "n total low", "low n", "low n", "low n high", "high low"]
_START = {"n": 0, "total": 0.0, "low": 1e9, "high": -1e9}
_TYPES = {"n": "bigint", "total": "double", "low": "double", "high": "double"}


def folded(version: int, rows: hr.Stream) -> hr.Stream:
    fields = _FIELDS[version].split()

    def add(so_far: dict[str, Any], row: Any) -> dict[str, Any]:
        return {name: _added(name, so_far[name], row.celsius) for name in fields}

    named = {"name": "sums"} if version < 3 else {"name": "record", "was": "sums"}
    schema = ", ".join(f"{name} {_TYPES[name]}" for name in fields)
    found = rows.key_by("area").fold({name: _START[name] for name in fields}, add, schema=schema,
                                     unbounded=True, **named)  # fmt: skip
    told = {name: name if name in fields else "cast(null as double)" for name in _START}
    return found.select("area", **told)


def _added(name: str, so_far: Any, celsius: float) -> Any:
    if name in ("low", "high"):
        return (min if name == "low" else max)(so_far, celsius)
    return so_far + (1 if name == "n" else celsius)


def folded_model() -> Emitted:
    found, held = Emitted(), dict[Any, dict[str, Any]]()
    for rows, _, _ in batches():
        version = version_of(rows[0].batch)
        fields = _FIELDS[version].split()
        for one in rows:
            known = held.setdefault(one.area, {})
            held[one.area] = known = {
                name: _added(name, known.get(name, _START[name]), one.row["celsius"])
                for name in fields
            }
            if version:
                found[one.area, *(known.get(name) for name in _START)] += 1
    return found


# A reduce: columns of its rows go, come, get wider, and another order.

_COLUMNS = [
    {},
    {"id": "id", "celsius": "celsius"},
    {"id": "id", "m": "cast(1 as int)", "celsius": "celsius"},
    {"m": "cast(1 as bigint)", "celsius": "celsius", "id": "id"},
    {"id": "id", "m": "cast(1 as bigint)", "celsius": "celsius"},
    {"celsius": "celsius", "id": "id"},
]  # fmt: skip


def hotter(a: Any, b: Any) -> Any:
    """The hotter row, with how often there has been any since that is counted."""
    hot = a if a.celsius >= b.celsius else b
    return hot._replace(m=(a.m or 0) + (b.m or 0)) if "m" in a._fields else hot


def reduced(version: int, rows: hr.Stream) -> hr.Stream:
    named = {"name": "reduced"} if version < 4 else {"name": "hottest", "was": "reduced"}
    columns = _COLUMNS[version]
    keyed = (rows.select("area", **columns) if columns else rows).key_by("area")
    found = keyed.reduce(hotter, unbounded=True, **named)
    m = "cast(m as bigint)" if "m" in columns else "cast(null as bigint)"
    return found.select("area", "id", m=m)


def reduced_model() -> Emitted:
    found, hot, counts = Emitted(), dict[Any, Any](), Counter[Any]()
    for rows, _, _ in batches():
        version = version_of(rows[0].batch)
        for one in rows:
            before = hot.get(one.area)
            if before is None or one.row["celsius"] > before["celsius"]:
                hot[one.area] = one.row
            counts[one.area] += version >= 2
            if version:
                m = counts[one.area] if 2 <= version < 5 else None
                found[one.area, hot[one.area]["id"], m] += 1
    return found


# Running aggregates: more and fewer of them, under other names.


def running(version: int, rows: hr.Stream) -> hr.Stream:
    keyed = rows.with_columns(small="cast(zone as int)").key_by("small")
    named = {"name": "by small"} if version < 4 else {"name": "zones", "was": "by small"}
    aggs: dict[str, Any] = {"n": hr.count()} if version < 3 else {"count": hr.count()}
    was = {"was_fields": {"count": "n"}} if version >= 3 else {}
    aggs |= {"ids": hr.sum("id")} if 1 <= version < 5 else {}
    found = keyed.agg(**aggs, **was, since="restart", unbounded=True, **named)
    ids = "ids" if "ids" in aggs else "cast(null as bigint)"
    return found.select(
        "id", zone="cast(small as bigint)", n="n" if "n" in aggs else "count", ids=ids
    )


def running_model() -> Emitted:
    found, counts, ids = Emitted(), Counter[int](), Counter[int]()
    for rows, _, _ in batches():
        version = version_of(rows[0].batch)
        for one in rows:
            zone = one.row["zone"]
            counts[zone] += 1
            ids[zone] += one.row["id"] if version else 0
            if version:
                told = ids[zone] if version < 5 else None
                found[one.row["id"], zone, counts[zone], told] += 1
    return found


# The best two of each area, as changes; the rows come by other ways.


def best(version: int, rows: hr.Stream) -> hr.Stream:
    named = {"name": "top"} if version < 3 else {"name": "best", "was": "top"}
    columns = ("id", "area", "zone", "state", "celsius", "at")
    some = rows.select(*columns)
    if version in (2, 4):
        some = some.where("zone < 2").union(some.where("zone >= 2"))
    if version >= 4:
        some = some.key_by("zone").agg(m=hr.count(), unbounded=True, name="before").select(*columns)
    if version == 5:
        some = some.where("state = 'on'")
    keyed = some.key_by("area")
    return keyed.top(2, by="celsius", unbounded=True, **named).select(
        "area", "id", "rank", "change"
    )


def best_model() -> Emitted:
    found, boards = Emitted(), dict[Any, list[Seen]]()
    for rows, _, _ in batches():
        version = version_of(rows[0].batch)
        areas = dict[Any, list[Seen]]()
        for one in rows:
            if version < 5 or one.row["state"] == "on":
                areas.setdefault(one.area, []).append(one)
        for area, fresh in areas.items():
            had = boards.get(area, [])
            ranked = sorted([*had, *fresh], key=lambda one: (-one.row["celsius"], one.at))[:2]
            boards[area] = ranked
            for rank in range(1, 3):
                was, now = (board[rank - 1].row["id"] if len(board) >= rank else None
                            for board in (had, ranked))  # fmt: skip
                for id_, change in ((was, "-"), (now, "+")):
                    if was != now and id_ is not None and version:
                        found[area, id_, rank, change] += 1
    return found


# Rows near each other, with those that have no partner: narrower bounds, under other names.

_BOUNDS = [
    (3_000, 5_000), (3_000, 4_000), (2_000, 4_000), (2_000, 4_000), (2_000, 1_000), (500, 1_000),
]  # fmt: skip


def near(version: int, rows: hr.Stream, paid: hr.Stream) -> hr.Stream:
    named = {"name": "left"} if version < 3 else {"name": "near", "was": "left"}
    left = rows.select("area", "id", "zone", "at")
    right = paid.select("area", "amount", "gone", "due", zone="amount % 4")
    before, after = _BOUNDS[version]
    within = (f"-{before}ms", f"{after}ms")
    found = left.join(right, on="area", how="left", within=within, **named)
    return found.select("area", "id", "due")


def near_model() -> Emitted:
    found = Emitted()
    lefts, rights = list[Any](), list[Any]()  # of a row: area, time, id, batch
    dues, furthest, before = dict[int, int](), BEGIN, BEGIN
    for rows, _, readings in batches():
        version = version_of(batch := rows[0].batch)
        lower, upper = _BOUNDS[version]
        bought = feeding.orders(batch)
        furthest = max(furthest, *(order["due"] for order in bought))
        after = readings if readings == END else min(readings, furthest - DELAY)
        dues = {
            id_: max(at + upper, min(dues[id_], before)) for _, at, id_, _ in lefts if id_ in dues
        }
        fresh = [(one.area, one.at, one.row["id"], batch) for one in rows if one.at >= before]
        new = [(o["area"], o["due"], o["due"], batch) for o in bought if o["due"] >= before]
        dues |= {id_: at + upper for _, at, id_, _ in fresh}
        lefts, rights = lefts + fresh, rights + new
        for area, at, id_, came in lefts:
            for other, due, _, since in rights:
                if max(came, since) != batch or area != other:
                    continue
                if -lower <= due - at <= upper:
                    dues.pop(id_, None)
                    if version:
                        found[area, id_, due] += 1
        for area, _, id_, _ in lefts:
            if id_ in dues and dues[id_] < after:
                del dues[id_]
                if version:
                    found[area, id_, None] += 1
        before = after
    return found


# A bolt: values come, go and get other names, in more tasks.


class Hot(hr.Bolt):
    output = "area string, id bigint, more double"
    highest = hr.map_of(str, float)
    rows = hr.map_of(str, int)

    def process(self, tup: Any, collector: Any) -> None:
        area = tup.area or ""
        self.highest[area] = max(tup.celsius, self.highest.get(area, -1e9))
        self.rows[area] = self.rows.get(area, 0) + 1
        collector.emit((tup.area, tup.id, self.highest[area] + 100 * self.rows[area]))


class Hotter(hr.Bolt):
    output = "area string, id bigint, more double"
    most = hr.map_of(str, float, was="highest")

    def process(self, tup: Any, collector: Any) -> None:
        area = tup.area or ""
        self.most[area] = max(tup.celsius, self.most.get(area, -1e9))
        collector.emit((tup.area, tup.id, self.most[area]))


class Hottest(Hotter):
    most = hr.map_of(str, float)


def bolt(version: int, topology: hr.Topology, rows: hr.Stream) -> None:
    topology.spout("read", rows)
    fn = (Hot, Hot, Hot, Hotter, Hottest, Hottest)[version]()
    declared = topology.bolt("highest", fn, tasks=3)
    declared.fields("read", "area")
    topology.bolt(f"life {version}", "collect:").shuffle("highest")


def bolt_model() -> Emitted:
    found, most, counts = Emitted(), dict[Any, float](), Counter[Any]()
    for rows, _, _ in batches():
        version = version_of(rows[0].batch)
        for one in rows:
            most[one.area] = max(most.get(one.area, -1e9), one.row["celsius"])
            counts[one.area] += version > 0
            more = 100 * counts[one.area] if version < 3 else 0
            if version:
                found[one.area, one.row["id"], most[one.area] + more] += 1
    return found


LIVES: dict[str, Life] = {
    "windows": Life("aggregates", windows, windows_model),
    "sessions": Life("timed", sessions, sessions_model),
    "deduplicate": Life("thinned", once, once_model),
    "process function": Life("processes", process, process_model),
    "fold": Life("running", folded, folded_model),
    "reduce": Life("running", reduced, reduced_model),
    "running aggregates": Life("keys", running, running_model),
    "best rows": Life("thinned", best, best_model),
    "outer join": Life("near", near, near_model),
    "bolt": Life("topologies", bolt, bolt_model, topology=True),
}
