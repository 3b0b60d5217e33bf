"""The strategies that are shipped to users, used as a user would: programs against models.

HEADRACE_EXAMPLES=500 plays 500 scripts of each program.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import HeadraceError
from headrace.schema import schema_of
from headrace.testing import (
    Advance,
    Crash,
    End,
    Harness,
    Idle,
    Restart,
    Send,
    Step,
    Watermark,
    play,
)  # fmt: skip
from headrace.testing.records import records
from headrace.testing.strategies import rows, scripts, streams
from headrace.testing.times import moment

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "0")) or 6
SCHEMA = "k string, v bigint, at bigint"
KEYS = st.sampled_from(["a", "b", "ß", None])
SMALL = st.integers(-3, 3)
STREAM = streams(SCHEMA, time="at", within="3s", k=KEYS, v=SMALL)
LATE = streams(SCHEMA, time="at", within="1s", late="20s", k=KEYS, v=SMALL)
KINDS = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, i binary, "
    "j date, k timestamp, l decimal(38,10), m array<string>, n map<string, int>, "
    "o struct<p: bigint, q: array<double>>, r decimal(2,2), s string not null"
)


def read(job: hr.Job, name: str = "rows", delay: str = "3s") -> Any:
    return job.read("log:nowhere", schema=SCHEMA, time="at", delay=delay, name=name)


# programs, and what they should give


def counts(size: str = "10s", delay: str = "3s") -> hr.Job:
    job = hr.Job("counts")
    windows = read(job, delay=delay).key_by("k").window(hr.tumbling(size))
    windows.agg(n=hr.count(), total=hr.sum("v"), name="counts").write("log:also-nowhere")
    return job


def counted(sent: Iterable[dict[str, Any]]) -> dict[tuple[Any, int], tuple[int, int]]:
    """Count and sum by key and start of the window."""
    found: dict[tuple[Any, int], tuple[int, int]] = {}
    for row in sent:
        window = row["k"], row["at"] // 10_000 * 10_000
        n, total = found.get(window, (0, 0))
        found[window] = n + 1, total + row["v"]
    return found


class Running(hr.KeyedProcess):
    """The sum of each key, and how many rows came before."""

    output = "k string, n bigint, total bigint"
    n = hr.value(int, default=0)
    total = hr.value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.total += row.v
        ctx.timer(ctx.time + 5_000)
        return []

    def on_timer(self, time: int, ctx: Any) -> Any:
        yield (ctx.key, self.n, self.total)


class Careless(Running):
    """Keeps the number of rows beside the state, where a batch done again counts twice."""

    def on_row(self, row: Any, ctx: Any) -> Any:
        MEMORY[row.k] += 1
        self.n = MEMORY[row.k]
        self.total += row.v
        ctx.timer(ctx.time + 5_000)
        return []


MEMORY: Counter[Any] = Counter()


def running(function: hr.KeyedProcess) -> hr.Job:
    job = hr.Job("running")
    both = read(job, "left").union(read(job, "right"))
    both.key_by("k").process(function, unbounded=True, name="running").write("console:")
    return job


def sent(script: Iterable[Step]) -> list[dict[str, Any]]:
    return [row for step in script if isinstance(step, Send) for row in step.rows]


def windows_of(found: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(r["k"], moment(r["window_start"]), r["n"], r["total"]) for r in found]


def check_counts(script: list[Step], job: hr.Job) -> None:
    with Harness(job) as test:
        play(test, script)
        found, late = windows_of(test.output()), test.late()
    expected = [(*window, *value) for window, value in counted(sent(script)).items()]
    assert Counter(found) == Counter(expected)
    assert late == []


def check_running(script: list[Step], function: hr.KeyedProcess) -> None:
    """Timers fire by time, so the last word on a key counts all its rows."""
    MEMORY.clear()
    with Harness(running(function)) as test:
        play(test, script)
        found = {r["k"]: (r["n"], r["total"]) for r in test.output()}
    by_key: dict[Any, list[int]] = {}
    for row in sent(script):
        by_key.setdefault(row["k"], []).append(row["v"])
    assert found == {k: (len(v), sum(v)) for k, v in by_key.items()}


# right programs


@settings(max_examples=EXAMPLES)
@given(scripts({"rows": STREAM}, time="at"))
def test_counts_are_those_of_all_rows_at_once(script: list[Step]) -> None:
    check_counts(script, counts())


@settings(max_examples=EXAMPLES)
@given(scripts({"rows": LATE}, time="at", splits=1))
def test_rows_are_counted_or_late(script: list[Step]) -> None:
    with Harness(counts(delay="1s")) as test:
        play(test, script)
        found, late = windows_of(test.output()), test.late()
    expected = counted(sent(script))
    assert sum(n for _, _, n, _ in found) + len(late) == len(sent(script))
    assert all(n <= expected[k, start][0] for k, start, n, _ in found)


@settings(max_examples=EXAMPLES)
@given(scripts({"left": STREAM, "right": STREAM}, time="at"))
def test_a_process_function_over_two_inputs_counts_every_row_once(script: list[Step]) -> None:
    check_running(script, Running())


# wrong programs


def refuted(drawn: Any, check: Any, examples: int = 200) -> None:
    """Play scripts until one fails; what is asserted is that one does."""
    phases = [Phase.generate]  # not shrunk: that it is found is enough
    options = settings(max_examples=examples, phases=phases, database=None, derandomize=True)
    with pytest.raises(AssertionError):
        options(given(drawn)(check))()


def test_windows_of_another_size_are_found() -> None:
    refuted(scripts({"rows": STREAM}), lambda script: check_counts(script, counts("9s")))


def test_what_is_kept_beside_the_state_is_found() -> None:
    check = lambda script: check_running(script, Careless())  # noqa: E731
    refuted(scripts({"left": STREAM, "right": STREAM}), check)


def test_without_crashes_it_would_not_be_found() -> None:
    drawn = scripts({"left": STREAM, "right": STREAM}, crashes=False)
    options = settings(max_examples=EXAMPLES, database=None, derandomize=True)
    options(given(drawn)(lambda script: check_running(script, Careless())))()


def test_a_failing_script_shrinks_to_a_short_transcript() -> None:
    def fails(script: list[Step]) -> bool:  # as a job does that loses rows in a crash
        steps = [s for s in script if isinstance(s, Send | Crash)]
        return any(isinstance(s, Crash) for s in steps[1:-1])

    few = streams("at bigint", time="at", max_size=4)
    options = settings(derandomize=True, database=None)
    script = find(scripts({"rows": few}), fails, settings=options)
    kinds = [type(step) for step in script]
    assert Crash in kinds and len(kinds) <= 5
    assert eval(repr(script)) == script


# what is drawn


def drawn_somewhere(drawn: Any, wanted: Any) -> None:
    options = settings(max_examples=1_000, phases=[Phase.generate], database=None, derandomize=True)
    find(drawn, wanted, settings=options)


@settings(max_examples=20)
@given(st.lists(rows(KINDS), max_size=5))
def test_rows_fit_their_schema_and_come_back_as_they_were(drawn: list[dict[str, Any]]) -> None:
    table = records("rows", drawn, schema_of(KINDS)).to_pylist()
    assert [{**r, "n": None if r["n"] is None else dict(r["n"])} for r in table] == drawn
    assert all(row["s"] is not None for row in drawn)


def test_rows_have_nulls_ties_extremes_and_text_that_is_not_ascii() -> None:
    drawn = st.lists(rows("v bigint, s string"), min_size=2, max_size=8)
    for wanted in [
        lambda many: many[0]["v"] is None,
        lambda many: many[0]["v"] == many[1]["v"] not in (0, None),
        lambda many: abs(many[0]["v"] or 0) > 1 << 60,
        lambda many: not (many[0]["s"] or "").isascii(),
    ]:
        drawn_somewhere(drawn, wanted)


@dataclass
class Reading:
    area: str
    celsius: float | None
    at: datetime


@settings(max_examples=20)
@given(st.lists(rows(Reading)))
def test_a_dataclass_says_what_may_be_none(drawn: list[dict[str, Any]]) -> None:
    assert all(isinstance(r["area"], str) and r["at"].tzinfo is UTC for r in drawn)


def test_a_dataclass_may_have_none_where_it_says_so() -> None:
    drawn_somewhere(rows(Reading), lambda row: row["celsius"] is None)


def ages(stream: list[dict[str, Any]]) -> list[int]:
    """How much older each row is than the newest before it."""
    times = [moment(row["at"]) for row in stream]
    return [max(times[: n + 1]) - time for n, time in enumerate(times)]


@settings(max_examples=30)
@given(streams(Reading, time="at", within="3s", start="1h"))
def test_no_row_is_older_than_allowed_or_before_the_start(stream: list[dict[str, Any]]) -> None:
    assert all(0 <= age <= 3_000 for age in ages(stream))
    assert all(moment(row["at"]) >= 3_600_000 for row in stream)


def test_streams_have_disorder_ties_and_late_rows_where_asked() -> None:
    drawn_somewhere(STREAM, lambda stream: 3_000 in ages(stream))
    drawn_somewhere(STREAM, lambda stream: len({r["at"] for r in stream}) < len(stream) - 2)
    drawn_somewhere(LATE, lambda stream: max(ages(stream), default=0) > 1_000)


@settings(max_examples=30)
@given(scripts({"left": STREAM, "right": STREAM}, time="at", splits=3, advance="4s"))
def test_a_script_is_honest_about_time(script: list[Step]) -> None:
    for n, step in enumerate(script):
        coming = [s for s in script[n:] if isinstance(s, Send)]
        if isinstance(step, Watermark):
            times = [r["at"] for s in coming if s.input == step.input for r in s.rows]
            assert step.time <= min(times)
        if isinstance(step, Idle):
            assert (step.input, step.split) not in {(s.input, s.split) for s in coming}
    passed = [hr.clock.millis(s.by) for s in script if isinstance(s, Advance)]
    assert sum(passed) <= 4_000 and script[-1] == End()


@pytest.mark.parametrize("kind", [Advance, Crash, Idle, Restart, Watermark])
def test_every_kind_of_step_is_drawn(kind: type[Step]) -> None:
    drawn = scripts({"rows": STREAM}, time="at")
    drawn_somewhere(drawn, lambda script: any(isinstance(s, kind) for s in script[:-2]))


# how it reads, and what is refused


def test_a_step_prints_as_the_call_that_makes_it() -> None:
    script = [Send("rows", [{"k": "a"}], split=1), Crash(), Watermark("rows", 5), Idle("rows")]
    shown = "[Send('rows', [{'k': 'a'}], split=1), Crash(), Watermark('rows', 5), Idle('rows')]"
    assert repr(script) == shown and eval(shown) == script


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: rows("key string", kex=st.none()), "HR-TEST-015"),
        (lambda: rows({"t": hr.schema.pa.time32("s")}), "HR-TEST-013"),
        (lambda: streams("k string", time="at"), "HR-TEST-016"),
        (lambda: streams("k string, at string", time="at"), "HR-TEST-014"),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_once(make: Any, code: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        make()
    assert refused.value.code == code and refused.value.hint


def test_without_hypothesis_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import headrace.testing\n"
        "try:\n    import headrace.testing.strategies\n"
        "except headrace.errors.RunError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HR-TEST-012" in done.stdout and "headrace[testing]" in done.stdout


def test_the_harness_does_not_import_hypothesis() -> None:
    code = "import sys, headrace.testing; sys.exit('hypothesis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
