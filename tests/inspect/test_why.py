"""Why is there no output? Each reason, of a real job that was driven into it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.clock import ManualClock
from headrace.driver.never_firing import never_fires
from headrace.inspect.why import why
from headrace.inspect.why_answer import answer_why
from headrace.inspect.why_case import Reason
from headrace.plan.program import build
from headrace.testing import Driver

NOW = 1_700_000_000_000  # 2023-11-14 22:13:20


def _log(root: Path, *topics: str) -> hr.EmbeddedLog:
    log = hr.EmbeddedLog(str(root / "log"))
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
    for topic in topics or ("rows",):
        log.create(topic, partitions=2, schema=schema)
    return log


def _send(log: hr.EmbeddedLog, partition: int, *seconds: float, topic: str = "rows") -> None:
    rows = [{"k": "a", "v": i, "at": NOW + round(1_000 * s)} for i, s in enumerate(seconds)]
    log.append(topic, rows, partition=partition)


class Bench:
    """A job over the topic `rows`, driven with a clock of its own."""

    def __init__(self, root: Path, build: Any, **reading: Any) -> None:
        self.clock, self.root = ManualClock(NOW), root
        self.job = hr.Job("asked")
        options = {"time": "at", "delay": "1s", **reading}
        build(self.job.read("log:rows", log=str(root / "log"), name="rows", **options))
        self.driver = Driver(self.job, root / "job", until=None, clock=self.clock)

    def why(self, *, program: bool = True) -> list[Reason]:
        self.driver.drain()
        known = self.driver.program if program else None
        return why(known, self.driver.manifest, self.clock.now())

    def kinds(self, *, program: bool = True) -> list[tuple[str, str]]:
        return [(r.kind, r.where) for r in self.why(program=program)]


def counts(rows: hr.Stream) -> None:
    counted = rows.key_by("k").window(hr.tumbling("10s")).agg(n=hr.count(), name="counts")
    counted.write("collect:", name="out")
    counted.late.write("collect:", name="late")


def test_a_job_that_has_not_run(tmp_path: Path) -> None:
    _log(tmp_path)
    bench = Bench(tmp_path, counts)
    (reason,) = bench.why()
    assert reason.kind == "not run" and reason.text == "job 'asked' has not run"
    assert "headrace run" in reason.hint


def test_an_input_that_never_gave_a_row(tmp_path: Path) -> None:
    log = _log(tmp_path, "rows", "other")

    def both(rows: hr.Stream) -> None:
        counts(rows)
        job.read("log:other", log=str(tmp_path / "log"), name="other").write("collect:other")

    job = hr.Job("asked")
    both(job.read("log:rows", log=str(tmp_path / "log"), name="rows", time="at", delay="1s"))
    driver = Driver(job, tmp_path / "job", until=None, clock=ManualClock(NOW))
    _send(log, 0, 1, topic="other")
    driver.drain()
    assert driver.manifest is not None
    first, *rest = why(driver.program, driver.manifest, NOW)
    assert (first.kind, first.where, first.facts["splits"]) == ("empty", "rows", 2)
    assert first.text == "input 'rows' has never delivered a row (2 splits)"
    assert [(r.kind, r.facts["stopped_at"]) for r in rest] == [("starved", ["rows"])]
    assert rest[0].text == "no row has come to 'counts', 'out': all rows stop at 'rows'"


def test_a_split_that_holds_the_watermark_back_and_the_window_that_waits(tmp_path: Path) -> None:
    log = _log(tmp_path)
    bench = Bench(tmp_path, counts, idle="15s")
    _send(log, 0, 1, 25)
    bench.why()
    bench.clock.advance(4_000)
    split, window, starved = bench.why()
    assert (split.kind, split.where) == ("split", "rows")
    assert split.facts == {
        "split": "1", "watermark": None, "silent": 4_000, "idle_at": NOW + 15_000,
    }  # fmt: skip
    assert split.text == (
        "the watermark is held back by split '1' of input 'rows': it has delivered no rows yet, "
        "and it has been silent for 4.0s"
    )
    assert "idle in 11.0s" in split.hint and "15.0s" in split.hint
    assert (window.kind, window.where) == ("window", "counts")
    assert window.facts == {"next": NOW + 10_000, "watermark": None}
    assert "to reach 2023-11-14 22:13:30; it has not begun" in window.text
    assert (starved.kind, starved.facts["stopped_at"]) == ("starved", ["counts"])


def test_how_far_the_watermark_is_from_the_window(tmp_path: Path) -> None:
    log = _log(tmp_path)
    bench = Bench(tmp_path, counts)
    _send(log, 0, 9)
    _send(log, 1, 3)
    split, window, _ = bench.why()
    assert (split.facts["split"], split.facts["watermark"]) == ("1", NOW + 2_000)
    assert "it is at 2023-11-14 22:13:22" in split.text
    assert window.text == (
        "step 'counts' waits for the watermark to reach 2023-11-14 22:13:30; it is 8.0s away"
    )


def test_when_all_are_silent_the_clock_brings_the_result(tmp_path: Path) -> None:
    log = _log(tmp_path)
    bench = Bench(tmp_path, counts, idle="2s")
    _send(log, 0, 1)
    bench.why()
    bench.clock.advance(3_000)  # the job has had nothing to do: the manifest is of before
    window, _ = bench.why()
    assert (window.kind, window.facts["watermark"]) == ("window", NOW + 3_000)
    assert window.hint == "All inputs are silent, so the clock moves it: in 7.0s."
    stood = bench.driver.manifest
    bench.clock.advance(60_000)
    assert stood is not None
    due = why(bench.driver.program, stood, bench.clock.now())[0]
    assert due.kind == "window" and "is due" in due.text and "running?" in due.hint
    assert bench.why() == []  # the next batch has given it


def test_a_filter_that_lets_nothing_through_is_named_with_its_condition(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def build(rows: hr.Stream) -> None:
        hot = rows.where("v > 100", name="hot").with_columns(w="v * 2")
        hot.key_by("k").window(hr.tumbling("10s")).agg(w=hr.sum("w"), name="sums").write("collect:")

    bench = Bench(tmp_path, build)
    _send(log, 0, 1, 2, 3)
    filtered, starved = bench.why()
    assert (filtered.kind, filtered.where) == ("filtered", "hot")
    assert filtered.text == "step 'hot' let none of 3 rows through"
    assert filtered.hint == "The condition is: v > 100."
    assert filtered.facts == {"in": 3, "filtered": 3, "conditions": ["v > 100"]}
    assert starved.text == "no row has come to 'sums', 'sums.write': all rows stop at 'hot'"


def test_a_python_filter_that_lets_nothing_through_is_named_with_its_place(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def never(row: Any) -> bool:
        return False

    bench = Bench(tmp_path, lambda rows: counts(rows.filter(never, name="picky")))
    _send(log, 0, 1)
    reason = bench.why()[0]
    assert (reason.kind, reason.where) == ("filtered", "picky")
    assert "never (test_why.py:" in reason.hint


def test_rows_that_are_all_late(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def build(rows: hr.Stream) -> None:
        rows.write("collect:", name="all")
        counts(rows.where("v = 1", name="ones"))

    bench = Bench(tmp_path, build)
    _send(log, 0, 100)
    _send(log, 1, 100)
    bench.why()
    _send(log, 0, 101, 5)  # the second of the two has v = 1
    reasons = bench.why()
    late = next(r for r in reasons if r.kind == "late")
    assert (late.where, late.facts["late"]) == ("counts", 1)
    assert late.text.startswith("all 1 rows came too late for step 'counts', whose watermark is at")
    assert ("starved", "out") in [(r.kind, r.where) for r in reasons]


def test_rows_that_are_all_dead_at_the_input_or_at_a_step(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def fail(row: Any) -> bool:
        raise KeyError(row.k)

    def build(rows: hr.Stream) -> None:
        counts(rows.filter(fail, name="fails").filter(lambda r: str(r) > "", name="fine"))

    bench = Bench(tmp_path, build)
    _send(log, 0, 1, 2)
    assert bench.kinds()[0] == ("dead", "fails")
    assert bench.why()[0].text == (
        "step 'fails' failed on all 2 rows: KeyError: 'a' (topic rows partition 0 offset 0)"
    )
    log = _log(tmp_path / "other")
    other = Bench(tmp_path / "other", counts, max_skew="1s")
    _send(log, 0, 1_000, 2_000)
    assert other.kinds()[0] == ("dead", "rows")
    assert other.why()[0].text == (
        "all 2 rows of input 'rows' are dead letters: the time column 'at' is too far ahead of the "
        "clock (max_skew) (topic rows partition 0 offset 0)"
    )


def test_windows_of_the_clocks_time_wait_for_the_clock(tmp_path: Path) -> None:
    log = _log(tmp_path)
    bench = Bench(tmp_path, counts, time=hr.ingestion(), delay=None)
    _send(log, 0, 1)
    bench.why()
    bench.clock.advance(4_000)
    clock, starved = bench.why()
    assert (clock.kind, clock.where, clock.facts) == ("clock", "counts", {"wake": NOW + 10_000})
    assert "in 6.0s" in clock.text
    assert starved.kind == "starved"


def test_windows_of_processing_time_wait_for_the_clock(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def build(rows: hr.Stream) -> None:
        window = rows.key_by("k").window(hr.tumbling("10s"), time="processing")
        window.agg(n=hr.count(), name="counts").write("collect:", name="out")

    bench = Bench(tmp_path, build)
    _send(log, 0, 1)
    clock, starved = bench.why()
    assert (clock.kind, clock.facts) == ("clock", {"wake": NOW + 10_000})
    assert starved.kind == "starved"
    stood = bench.driver.manifest
    bench.clock.advance(10_000)
    assert stood is not None
    due = why(bench.driver.program, stood, bench.clock.now())[0]
    assert "that is due" in due.text and "running?" in due.hint
    assert bench.why() == []


def test_a_trigger_that_waits_for_the_clock(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def build(rows: hr.Stream) -> None:
        early = hr.triggers.at_watermark(early=hr.triggers.after_delay("3s"))
        window = rows.key_by("k").window(hr.tumbling("10s"), trigger=early)
        window.agg(n=hr.count(), name="counts").write("collect:", name="out")

    bench = Bench(tmp_path, build)
    _send(log, 0, 1)
    reasons = bench.why()
    assert [r.kind for r in reasons] == ["split", "window", "clock", "starved"]
    assert (reasons[2].where, reasons[2].facts) == ("counts", {"wake": NOW + 3_000})
    bench.clock.advance(3_000)
    assert [r.kind for r in bench.why()] == ["split", "window"]
    assert bench.driver.output("out").num_rows == 1


def test_a_window_that_waits_for_rows(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def build(rows: hr.Stream) -> None:
        window = rows.key_by("k").window(hr.tumbling(rows=3))
        window.agg(n=hr.count(), name="threes").write("collect:", name="out")

    bench = Bench(tmp_path, build)
    _send(log, 0, 1, 2)
    rows, starved = bench.why()
    assert (rows.kind, rows.where, rows.facts["taken"]) == ("rows", "threes", 2)
    assert starved.facts["stopped_at"] == ["threes"]
    _send(log, 0, 3)
    assert bench.why() == [] and bench.driver.output("out").num_rows == 1


def test_a_split_that_is_held_to_stay_with_the_others(tmp_path: Path) -> None:
    log = _log(tmp_path)
    bench = Bench(tmp_path, counts, align="30s")
    _send(log, 0, 100)
    _send(log, 1, 1)
    bench.why()
    _send(log, 0, 101)
    _send(log, 1, 2)
    reasons = {r.kind: r for r in bench.why()}
    held = reasons["aligned"]
    assert (held.facts["split"], held.facts["slowest"]) == ("0", "1")
    assert "split '0' of input 'rows' is not read until split '1'" in held.text
    assert reasons["behind"].facts == {"lag": 1}
    assert "unless align= holds them back" in reasons["behind"].hint


def test_a_job_that_is_behind(tmp_path: Path) -> None:
    log = _log(tmp_path)
    bench = Bench(tmp_path, lambda rows: rows.write("collect:", name="all"))
    _send(log, 0, *range(10))
    driver = Driver(bench.job, tmp_path / "small", until=None, clock=bench.clock, max_batch=3)
    driver.epoch()
    assert driver.manifest is not None
    (reason,) = why(driver.program, driver.manifest, NOW)
    assert (reason.kind, reason.facts) == ("behind", {"lag": 7})


def test_a_job_that_has_ended_and_one_that_is_well(tmp_path: Path) -> None:
    log = _log(tmp_path)
    bench = Bench(tmp_path, lambda rows: rows.write("collect:", name="all"))
    _send(log, 0, 1)
    assert bench.why() == []
    assert bench.driver.manifest is not None
    answer = answer_why("asked", bench.driver.program, bench.driver.manifest, NOW)
    assert "nothing holds it back" in answer.text and "1 to 'all'" in answer.text
    assert answer.json["steps"] == {}  # an output is told by what was written, not as a step
    assert answer.text.endswith("read 1 = used 1 + filtered 0 + late 0 + dead 0")
    driver = Driver(bench.job, tmp_path / "job", clock=bench.clock)
    driver.drain()
    assert driver.manifest is not None
    assert [r.kind for r in why(driver.program, driver.manifest, NOW)] == ["ended"]


def test_late_rows_and_dead_letters_that_never_came_are_no_trouble(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def build(rows: hr.Stream) -> None:
        counts(rows)
        bench_job.dead.where("step = 'x'").write("collect:", name="dead rows")

    bench_job = hr.Job("asked")
    build(bench_job.read("log:rows", log=str(tmp_path / "log"), name="rows", time="at", delay="1s"))
    clock = ManualClock(NOW)
    driver = Driver(bench_job, tmp_path / "job", until=None, clock=clock)
    _send(log, 0, 1)
    driver.drain()
    clock.advance(60_000)
    driver.drain()
    assert driver.output("out").num_rows == 1 and driver.manifest is not None
    assert why(driver.program, driver.manifest, clock.now()) == []


def test_without_the_program_the_manifest_says_what_it_can(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def build(rows: hr.Stream) -> None:
        counts(rows.where("v < 1", name="first"))
        rows.where("v > 100", name="hot").write("collect:", name="hot rows")

    bench = Bench(tmp_path, build)
    _send(log, 0, 1, 25)
    assert bench.kinds(program=False) == [
        ("filtered", "hot"), ("split", "rows"), ("window", "counts"), ("starved", "out"),
    ]  # fmt: skip
    assert "if the program does not say otherwise" in bench.why(program=False)[1].hint


def test_the_text_is_short_and_the_json_says_the_same(tmp_path: Path) -> None:
    log = _log(tmp_path)
    bench = Bench(tmp_path, lambda rows: counts(rows.where("v < 1", name="first")))
    _send(log, 0, 1, 25)
    bench.why()
    answer = answer_why("asked", bench.driver.program, bench.driver.manifest, NOW + 4_000)
    assert str(answer).splitlines() == [
        "job 'asked' after batch 1, 4.0s ago",
        "  the watermark has not begun; rows written: 0 to 'out', 0 to 'late'",
        "  1. the watermark is held back by split '1' of input 'rows': it has delivered no rows "
        "yet, and it has been silent for 4.0s",
        "     If it stays silent it is idle in 6.0s and counts no more (idle is 10.0s).",
        "  2. step 'counts' waits for the watermark to reach 2023-11-14 22:13:30; it has not begun",
        "     A window emits its result when it is over: newer rows move the watermark.",
        "  3. no row has come to 'out': all rows stop at 'counts'",
        "     The reasons for the steps before it explain this.",
        "so far",
        "  input 'rows': read 2 = used 1 + filtered 1 + late 0 + dead 0",
        "  step    in  out  filtered  late  dead",
        "  counts   1    0         0     0     0",
        "  first    2    1         1     0     0",
    ]
    data = json.loads(json.dumps(answer.json))
    assert [r["kind"] for r in data["reasons"]] == ["split", "window", "starved"]
    assert data["steps"]["first"] == {"in": 2, "out": 1, "filtered": 1, "late": 0, "dead": 0}
    assert data["outputs"] == {"out": 0, "late": 0} and data["epoch"] == 1


def test_a_step_that_makes_many_rows_of_one_filters_none(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def many(rows: hr.Stream) -> None:
        twice = rows.flat_map(lambda row: [str(row.k), str(row.k)], schema=str, name="twice")
        twice.write("collect:", name="all")

    bench = Bench(tmp_path, many)
    _send(log, 0, 1, 2, 3)
    bench.why()
    answer = answer_why("asked", bench.driver.program, bench.driver.manifest, NOW)
    counted = {"in": 3, "out": 6, "filtered": 0, "late": 0, "dead": 0}
    assert answer.json["steps"] == {"twice": counted}


def test_only_a_window_without_end_or_trigger_never_fires(tmp_path: Path) -> None:
    job = hr.Job("endless")
    rows = job.read(
        hr.rows([{"k": 1, "at": 1}], schema="k bigint, at bigint"), time="at", delay="1s"
    )
    keyed = rows.key_by("k")
    keyed.window(hr.everything()).agg(n=hr.count(), name="silent").write("collect:", name="a")
    some = keyed.window(hr.everything(), trigger=hr.triggers.after_rows(2))
    some.agg(n=hr.count(), name="some").write("collect:", name="b")
    keyed.window(hr.tumbling("5s")).agg(n=hr.count(), name="timed").write("collect:", name="c")
    silent = {n for n, node in build(job).nodes.items() if never_fires(node) is not None}
    assert silent == {"silent"}
