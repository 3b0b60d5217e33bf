"""What windows, patterns, lists and boards have emitted, when time or the input has come so far."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from river import drift, tree

from evolution.model import (
    END,
    NOW,
    Due,
    Emitted,
    Life,
    Seen,
    aggregated,
    bounds,
    by_key,
    over,
    seen,
    watermarks,
)
from evolution.model_joins import JOINED, boards
from evolution.spec import Step

ANY = ("match", "hops")  # may come before they are due
Counts = Counter[Emitted]


def by_time(life: Life, *, closed: bool, of: Step | None = None) -> tuple[Counts, Counts]:
    """What has come for certain, and at most; where `how` changed, by either.

    `of`: as if it had been this step all along, with the aggregates of one of the versions.
    """
    if life[0].step.kind == "updated":
        return _updated(life)
    sure, most = watermarks(life, closed=closed)
    found = []
    for how in dict.fromkeys(s.step.how for s in life):
        least, all_ = bounds(due := _due(life, how, of or life[0].step), sure, most)
        found.append((least, Counter(e for _, e in due) if life[0].step.kind in ANY else all_))
    least, all_ = found[0]
    for other in found[1:]:
        least, all_ = least & other[0], all_ | other[1]
    return least, all_


def nets(life: Life, *, closed: bool) -> list[Counts]:
    """What may be true of a board now."""
    if life[0].step.kind == "top":
        return [Counter(_board(life))]
    if life[0].step.kind in ("components", "degrees"):
        return [Counter(_graph(life))]
    return boards(life, *watermarks(life, closed=closed))


def _due(life: Life, how: str, step: Step) -> Due:
    if step.kind in JOINED:
        return JOINED[step.kind](life, how)
    if step.kind in _WINDOWS:
        return list(_windowed(seen(life), step))
    found = list[tuple[float, Emitted]]()
    for key, rows in by_key(seen(life)).items():
        if step.kind == "session":
            found += [(when, (key, *told)) for when, told in _sessions(life, rows, step)]
            continue
        found += [(when, (key, *told)) for when, told in _KEYED[step.kind](rows, step)]
    return found


_SLIDING = ("sliding", "hopping", "merged")
_WINDOWS = ("tumbling", "patient", *_SLIDING, "cumulating", "folded", "reduced")
Told = Iterator[tuple[float, tuple[int, int, int]]]


def _spans(kind: str, time: int, size: int) -> list[tuple[int, int]]:
    start = time // size * size
    if kind in _SLIDING:
        return [(start, start + 2 * size), (start - size, start + size)]
    if kind == "cumulating":
        begin = time // (2 * size) * 2 * size
        return [(begin, end) for end in (begin + size, begin + 2 * size) if time < end]
    return [(start, start + size)]


def _windowed(rows: Sequence[Seen], step: Step) -> Iterator[tuple[float, Emitted]]:
    found = defaultdict[tuple[str, int, int], list[Seen]](list)
    for one in rows:
        for span in _spans(step.kind, one.time, step.length * 1000):
            found[one.key, *span].append(one)
    for (key, start, end), held in found.items():
        yield end, (key, start, *_computed(held, step))


def _computed(rows: Sequence[Seen], step: Step) -> tuple[int, int]:
    if step.kind in ("folded", "merged"):
        return sum(one.row["id"] for one in rows), 0
    if step.kind == "reduced":
        return sum(one.row[step.column] for one in rows), rows[-1].row["id"]
    return aggregated(rows, step)


def _told(rows: Sequence[Seen], step: Step) -> tuple[int, int, int]:
    return rows[0].time, *aggregated(rows, step)


def _sessions(life: Life, rows: Sequence[Seen], step: Step) -> Told:
    """Start by start: a row is of a session if it is near enough by the gap of when it comes."""
    parts = list[list[Seen]]()
    for n, segment in enumerate(life):
        gap = segment.step.length * 1000 + 500
        fresh = [[one] for one in rows if one.start == n]
        joined = list[list[Seen]]()
        for part in sorted(parts + fresh, key=lambda part: part[0].time):
            if joined and part[0].time - joined[-1][-1].time <= gap:
                joined[-1] = sorted(joined[-1] + part, key=lambda one: one.time)
            else:
                joined.append(part)
        parts = joined
    for part in parts:  # a row at the very end belongs, so it is over 1 ms later
        yield over(life, part[-1].start, part[-1].time), _told(part, step)


def _everything(rows: Sequence[Seen], step: Step) -> Told:
    yield END, (-1, *aggregated(rows, step))


def _rows(rows: Sequence[Seen], step: Step) -> Told:
    for n in range(0, len(rows), 4):
        part = rows[n : n + 4]
        yield NOW if len(part) == 4 else END, _told(part, step)


def _evicted(rows: Sequence[Seen], step: Step) -> Told:
    """Of each four, the last two count; the window begins with the first."""
    for n in range(0, len(rows), 4):
        part = rows[n : n + 4]
        total = sum(one.row["id"] for one in part[-2:])
        yield NOW if len(part) == 4 else END, (part[0].time, total, 0)


def _last_rows(rows: Sequence[Seen], step: Step) -> Told:
    for n in range(2, len(rows) + 2, 2):
        yield NOW if n <= len(rows) else END, _told(rows[:n][-4:], step)


def _ticks(rows: Sequence[Seen], step: Step) -> Told:
    """The last three at each multiple of the length, if one is new."""
    size = step.length * 1000
    for tick in dict.fromkeys((one.time // size + 1) * size for one in rows):
        yield tick, _told([one for one in rows if one.time < tick][-3:], step)


def _lately(rows: Sequence[Seen], step: Step) -> Told:
    """Those of a while, at every second row."""
    for n in range(2, len(rows) + 2, 2):
        last = rows[:n][-1].time
        part = [one for one in rows[:n] if last - one.time < step.length * 1000 + 500]
        yield NOW if n <= len(rows) else END, _told(part, step)


def _delta(rows: Sequence[Seen], step: Step) -> Told:
    part = [rows[0]]
    for one in rows[1:]:
        if abs(one.row[step.column] - part[0].row[step.column]) > 2:
            yield NOW, _told(part, step)
            part = []
        part.append(one)
    yield END, _told(part, step)


def _until(rows: Sequence[Seen], step: Step) -> Told:
    part = list[Seen]()
    for one in rows:
        part.append(one)
        if one.row["x"] >= 4:
            yield NOW, _told(part, step)
            part = []
    if part:
        yield END, _told(part, step)


def _batch(rows: Sequence[Seen], step: Step) -> Told:
    within, part = step.length * 1000 + 500, list[Seen]()
    for one in [*rows, None]:
        if part and (one is None or one.time - part[0].time >= within):
            yield part[0].time + within, _listed(part)
            part = []
        if one is not None:
            part.append(one)
            if len(part) == 3:
                yield NOW, _listed(part)
                part = []


def _listed(part: Sequence[Seen]) -> tuple[int, int, int]:
    return len(part), part[0].row["id"], part[-1].row["id"]


def _sample(rows: Sequence[Seen], step: Step) -> Told:
    size = step.length * 1000
    for period, n in Counter(one.time // size for one in rows).items():
        for _ in range(min(n, 2)):
            yield (period + 1) * size, (period, 0, 0)


def _suppress(rows: Sequence[Seen], step: Step) -> Told:
    size = step.length * 1000
    for period, one in {one.time // size: one for one in rows}.items():
        yield (period + 1) * size, (one.row["id"], one.row["x"], one.row["y"])


def _match(rows: Sequence[Seen], step: Step) -> Told:
    waiting = list[Seen]()
    for one in rows:
        if one.row["x"] == 2:
            for first in waiting:
                if one.time - first.time < step.length * 1000 + 500:
                    yield one.time, (first.row["id"], one.row["id"], 0)
            waiting = []
        if one.row["x"] == 1:
            waiting.append(one)


def _versions(rows: Sequence[Seen], step: Step) -> Told:
    for before, one in zip([None, *rows], rows, strict=False):
        if before is not None:
            yield one.time + 1, (before.row["id"], -1, 0)
        yield one.time + 1, (one.row["id"], 1, 0)


def _timers(rows: Sequence[Seen], step: Step) -> Told:
    for one in rows:
        when = one.time + step.length * 1000 + 500
        yield when, (when, 0, 0)


def _ordered(rows: Sequence[Seen], step: Step) -> Told:
    n, length = 0, step.length * 1000 + 500
    for one, after in zip(rows, [*rows[1:], None], strict=True):
        n += 1
        yield one.time + 1, (one.row["id"], n, 0)
        if after is None or after.time > one.time + length:
            yield one.time + length + 1, (one.row["id"], 0, one.time + length)
            n = 0


def _hops(rows: Sequence[Seen], step: Step) -> Told:
    """A row goes round in the next batches, or at the end."""
    for one in rows:
        yield NOW, (one.row["id"], one.row["x"], 0)
        for x in range(3, one.row["x"]):
            yield END, (one.row["id"], x, 0)


def small_tree() -> Any:
    return tree.HoeffdingTreeClassifier(grace_period=2, delta=0.5, tau=0.9)


SOON: dict[str, Any] = {"min_instances": 2, "threshold": 1.5}  # for a change to be found


def _learned(rows: Sequence[Seen], step: Step) -> Told:
    model = small_tree()
    for one in rows:
        predicted = model.predict_one({"y": one.row["y"]})
        model.learn_one({"y": one.row["y"]}, one.row["x"])
        yield one.time + 1, (one.row["id"], -1 if predicted is None else predicted, 0)


def _drifts(rows: Sequence[Seen], step: Step) -> Told:
    detector = drift.PageHinkley(**SOON)
    for number, one in enumerate(rows, start=1):
        detector.update(float(one.row["x"]))
        if detector.drift_detected:
            yield one.time + 1, (number, one.row["x"], 0)


_KEYED: dict[str, Callable[[Sequence[Seen], Step], Told]] = {
    "everything": _everything, "rows": _rows, "last_rows": _last_rows,
    "delta": _delta, "until": _until, "batch": _batch, "sample": _sample, "match": _match,
    "versions": _versions, "hops": _hops, "ticks": _ticks, "lately": _lately,
    "timers": _timers, "ordered": _ordered, "evicted": _evicted, "suppress": _suppress,
    "learned": _learned, "drifts": _drifts,
}  # fmt: skip


def _updated(life: Life) -> tuple[Counts, Counts]:
    """Once for each key of a batch, and so at the end of each start that had rows of it."""
    least, most, before = Counter[Emitted](), Counter[Emitted](), Counter[str]()
    for n in range(len(life)):
        now = Counter(one.key for one in seen(life[: n + 1]))
        for key, count in now.items():
            if count > before[key]:
                least[key, count, 0, 0] += 1
                most.update((key, c, 0, 0) for c in range(before[key] + 1, count + 1))
        before = now
    return least, most


def _board(life: Life) -> Iterator[Emitted]:
    """Of equals the one with the earlier event time is better, then the one of the older input."""
    column = life[0].step.column
    for key, held in by_key(seen(life)).items():
        best = sorted(held, key=lambda one: (-one.row[column], one.time))[:2]
        for rank, one in enumerate(best, 1):  # in the order of arrival, if all is equal
            yield key, one.row["id"], rank, 1


def _graph(life: Life) -> Iterator[Emitted]:
    """The smallest vertex that each is connected with, or the number of its neighbours."""
    for key, held in by_key(seen(life)).items():
        edges = {(one.row["x"], one.row["y"]) for one in held}
        near: dict[int, set[int]] = {v: set() for edge in edges for v in edge}
        for a, b in edges:
            near[a].add(b)
            near[b].add(a)
        for vertex in near:
            reached, waiting = set[int](), [vertex]
            while waiting:
                reached.add(at := waiting.pop())
                waiting += near[at] - reached
            degree = len(near[vertex] - {vertex})
            found = min(reached) if life[0].step.kind == "components" else degree
            yield key, vertex, found, 1
