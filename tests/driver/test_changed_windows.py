"""Other windows and triggers over what is stored: as if the change had been made then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import triggers as t
from headrace.clock import ManualClock
from headrace.driver.start import review
from headrace.state import faults
from headrace.testing import Driver
from tests.driver.test_changed_settings import ROWS, days, job

DELAY = 1_000
MARKS = [max(r["at"] for r in ROWS if r["day"] <= n) - DELAY for n in range(2)]
Window = tuple[int, int]  # its length, and how often one begins
KINDS = ("int",) * 3


def cut(size: int, slide: int) -> Any:
    return hr.sliding(f"{size}ms", every=f"{slide}ms")


def aggregates() -> dict[str, Any]:
    return {"n": hr.count(), "total": hr.sum("v"), "first": hr.first("v"), "last": hr.last("at"),
            "every": hr.collect("w"), "kinds": hr.count_distinct("v")}  # fmt: skip


def value(start: int, end: int, held: list[dict[str, Any]]) -> Any:
    values = [row["v"] for row in held]
    row = {"k": held[0]["k"], "start": start, "end": end, "n": len(held), "total": sum(values),
           "first": values[0], "last": held[-1]["at"], "every": "".join(map(str, values)),
           "kinds": len({*values})}  # fmt: skip
    return tuple(sorted(row.items(), key=str))


def shown(found: Any) -> Any:
    """All columns of a result, with its bounds as numbers."""
    start, end = (f"unix_millis(window_{bound})" for bound in ("start", "end"))
    columns = {name: name for name in aggregates()} | {"every": "array_join(every, '')"}
    return found.select("k", start=start, end=end, **columns)


def day_of(end: int) -> int:
    """The version under which the watermark passes the end."""
    return next((n for n, mark in enumerate(MARKS) if end <= mark), 2)


def windows(size: int, slide: int) -> Iterable[tuple[int, int, list[dict[str, Any]]]]:
    found = dict[tuple[int, int], list[Any]]()
    for row in ROWS:
        for start in range(row["at"] // slide * slide, row["at"] - size, -slide):
            found.setdefault((row["k"], start), []).append(row)
    return [(start, start + size, held) for (_, start), held in found.items()]


def expected(versions: tuple[Window, ...]) -> Counter[Any]:
    """Each version emits its own windows, of those that end while it runs."""
    found = Counter[Any]()
    for day, window in enumerate(versions):
        for start, end, held in windows(*window):
            if day_of(end) == day:
                found[value(start, end, held)] += 1
    return found


CUTS: dict[str, tuple[Window, ...]] = {
    "fewer": ((8_000, 2_000), (8_000, 4_000), (8_000, 8_000)),
    "shorter": ((9_000, 3_000), (6_000, 3_000), (3_000, 3_000)),
    "within one": ((9_000, 6_000), (3_000, 3_000), (3_000, 3_000)),
    "coarser panes": ((10_000, 4_000), (8_000, 4_000), (8_000, 8_000)),
    "out of blocks": ((12_800, 200), (12_800, 400), (6_400, 6_400)),
    "into blocks": ((9_000, 50), (9_000, 100), (6_400, 100)),
}


@pytest.mark.parametrize("kind", CUTS)
def test_windows_that_lie_within_those_before_are_whole(kind: str, tmp_path: Path) -> None:
    def build(day: int, rows: Any) -> Any:
        keyed = rows.with_columns(w="cast(v as string)").key_by("k")
        window = keyed.window(cut(*CUTS[kind][day]))
        return shown(window.agg(**aggregates(), name="s"))

    wanted = expected(CUTS[kind])
    assert days(tmp_path, build, KINDS) == wanted
    assert wanted.total() > 10


def test_folded_windows_are_some_of_those_before(tmp_path: Path) -> None:
    versions = ((6_000, 1_500), (6_000, 3_000), (6_000, 6_000))

    def build(day: int, rows: Any) -> Any:
        window = rows.key_by("k").window(cut(*versions[day]))
        found = window.fold(0, lambda so_far, row: so_far + row.v, name="s")
        return found.select("k", end="unix_millis(window_end)", total="value")

    wanted = Counter[Any]()
    for day, version in enumerate(versions):
        for _, end, held in windows(*version):
            if day_of(end) == day:
                total = sum(row["v"] for row in held)
                wanted[("end", end), ("k", held[0]["k"]), ("total", total)] += 1
    assert days(tmp_path, build, KINDS) == wanted


def over(window: Any, **said: Any) -> Callable[[Any], Any]:
    return lambda keyed: keyed.window(window, **said).agg(n=hr.count(), name="s")


TUMBLING, EARLY = hr.tumbling("4s"), t.at_watermark(early=t.after_rows(3))
SESSION = hr.session("2s")
REFUSED = {
    "longer": (over(TUMBLING), over(hr.tumbling("8s")), "was tumbling 4s and is tumbling 8s"),
    "finer": (over(TUMBLING), over(hr.tumbling("2s")), "in pieces of 4s"),
    "overlap": (over(TUMBLING), over(hr.sliding("4s", "2s")), "was tumbling 4s"),
    "moved": (over(TUMBLING), over(hr.tumbling("4s", offset="1s")), "offset 1s"),
    "longer gap": (over(SESSION), over(hr.session("3s")), "was session gap 2s and is"),
    "all at once": (
        over(TUMBLING),
        lambda keyed: keyed.window(hr.tumbling("4s"), trigger=EARLY).agg(
            m=hr.count(), name="s", since="restart"
        ),
        "one after the other",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_windows_that_would_lack_rows_are_refused_with_the_reason(
    what: str, tmp_path: Path
) -> None:
    before, after, why = REFUSED[what]
    with pytest.raises(hr.StateError, match="HR-EVOLVE-001") as refused:
        days(tmp_path, lambda day, rows: (before, after)[day](rows.key_by("k")), ("int", "int"))
    assert why in str(refused.value)


def test_a_shorter_gap_ends_sessions_sooner_from_then_on(tmp_path: Path) -> None:
    """A row is of a session if it is near enough by the gap of when it comes."""
    gaps = (2_500, 900, 400)

    def build(day: int, rows: Any) -> Any:
        some = rows.where("at % 170 = 0 and (at / 170) % 7 < 3").key_by("k", "v")
        found = some.window(hr.session(f"{gaps[day]}ms")).agg(n=hr.count(), name="s")
        bounds = {name: f"unix_millis(window_{name})" for name in ("start", "end")}
        return found.select("k", "v", "n", **bounds)

    wanted, open_ = Counter[Any](), dict[Any, dict[str, int]]()
    for day, gap in enumerate(gaps):
        now = MARKS[day - 1] if day else -1
        for one in open_.values():  # what is open does not end before now
            one["end"] = max(one["last"] + gap, now)
        for row in ROWS:
            if row["day"] != day or row["at"] // 170 % 7 >= 3:
                continue
            key = row["k"], row["v"]
            one = open_.get(key)
            if one is None or one["end"] < row["at"]:
                if one is not None:
                    wanted[told(key, one)] += 1
                one = open_[key] = {"start": row["at"], "n": 0}
            one |= {"last": row["at"], "n": one["n"] + 1, "end": row["at"] + gap}
        mark = MARKS[day] if day < 2 else 10**9
        for key in [key for key, one in open_.items() if one["end"] + 1 <= mark]:
            wanted[told(key, open_.pop(key))] += 1
    assert days(tmp_path, build, KINDS) == wanted
    assert wanted.total() > 20


def told(key: Any, one: dict[str, int]) -> Any:
    row = {"k": key[0], "v": key[1], "n": one["n"], "start": one["start"], "end": one["end"]}
    return tuple(sorted(row.items()))


# Triggers: a row at a time, so that a model in plain Python can say when each fires.

Early = Callable[[dict[str, Any], list[int]], bool]
TRIGGERS: dict[str, tuple[tuple[Any, Early], ...]] = {
    "comes and goes": (
        (None, lambda w, new: False),
        (t.after_rows(3), lambda w, new: w["new"] >= 3),
        (None, lambda w, new: False),
    ),
    "watches another": (
        (t.after_rows(3), lambda w, new: w["new"] >= 3),
        (t.on_row("v = 4"), lambda w, new: 4 in new),
        (t.first(t.on_row("v = 1")), lambda w, new: 1 in new and not w["times"]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TRIGGERS)
@pytest.mark.parametrize("mode", ["replace", "delta"])
def test_a_trigger_comes_changes_and_goes(kind: str, mode: str, tmp_path: Path) -> None:
    triggers = TRIGGERS[kind]
    if kind == "comes and goes" and mode == "delta":
        triggers = (*triggers[:2], triggers[1])  # what was shown is gone: it cannot go

    def build(day: int, rows: Any) -> Any:
        trigger, said = triggers[day][0], {}
        if trigger is not None:
            said = {"trigger": t.per_row(t.at_watermark(early=trigger)), "mode": mode}
        window = rows.key_by("k").window(hr.tumbling("4s"), **said)
        found = window.agg(n=hr.count(), total=hr.sum("v"), name="s")
        return found.select("k", "n", "total", end="unix_millis(window_end)")

    assert days(tmp_path, build, KINDS) == fired(triggers, mode)


def fired(triggers: tuple[tuple[Any, Early], ...], mode: str) -> Counter[Any]:
    found, held = Counter[Any](), dict[Any, dict[str, Any]]()

    def show(key: Any, one: dict[str, Any]) -> None:
        rows = one["rows"]
        if rows or mode == "replace":
            row = {"k": key[0], "end": key[1], "n": len(rows), "total": sum(rows)}
            found[tuple(sorted(row.items()))] += 1
        one |= {"new": 0, "since": [], "rows": [] if mode == "delta" else rows}

    for day, (trigger, early) in enumerate(triggers):
        if day and triggers[day - 1][0] is not trigger:
            for one in held.values():
                one |= {"since": [], "times": 0}
                if triggers[day - 1][0] is None:
                    one["new"] = 1  # what a window holds is one row to it
        for row in (r for r in ROWS if r["day"] == day):
            key = row["k"], row["at"] // 4_000 * 4_000 + 4_000
            one = held.setdefault(key, {"rows": [], "new": 0, "since": [], "times": 0})
            one["rows"] = [*one["rows"], row["v"]]
            one["new"] += 1
            one["since"].append(row["v"])
            if early(one, one["since"]):
                show(key, one)
                one["times"] += 1
        mark = MARKS[day] if day < 2 else 10**9
        for key in [key for key in held if key[1] <= mark]:
            show(key, held.pop(key))
    return found


# By hand: the clock, late rows, and a crash at each durable step of the change.


def fed(place: Path, *rows: tuple[int, int]) -> None:
    """One more file of rows, each a time and a value of the key 1."""
    folder = place / "in"
    folder.mkdir(exist_ok=True)
    texts = (f'{{"k": 1, "v": {v}, "at": {at}, "day": 0}}\n' for at, v in rows)
    (folder / f"{len([*folder.iterdir()])}.json").write_text("".join(texts))


def windowed(**said: Any) -> Callable[[int, Any], Any]:
    def build(day: int, rows: Any) -> Any:
        window = rows.key_by("k").window(hr.tumbling("4s"), **said)
        found = window.agg(n=hr.count(), total=hr.sum("v"), name="s")
        return found.select("n", "total", end="unix_millis(window_end)")

    return build


def runs(
    place: Path, build: Callable[[int, Any], Any], clock: ManualClock, until: str | None = None
) -> None:
    made = Driver(job(place, build, 0, "int"), place / "job", clock=clock, until=until)
    made.drain()
    made.close()


def collected(place: Path) -> list[tuple[int, ...]]:
    rows = hr.collected(str(place / "job"), "out 0").to_pylist()
    return [(row["n"], row["total"], row["end"]) for row in rows]


@pytest.mark.parametrize("before", [{}, {"trigger": t.at_watermark(early=t.after_rows(9))}])
def test_a_trigger_that_goes_by_the_clock_asks_what_is_open(
    before: dict[str, Any], tmp_path: Path
) -> None:
    """Though no row comes for it any more."""
    clock = ManualClock(1_000_000)
    fed(tmp_path, (100, 5), (200, 6), (4_500, 7))
    runs(tmp_path, windowed(**before), clock)
    clock.advance(50)
    trigger = t.at_watermark(early=t.every("5s"))
    runs(tmp_path, windowed(trigger=trigger), clock)
    assert collected(tmp_path) == []
    clock.advance(6_000)
    runs(tmp_path, windowed(trigger=trigger), clock)
    assert sorted(collected(tmp_path)) == [(1, 7, 8_000), (2, 11, 4_000)]
    runs(tmp_path, windowed(), clock, until="end")
    assert sorted(collected(tmp_path)) == sorted([(1, 7, 8_000), (2, 11, 4_000)] * 2)


def test_late_rows_that_were_not_shown_are_not_lost(tmp_path: Path) -> None:
    """They are shown once lateness has gone; then the trigger may go as well."""
    clock = ManualClock(0)
    late = t.at_watermark(late=t.after_rows(2))
    fed(tmp_path, (100, 5), (6_000, 7))
    runs(tmp_path, windowed(trigger=late, lateness="1m"), clock)
    fed(tmp_path, (200, 6))
    runs(tmp_path, windowed(trigger=late, lateness="1m"), clock)
    assert collected(tmp_path) == [(1, 5, 4_000)]
    with pytest.raises(hr.StateError, match="HR-EVOLVE-006"):
        runs(tmp_path, windowed(), clock)
    fed(tmp_path, (6_500, 1))
    runs(tmp_path, windowed(trigger=t.at_watermark(early=t.after_rows(9))), clock)
    runs(tmp_path, windowed(), clock, until="end")
    assert collected(tmp_path) == [(1, 5, 4_000), (2, 11, 4_000), (2, 8, 8_000)]


def test_lateness_goes_where_all_is_shown(tmp_path: Path) -> None:
    clock = ManualClock(0)
    fed(tmp_path, (100, 5), (6_000, 7))
    runs(tmp_path, windowed(lateness="1m"), clock)
    fed(tmp_path, (200, 6))
    runs(tmp_path, windowed(lateness="1m"), clock)
    fed(tmp_path, (300, 6), (6_500, 1))
    runs(tmp_path, windowed(), clock, until="end")
    assert collected(tmp_path) == [(1, 5, 4_000), (2, 11, 4_000), (2, 8, 8_000)]


def test_a_plan_says_what_becomes_of_windows(tmp_path: Path) -> None:
    fed(tmp_path, (100, 5))
    runs(tmp_path, windowed(), ManualClock(0))
    early = windowed(trigger=t.at_watermark(early=t.after_rows(3)))
    found = review(job(tmp_path, early, 0, "int").program(), str(tmp_path / "job"))
    assert str(found.comparison).splitlines()[:2] == [
        "operator  s: same",
        "value     s.trigger: changed from none to the trigger 'at the watermark, early after 3 "
        "rows': what a window holds is one row to it",
    ]


class Crash(Exception):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("what", ["windows", "trigger", "sessions"])
def test_a_crash_in_the_change_leaves_the_state_before_or_after_it(
    what: str, tmp_path: Path
) -> None:
    before, after = {
        "windows": (hr.sliding("8s", "2s"), hr.tumbling("8s")),
        "trigger": (hr.tumbling("4s"), hr.tumbling("4s")),
        "sessions": (hr.session("5s"), hr.session("4s")),
    }[what]
    said = {"trigger": t.at_watermark(early=t.every("1h"))} if what == "trigger" else {}

    def build(window: Any, **said: Any) -> Any:
        return lambda day, rows: over(window, **said)(rows.key_by("k")).select("n")

    crashed, points = 0, set[str]()
    for place in ("whole", "crashed"):
        (tmp_path / place).mkdir()
        fed(tmp_path / place, (100, 5), (2_100, 5), (4_500, 7))
        runs(tmp_path / place, build(before), ManualClock(0))
        fed(tmp_path / place, (5_000, 5), (12_500, 7))
    runs(tmp_path / "whole", build(after, **said), ManualClock(0), until="end")
    while True:
        left = crashed

        def hook(point: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                points.add(point)
                raise Crash(point)

        try:
            with faults.hooked(hook):
                runs(tmp_path / "crashed", build(after, **said), ManualClock(0), until="end")
        except Crash:
            crashed += 1
            continue
        break
    results = [
        sorted(row["n"] for row in hr.collected(str(tmp_path / place / "job"), "out 0").to_pylist())
        for place in ("whole", "crashed")
    ]
    assert results[0] == results[1] and results[0]
    assert {"run.added", "run.written", "commit.manifest"} & points
