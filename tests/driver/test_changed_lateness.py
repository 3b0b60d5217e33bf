"""Lateness that comes, grows, shrinks and goes: as if the change had been made then.

What was over by the shorter lateness stays over; nothing else is late that the program says is not.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import triggers as t
from headrace.clock import ManualClock
from headrace.inspect.step_state import peek
from headrace.state import faults
from headrace.testing import Driver

Row = dict[str, int]
Build = Callable[[Any, int], Any]
SCHEMA, BEFORE = "k int, v bigint, at bigint", -(10**15)


def drawn(seed: int, late: tuple[int, ...]) -> tuple[list[list[Row]], list[int]]:
    """The rows of five epochs, and the lateness in each."""
    draw, at, number, epochs = random.Random(seed), 0, 0, list[list[Row]]()
    for _ in range(5):
        rows = list[Row]()
        for _ in range(draw.randrange(4, 14)):
            at, number = at + draw.randrange(700), number + 1
            behind = draw.choice(late)
            rows.append({"k": draw.randrange(3), "v": number, "at": max(0, at - behind)})
        epochs.append(rows)
    return epochs, [draw.choice((0, 500, 1_000, 2_000, 5_000)) for _ in range(5)]


def job(place: Path, build: Build, lateness: int) -> hr.Job:
    made = hr.Job("late")
    rows = made.read(f"files:{place}/in", schema=SCHEMA, format="json", time="at", delay="1ms",
                     name="rows")  # fmt: skip
    keyed = rows.with_columns(k="cast(k as string)").key_by("k")  # text is encoded on its way
    build(keyed, lateness).write("collect:", name="out")
    return made


def fed(place: Path, rows: list[Row]) -> None:
    (place / "in").mkdir(exist_ok=True, parents=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (place / "in" / f"{len([*(place / 'in').iterdir()])}.json").write_text(text)


def start(place: Path, build: Build, lateness: int, until: str | None = None) -> Driver:
    made = job(place, build, lateness)
    driver = Driver(made, place / "job", until=until, max_batch=10_000, clock=ManualClock(0))
    driver.drain()
    driver.close()
    return driver


def played(
    place: Path, epochs: list[list[Row]], lateness: list[int], build: Build
) -> tuple[Counter[Any], int]:
    """What all versions together have emitted, and how many rows were late."""
    for number, rows in enumerate(epochs):
        fed(place, rows)
        last = number == len(epochs) - 1
        driver = start(place, build, lateness[number], "end" if last else None)
    found = hr.collected(str(place / "job"), "out").to_pylist()
    return Counter(map(told, found)), driver.manifest.counts["rows"]["late"]


def told(row: dict[str, Any]) -> Any:
    return tuple(sorted(row.items()))


def expected(
    epochs: list[list[Row]], lateness: list[int], size: int, slide: int
) -> tuple[Counter[Any], int]:
    mark, floor, late = BEFORE, BEFORE, 0
    found, held = Counter[Any](), dict[tuple[int, int], list[int]]()
    for rows, patience in zip(epochs, lateness, strict=True):
        floor, touched = max(floor, mark - patience + 1), set[tuple[int, int]]()
        for row in rows:
            starts = range(row["at"] // slide * slide, row["at"] - size, -slide)
            inside = {(row["k"], begin + size) for begin in starts if begin + size >= floor}
            late += not inside
            touched |= inside
            for window in inside:
                held.setdefault(window, []).append(row["v"])
        before, mark = mark, max(mark, max(row["at"] for row in rows) - 1)
        for (k, end), values in held.items():
            if end <= mark and (end > before or (k, end) in touched):
                found[shown(k, end, values)] += 1
        floor = max(floor, mark - patience + 1)
        held = {window: values for window, values in held.items() if window[1] >= floor}
    found.update(shown(k, end, values) for (k, end), values in held.items() if end > mark)
    return found, late


def shown(k: int, end: int, values: list[int]) -> Any:
    return told({"k": str(k), "n": len(values), "total": sum(values), "end": end})


def aggregated(window: Any) -> Build:
    def build(keyed: Any, lateness: int) -> Any:
        said = {"lateness": f"{lateness}ms"} if lateness else {}
        found = keyed.window(window, **said).agg(n=hr.count(), total=hr.sum("v"), name="s")
        return found.select("k", "n", "total", end="unix_millis(window_end)")

    return build


def summed(key: Any, window: Any, rows: list[Any]) -> dict[str, int]:
    return {"n": len(rows), "total": sum(row.v for row in rows)}


def processed(window: Any) -> Build:
    def build(keyed: Any, lateness: int) -> Any:
        said = {"lateness": f"{lateness}ms"} if lateness else {}
        found = keyed.window(window, **said).process(
            summed, schema="n bigint, total bigint", name="s"
        )
        return found.select("k", "n", "total", end="unix_millis(window_end)")

    return build


TUMBLING, SLIDING = hr.tumbling("4s"), hr.sliding("4s", every="2s")
KINDS: dict[str, tuple[Build, int]] = {
    "tumbling": (aggregated(TUMBLING), 4_000),
    "sliding": (aggregated(SLIDING), 2_000),
    "rows": (processed(SLIDING), 2_000),
}
LATE = (0, 0, 0, 500, 1_500, 3_000, 6_000)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_over_by_a_shorter_lateness_stays_over(
    kind: str, seed: int, tmp_path: Path
) -> None:
    build, slide = KINDS[kind]
    epochs, lateness = drawn(seed, LATE)
    for n in range(1, 5):  # that it goes is another test
        lateness[n] = lateness[n] or lateness[n - 1] or 500
    assert played(tmp_path, epochs, lateness, build) == expected(epochs, lateness, 4_000, slide)


def test_sessions_wait_longer(tmp_path: Path) -> None:
    """One that is over stays so; of one that is not, a row comes late, and it is shown again."""

    def build(keyed: Any, lateness: int) -> Any:
        said = {"lateness": f"{lateness}ms"} if lateness else {}
        found = keyed.window(hr.session("1s"), **said).agg(n=hr.count(), name="s")
        return found.select("k", "n", start="unix_millis(window_start)")

    epochs = [[(1, 100), (1, 9_000)], [(1, 300), (1, 12_000)], [(1, 9_200), (1, 12_500)]]
    rows = [[{"k": k, "v": 0, "at": at} for k, at in epoch] for epoch in epochs]
    found, late = played(tmp_path, rows, [0, 5_000, 5_000], build)
    wanted = [(1, 1, 100), (1, 1, 9_000), (1, 2, 9_000), (1, 2, 12_000)]
    assert found == Counter(
        told(dict(zip(("k", "n", "start"), (str(w[0]), *w[1:]), strict=True))) for w in wanted
    )
    assert late == 1


SIZES = [(4_000, 2_000), (10_000, 4_000), (6_400, 100)]  # the last in blocks of panes


@pytest.mark.parametrize("size,slide", SIZES)
@pytest.mark.parametrize("goes", [(1, 1, 0, 0, 0), (1, 0, 0, 0, 0)])
def test_sliding_windows_that_were_stored_one_by_one_go_on_as_panes(
    size: int, slide: int, goes: tuple[int, ...], tmp_path: Path
) -> None:
    epochs, _ = drawn(size, (0,))
    window = hr.sliding(f"{size}ms", every=f"{slide}ms")
    found = played(tmp_path, epochs, [1_000 * one for one in goes], aggregated(window))
    wanted = expected(epochs, [0] * 5, size, slide)
    assert found == wanted
    assert wanted[0].total() > 20


def begun(place: Path) -> None:
    """Windows of four seconds are open that had a lateness, which is gone."""
    fed(place, [{"k": 1, "v": 1, "at": 100}, {"k": 1, "v": 2, "at": 2_500}])
    start(place, aggregated(SLIDING), 1_000)
    fed(place, [{"k": 1, "v": 4, "at": 2_600}])
    start(place, aggregated(SLIDING), 0)


def test_what_is_open_is_seen_whole_and_refuses_other_windows(tmp_path: Path) -> None:
    begun(tmp_path)
    made = job(tmp_path, aggregated(SLIDING), 0)
    seen = peek(made, "s", folder=str(tmp_path / "job"))
    stored = {(row["window_end"].second, row["n"]) for row in seen.to_arrow().to_pylist()}
    assert stored == {(4, 2), (6, 1), (4, 1)}  # two windows of before, and the pane since
    with pytest.raises(hr.StateError, match="HR-STATE-039"):
        seen.slice(0, 4_000).to_arrow()
    for other, lateness in ((aggregated(TUMBLING), 0), (aggregated(SLIDING), 500)):
        with pytest.raises(hr.StateError, match="HR-EVOLVE-010") as refused:
            start(tmp_path, other, lateness)
        assert "1970-01-01T00:00:06+00:00" in str(refused.value)
    fed(tmp_path, [{"k": 1, "v": 8, "at": 7_000}])
    start(tmp_path, aggregated(SLIDING), 0)
    start(tmp_path, aggregated(SLIDING), 500, "end")
    rows = hr.collected(str(tmp_path / "job"), "out").to_pylist()
    assert sorted((row["end"], row["total"]) for row in rows) == [
        (2_000, 1), (4_000, 7), (6_000, 6), (8_000, 8), (10_000, 8),
    ]  # fmt: skip


def test_aggregates_may_change_while_windows_are_still_stored_whole(tmp_path: Path) -> None:
    begun(tmp_path)

    def build(keyed: Any, _: int) -> Any:
        found = keyed.window(SLIDING).agg(
            sum=hr.sum("v"), n=hr.count(), most=hr.max("v"), name="s", since="restart",
            was_fields={"sum": "total"},
        )  # fmt: skip
        return found.select("n", "sum", "most", end="unix_millis(window_end)")

    fed(tmp_path, [{"k": 1, "v": 3, "at": 2_700}])
    start(tmp_path, build, 0, "end")
    rows = hr.collected(str(tmp_path / "job"), "out").to_pylist()
    found = sorted((row["end"], row["n"], row.get("sum"), row.get("most")) for row in rows)
    assert found[1:] == [(4_000, 4, 10, 3), (6_000, 3, 9, 3)]


class Crash(Exception):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("what", ["longer", "gone"])
def test_a_crash_in_the_change_leaves_what_was_or_what_is(what: str, tmp_path: Path) -> None:
    epochs, _ = drawn(7, LATE if what == "longer" else (0,))
    lateness = [500, 500, 3_000, 3_000, 3_000] if what == "longer" else [500, 500, 0, 0, 0]
    build, points, crashed = KINDS["sliding"][0], set[str](), 0
    for number, rows in enumerate(epochs):
        fed(tmp_path, rows)
        last, done = number == len(epochs) - 1, number != 2
        while not done:
            left = crashed

            def hook(point: str) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    points.add(point)
                    raise Crash(point)

            try:
                with faults.hooked(hook):
                    start(tmp_path, build, lateness[number])
                done = True
            except Crash:
                crashed += 1
        start(tmp_path, build, lateness[number], "end" if last else None)
    found = Counter(map(told, hr.collected(str(tmp_path / "job"), "out").to_pylist()))
    assert found == expected(epochs, lateness, 4_000, 2_000)[0]
    assert {"commit.checked", "manifest.linked"} & points


# Triggers of windows that store their rows.

EARLY = [None, t.after_rows(3), t.after_rows(2), None, t.after_rows(4)]


def test_a_trigger_comes_changes_and_goes_where_rows_are_stored(tmp_path: Path) -> None:
    def build(keyed: Any, version: int) -> Any:
        early = EARLY[version]
        said = {} if early is None else {"trigger": t.at_watermark(early=early)}
        window = keyed.window(TUMBLING, **said)
        found = window.process(summed, schema="n bigint, total bigint", name="s")
        return found.select("k", "n", "total", end="unix_millis(window_end)")

    epochs, _ = drawn(5, (0,))
    found, _ = played(tmp_path, epochs, [0, 1, 2, 3, 4], build)
    assert found == fired(epochs)


def test_a_shorter_gap_and_other_triggers_of_sessions_that_are_folded(tmp_path: Path) -> None:
    def build(keyed: Any, version: int) -> Any:
        rare = {"trigger": t.at_watermark(early=t.after_rows(100 + version))}
        window = keyed.window(
            hr.session("3s" if version < 3 else "2s"), **(rare if version else {})
        )
        found = window.fold(0, lambda total, row: total + row.v, name="s")
        return found.select(
            total="value", start="unix_millis(window_start)", end="unix_millis(window_end)"
        )

    times = [[100, 2_000], [4_000], [4_500], [6_000, 9_500], [12_000]]
    epochs = [[{"k": 1, "v": 10**n, "at": at} for at in epoch] for n, epoch in enumerate(times)]
    found, _ = played(tmp_path, epochs, [0, 1, 2, 3, 4], build)
    wanted = [(1_112, 100, 8_000), (1_000, 9_500, 11_500), (10_000, 12_000, 14_000)]
    assert found == {told(dict(zip(("total", "start", "end"), w, strict=True))): 1 for w in wanted}


def fired(epochs: list[list[Row]]) -> Counter[Any]:
    """Each epoch all its rows come, then each window with rows is asked, then the watermark."""
    found, mark = Counter[Any](), BEFORE
    held = dict[tuple[int, int], dict[str, Any]]()
    for number, rows in enumerate(epochs):
        needs = {1: 3, 2: 2, 4: 4}.get(number)
        for one in held.values():
            one["new"] = 0  # it counts from this start on
        touched = dict[tuple[int, int], None]()
        for row in rows:
            key = row["k"], row["at"] // 4_000 * 4_000 + 4_000
            one = held.setdefault(key, {"values": [], "new": 0})
            one["values"].append(row["v"])
            one["new"] += 1
            touched[key] = None
        mark = max(mark, max(row["at"] for row in rows) - 1)
        over = [key for key in held if key[1] <= mark]
        for key in [*over, *(key for key in touched if key not in over)]:
            if key in over or (needs is not None and held[key]["new"] >= needs):
                found[shown(*key, held[key]["values"])] += 1
                held[key]["new"] = 0
        held = {key: one for key, one in held.items() if key not in over}
    found.update(shown(*key, one["values"]) for key, one in held.items())
    return found
