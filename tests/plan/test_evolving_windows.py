"""A window that is another one than before is refused in words, whatever it was and is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace import triggers as t
from headrace.plan import nodes
from headrace.plan.evolution import compare, describe
from headrace.testing import Harness

SCHEMA = "key string, n bigint, hot boolean, at timestamp"
Build = Callable[[hr.KeyedStream], hr.Stream]


class Heat(hr.WindowAssigner):
    def assign(self, time: int, row: Any) -> list[tuple[int, int]]:
        return [(time, time + 1_000)]


class Cold(Heat):
    pass


class Remembers(hr.WindowProcess):
    last = hr.value(int)

    def process(self, key: Any, window: Any, rows: list[Any]) -> dict[str, int]:
        return {"m": len(rows)}


class RemembersMore(Remembers):
    last = hr.value(float)
    more = hr.window_value(int)


def job(build: Build, schema: str = SCHEMA) -> hr.Job:
    made = hr.Job("evolving")
    rows = made.read("log:nowhere", schema=schema, time="at", delay="1s", name="rows")
    build(rows.key_by("key")).write("log:also-nowhere", name="out")
    return made


def over(window: Any, **said: Any) -> Build:
    return lambda rows: rows.window(window, **said).agg(m=hr.count(), name="w")


def folded(window: Any, **said: Any) -> Build:
    return lambda rows: rows.window(window, **said).fold(0, lambda a, row: a, name="w")


def reduced(window: Any, **said: Any) -> Build:
    return lambda rows: rows.window(window, **said).reduce(lambda a, b: a, name="w")


def processed(window: Any, fn: Any = lambda key, window, rows: {"m": 1}, **said: Any) -> Build:
    return lambda rows: rows.window(window, **said).process(
        fn, schema="m bigint", unbounded=isinstance(fn, hr.WindowProcess), name="w"
    )


FIVE, TEN = hr.tumbling("5s"), hr.tumbling("10s")
EARLY = t.at_watermark(early=t.every("2s"))
MOVED = t.at_watermark(early=t.on_delta("n", 3))

CHANGES: list[tuple[Build, Build, str]] = [
    (over(FIVE), over(TEN), "its window was tumbling 5s and is tumbling 10s"),
    (over(FIVE), over(hr.sliding("5s", "1s")), "was tumbling 5s and is sliding 5s every 1s"),
    (over(FIVE), over(hr.tumbling("5s", offset="1s")), "is tumbling 5s offset 1s"),
    (folded(FIVE), folded(TEN), "its window was tumbling 5s and is tumbling 10s"),
    (
        over(hr.session("3s")), over(hr.session("5s")),
        "its window was session gap 3s and is session gap 5s",
    ),
    (
        over(hr.session(lambda r: r.n)), over(hr.session(lambda r: r.n * 2)),
        "its window was session gap `n` and is session gap `n` * 2",
    ),
    (over(hr.session("3s")), over(hr.session(lambda r: r.n)), "gap 3s and is session gap `n`"),
    (over(FIVE), over(hr.session("3s")), "was tumbling 5s and is session gap 3s"),
    (over(hr.session("3s")), over(FIVE), "was session gap 3s and is tumbling 5s"),
    (
        over(hr.cumulating("10s", "5s")), over(hr.cumulating("20s", "5s")),
        "was cumulating 10s every 5s and is cumulating 20s every 5s",
    ),
    (
        over(hr.calendar("day")), over(hr.calendar("month")),
        "was calendar day in UTC and is calendar month in UTC",
    ),
    (
        over(hr.calendar("day")), over(hr.calendar("day", zone="Europe/Berlin")),
        "was calendar day in UTC and is calendar day in Europe/Berlin",
    ),
    (over(FIVE), over(hr.everything()), "was tumbling 5s and is everything"),
    (over(FIVE, lateness="1s"), over(TEN, lateness="1s"), "is tumbling 10s: windows that may show"),
    (
        over(FIVE, lateness="1s"), over(FIVE, lateness="1s", mode="delta"),
        "its mode was 'replace' and is 'delta'",
    ),
    (
        over(FIVE, lateness="1s", mode="delta"), over(FIVE, lateness="1s", mode="retract"),
        "its mode was 'delta' and is 'retract'",
    ),
    (
        over(hr.tumbling(rows=3)), over(hr.tumbling(rows=4)),
        "its window was 3 rows and is 4 rows",
    ),
    (
        over(hr.tumbling(rows=3)), over(hr.sliding(rows=3, every_rows=1)),
        "its window was 3 rows and is 3 rows every 1",
    ),
    (over(hr.tumbling(rows=3)), over(FIVE), "its window was 3 rows and is tumbling 5s"),
    (over(hr.session("3s")), over(hr.tumbling(rows=3)), "was session gap 3s and is 3 rows"),
    (
        over(hr.delta("n", 3)), over(hr.delta("n", 4)),
        "until n moves by more than 3 since first and is until n moves by more than 4",
    ),
    (
        over(hr.delta("n * 2", 3)), over(hr.delta("n * 2", 4)),
        "was until an expression moves by more than 3",
    ),
    (
        over(hr.sliding(rows=3, every="5s")), over(hr.sliding(rows=4, every="5s")),
        "was last 3 rows every 5s and is last 4 rows every 5s",
    ),
    (
        over(hr.sliding("5s", every_rows=3)), over(hr.sliding("5s", every_rows=4)),
        "was last 5s every 3 rows and is last 5s every 4 rows",
    ),
    (
        over(hr.until("hot")), over(hr.until("hot", inside=False)),
        "was until hot and is until before hot",
    ),
    (
        over(hr.until("n > 3")), over(hr.until("n > 3", inside=False)),
        "was until an expression and is until before an expression",
    ),
    (over(Heat()), over(Cold()), "its window was Heat and is Cold"),
    (over(FIVE, trigger=EARLY, mode="delta"), over(FIVE), "its mode was 'delta' and is 'replace'"),
    (over(FIVE), over(FIVE, evict=hr.keep_last(rows=2)), "stored aggregates of each window"),
    (
        over(FIVE, trigger=EARLY), over(FIVE, trigger=t.per_row(MOVED)),
        "its trigger stored other values than it does now, "
        "with the trigger 'at the watermark, early",
    ),
    (
        over(FIVE), folded(FIVE),
        "it stored aggregates of each window and stores the value of its fold",
    ),
    (reduced(FIVE), folded(FIVE), "the value of its reduce of each window and stores the value of"),
    (
        folded(FIVE), folded(FIVE, lateness="1s"),
        "its fold of each window and stores all rows: the rows of windows that are open are gone",
    ),
    (
        folded(FIVE, lateness="1s"), folded(FIVE),
        "all rows of each window and stores the value of its fold: what is computed of stored "
        "rows is not made of them at a start",
    ),
    (
        over(hr.tumbling(rows=5)), over(hr.tumbling(rows=5), trigger=EARLY),
        "of windows that rows end, other counts are stored with a trigger than without",
    ),
    (over(FIVE), processed(FIVE), "it stored aggregates of each window and stores all rows"),
    (processed(FIVE), over(TEN), "was tumbling 5s and is tumbling 10s; it stored all rows"),
    (
        processed(FIVE, Remembers()), processed(FIVE, RemembersMore()),
        "the value 'more' is new; the value 'last' was bigint per key and is double per key",
    ),
    (
        over(FIVE), lambda rows: rows.agg(m=hr.count(), unbounded=True, name="w"),
        "it was a window and is a running aggregate",
    ),
    (
        lambda rows: rows.fold(0, lambda a, row: a, unbounded=True, name="w"), folded(FIVE),
        "it was a running reduce or fold and is a window",
    ),
]  # fmt: skip


GOES_ON: list[tuple[Build, Build, str]] = [
    (over(FIVE), over(FIVE, trigger=EARLY), "w.trigger: changed from none to the trigger 'at"),
    (over(FIVE), over(FIVE, mode="delta"), "trigger: changed from none to mode 'delta'"),
    (over(FIVE), over(FIVE, info=True), "trigger: changed from none to info=True"),
    (over(FIVE, trigger=EARLY), over(FIVE), "trigger: changed to none: a window fires once"),
    (over(FIVE, lateness="1s"), over(FIVE), "trigger: changed to none: a window fires once"),
    (over(FIVE), over(FIVE, lateness="1s"), "to lateness 1s; what is over by now stays over"),
    (over(FIVE, lateness="1s"), over(FIVE, lateness="2s"), "lateness: changed from 1s to 2s: what"),
    (over(hr.session("3s")), over(hr.session("3s"), lateness="1s"), "changed from 0ms to 1s: what"),
    (over(FIVE, trigger=EARLY), over(FIVE, lateness="1s"), "w.lateness: changed from 0ms to 1s"),
    (
        over(hr.sliding("10s", "5s"), trigger=EARLY), over(hr.sliding("10s", "5s")),
        "trigger: changed to none: a window fires once",
    ),
    (processed(FIVE), processed(FIVE, trigger=EARLY), "trigger: changed to the trigger 'at"),
    (processed(hr.session("3s")), processed(hr.session("2s")), "w.gap: changed from 3s to 2s"),
    (over(FIVE, trigger=EARLY), over(FIVE, trigger=MOVED), "which counts from this start on"),
    (over(FIVE, lateness="1s"), over(FIVE, trigger=EARLY), "changed to the trigger 'at the"),
    (over(hr.session("3s"), trigger=EARLY), over(hr.session("3s")), "changed to no trigger"),
    (over(hr.session("3s")), over(hr.session("2s")), "w.gap: changed from 3s to 2s"),
    (over(hr.sliding("5s", "1s")), over(FIVE), "w.window: changed from sliding 5s every 1s to"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "said"), GOES_ON)
def test_windows_that_go_on_say_what_changes(before: Build, after: Build, said: str) -> None:
    harness = Harness(job(before))
    harness.send("rows", [{"key": "a", "n": 1, "hot": False, "at": 1_000}])
    found = compare(job(after).program(), describe(job(before).program()))
    assert said in str(found)
    harness.restart(job(after))
    harness.end()
    assert {row["m"] for row in harness.output("out")} == {1}


def named(case: object) -> str | None:
    return case if isinstance(case, str) else ""


@pytest.mark.parametrize(("before", "after", "because"), CHANGES, ids=named)
def test_a_changed_window_is_refused_in_words(before: Build, after: Build, because: str) -> None:
    harness = Harness(job(before))
    harness.send("rows", [{"key": "a", "n": 1, "hot": False, "at": 1_000}])
    with pytest.raises(hr.StateError) as caught:
        harness.restart(job(after))
    said = str(caught.value)
    assert caught.value.code == "HR-EVOLVE-001"
    assert because in said
    assert not inner_names(said) and "$" not in said and "None" not in said


def inner_names(said: str) -> set[str]:
    """The classes of the plan that a message names."""
    ours = {
        n for n, c in vars(nodes).items() if isinstance(c, type) and c.__module__ == nodes.__name__
    }
    return ours & set(re.findall(r"\w+", said))


@pytest.mark.parametrize(("before", "after", "because"), CHANGES, ids=named)
def test_a_window_that_is_as_it_was_goes_on(before: Build, after: Build, because: str) -> None:
    for build in (before, after):
        compare(job(build).program(), describe(job(build).program())).check()


def test_a_column_more_in_rows_that_are_kept_is_refused_by_its_name() -> None:
    build = processed(FIVE)
    wider = job(build, f"{SCHEMA}, extra string").program()
    (refused,) = compare(wider, describe(job(build).program())).of("refused")
    assert refused.because == "the column 'extra' of its rows is new"


RETRACTED: list[Callable[..., Any]] = [
    lambda **said: hr.approx_count_distinct("n", **said),
    lambda **said: hr.approx_quantile("n", 0.5, **said),
    lambda **said: hr.count_min("n", [1], **said),
    lambda **said: hr.approx_top_k("n", 2, **said),
    lambda **said: hr.histogram("n", 2, **said),
    lambda **said: hr.histogram("n", 2, low=0, high=1, **said),
]


@pytest.mark.parametrize("window", [FIVE, hr.session("3s"), hr.tumbling(rows=2)], ids=str)
@pytest.mark.parametrize("what", RETRACTED)
def test_a_result_that_may_be_retracted_keeps_its_type(
    window: Any, what: Callable[..., Any]
) -> None:
    """What windows emitted is stored beside a sketch that bounds= would leave as it is."""

    def changed(mode: str) -> Any:
        firing = {"trigger": t.at_watermark(early=t.on_change()), "mode": mode}
        before, after = (
            lambda rows, b=b: rows.window(window, **firing).agg(m=what(bounds=b), name="w")
            for b in (False, True)
        )
        return compare(job(after).program(), describe(job(before).program()))

    changed("replace").check()
    (refused,) = changed("retract").of("refused")
    assert "the result 'm', which may be retracted, was" in refused.because
