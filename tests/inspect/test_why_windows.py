"""Why a window emits nothing: its trigger, its function, its watermark; and empty inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.inspect.why import STARTED, why
from headrace.inspect.why_answer import Why, answer_why
from headrace.state.manifest import Manifest
from tests.inspect.test_why import NOW, Bench, _log, _send, counts

t = hr.triggers


def _answer(bench: Bench, *, program: bool = True) -> Why:
    bench.why()
    known = bench.driver.program if program else None
    return answer_why("asked", known, bench.driver.manifest, bench.clock.now())


def _windows(window: Any, **how: Any) -> Any:
    def build(rows: hr.Stream) -> None:
        cut = rows.key_by("k").window(window, **how)
        cut.agg(n=hr.count(), name="w").write("collect:", name="out")

    return build


def test_a_run_without_a_row_is_told_apart_from_no_run(tmp_path: Path) -> None:
    _log(tmp_path)
    bench = Bench(tmp_path, counts)
    bench.driver.drain()
    assert bench.driver.manifest is None and bench.driver.start.log.taken()
    (reason,) = why(bench.driver.program, None, NOW, STARTED)
    assert (reason.kind, reason.where) == ("empty", "rows")
    assert reason.text == "input 'rows' is empty: it has delivered no rows yet"
    assert "headrace run" not in reason.hint
    turn = Manifest()  # Spark begins with a batch that reads nothing
    assert answer_why("asked", bench.driver.program, turn, NOW).reasons == [reason]
    (unnamed,) = why(None, None, NOW, STARTED)
    assert unnamed.kind == "empty" and "delivered no rows yet" in unnamed.text


def test_rows_without_a_punctuation_are_rows(tmp_path: Path) -> None:
    log = _log(tmp_path)
    marks = hr.watermarks.punctuated("v = 100")
    bench = Bench(tmp_path, counts, delay=None, watermark=marks)
    _send(log, 0, 1, 2)
    for later in (0, 60_000):  # its splits are live, then idle
        bench.clock.advance(later)
        reasons = bench.why()
        assert [r.kind for r in reasons] == ["watermark", "window", "starved"]
        assert reasons[0].text == (
            "the rows of input 'rows' carried no watermark: no punctuation came yet, in 2 rows"
        )
        assert "The condition is: v = 100." in reasons[0].hint
        assert "newer rows" not in reasons[1].hint
    assert "delivered no row" not in _answer(bench, program=False).text


def test_a_split_without_a_punctuation_beside_one_that_has_it(tmp_path: Path) -> None:
    log = _log(tmp_path)
    marks = hr.watermarks.punctuated("v = 1")
    bench = Bench(tmp_path, counts, delay=None, watermark=marks)
    _send(log, 0, 1, 2)
    _send(log, 1, 3)
    split = bench.why()[0]
    assert (split.kind, split.facts["split"]) == ("split", "1")
    assert "no row of it has moved the watermark yet" in split.text


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        (t.custom(lambda w: False), "when <lambda> says so"),
        (t.on_row("v = 100"), "on a row with `v` = 100"),
    ],
)
def test_windows_that_end_without_their_trigger(tmp_path: Path, trigger: Any, words: str) -> None:
    log = _log(tmp_path)
    bench = Bench(tmp_path, _windows(hr.tumbling("10s"), trigger=trigger, may_lose=True))
    for partition in (0, 1):
        _send(log, partition, 1, 12, 25)
    reasons = {r.kind: r for r in bench.why()}
    lost, waits = reasons["lost"], reasons["trigger"]
    assert lost.text == (
        f"2 windows of step 'w' ended with rows that the trigger ({words}) had not shown: these "
        "rows are gone"
    )
    assert waits.text == (
        f"step 'w' waits for its trigger ({words}): the end of a window emits no result"
    )
    assert "over when the watermark reaches 2023-11-14 22:13:50" in waits.hint
    assert "window" not in reasons and "rows" not in reasons
    bench.clock.advance(120_000)  # now all are over
    reasons = {r.kind: r for r in bench.why()}
    assert reasons["lost"].facts["windows"] == 3
    assert {"window", "rows", "trigger"}.isdisjoint(reasons)


def test_a_trigger_that_shows_all_in_time_loses_nothing(tmp_path: Path) -> None:
    log = _log(tmp_path)
    each = _windows(hr.tumbling("10s"), trigger=t.after_rows(1), may_lose=True)
    bench = Bench(tmp_path, each)
    _send(log, 0, 1, 12)
    bench.clock.advance(120_000)
    bench.why()
    bench.clock.advance(120_000)
    assert bench.why() == [] and bench.driver.output("out").num_rows == 2


@pytest.mark.parametrize("program", [True, False])
@pytest.mark.parametrize("time", [None, "processing"])
def test_a_window_without_end_waits_for_its_trigger(
    tmp_path: Path, program: bool, time: str | None
) -> None:
    log = _log(tmp_path)
    bench = Bench(tmp_path, _windows(hr.everything(), trigger=t.after_rows(5), time=time))
    _send(log, 0, 1, 2)
    bench.clock.advance(60_000)
    answer = _answer(bench, program=program)
    assert [r.kind for r in answer.reasons] == ["trigger", "starved"]
    said = " (after 5 rows)" if program else ""
    assert answer.reasons[0].text == (
        f"step 'w' waits for its trigger{said}: its window has no end"
    )
    assert "4611686018427387" not in answer.text and "5337597" not in answer.text


def test_a_window_without_end_or_trigger_gives_its_result_at_the_end(tmp_path: Path) -> None:
    log = _log(tmp_path)
    bench = Bench(tmp_path, _windows(hr.everything()))
    _send(log, 0, 1, 2)
    trigger, starved = bench.why()
    assert "nothing but the end of the input makes it fire" in trigger.text
    assert starved.kind == "starved"
    assert "4611686018427387" not in _answer(bench).text


def test_a_window_without_end_that_fires_by_event_time(tmp_path: Path) -> None:
    log = _log(tmp_path)
    every = t.every("10s", time="event")
    bench = Bench(tmp_path, _windows(hr.everything(), trigger=every))
    for second in (1, 2):
        _send(log, 0, second)
        _send(log, 1, second)
        bench.why()
    (window,) = [r for r in bench.why() if r.kind == "window"]
    assert "to reach 2023-11-14 22:13:30" in window.text
    assert window.hint.startswith("Its trigger goes by it (every 10s of event time)")


def _nothing(key: Any, window: Any, rows: Any) -> list[Any]:
    return []


def _size(key: Any, window: Any, rows: Any) -> list[Any]:
    return [(len(rows),)]


@pytest.mark.parametrize(
    ("function", "evict", "hint"),
    [
        (_nothing, None, "Its function returns no row"),
        (_size, hr.keep(lambda rows: [False] * len(rows)), "Its evictor leaves no row"),
    ],
)
def test_windows_that_fired_and_gave_nothing(
    tmp_path: Path, function: Any, evict: Any, hint: str
) -> None:
    log = _log(tmp_path)

    def build(rows: hr.Stream) -> None:
        cut = rows.key_by("k").window(hr.tumbling("10s"), evict=evict)
        cut.process(function, schema="n bigint", name="w").write("collect:", name="out")

    bench = Bench(tmp_path, build)
    for partition in (0, 1):
        _send(log, partition, 1, 12, 25)
    reasons = {r.kind: r for r in bench.why()}
    assert reasons["nothing"].text == (
        "windows of step 'w' have fired 2 times, and each time they emitted nothing"
    )
    assert reasons["nothing"].hint.startswith(hint)
    assert "window" in reasons  # the next one is open


def test_the_steps_are_those_that_the_user_wrote(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def build(rows: hr.Stream) -> None:
        cut = rows.key_by("k").window(hr.tumbling("10s"))
        cut.agg(n=hr.sum("v * 2"), name="w").write("collect:", name="out")
        hot = rows.where("v > 0", name="hot").key_by("k").window(hr.tumbling("10s"))
        hot.agg(n=hr.sum("v * 2"), name="x").write("collect:", name="hot out")

    bench = Bench(tmp_path, build)
    _send(log, 0, 1, 2, 3)
    answer = _answer(bench)
    none = {"filtered": 0, "late": 0, "dead": 0}
    assert answer.json["steps"] == {
        "hot": {"in": 3, "out": 2, **none, "filtered": 1},
        "w": {"in": 3, "out": 0, **none}, "x": {"in": 2, "out": 0, **none},
    }  # fmt: skip
    assert ":arguments" not in answer.text
    assert _answer(bench, program=False).json["steps"] == {
        "w": {"in": 3, "out": 0, **none}, "x": {"in": 3, "out": 0, **none, "filtered": 1},
    }  # fmt: skip
