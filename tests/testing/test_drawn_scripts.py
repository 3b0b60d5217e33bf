"""Programs played by drawn scripts, as a user would test them: right ones pass, wrong ones fail.

HEADRACE_EXAMPLES=500 plays 500 scripts of each program.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness, Send, Step, play
from headrace.testing.script import moment
from headrace.testing.strategies import scripts, streams

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "0")) or 6
SCHEMA = "k string, v bigint, at bigint"
KEYS = st.sampled_from(["a", "b", "ß", None])
SMALL = st.integers(-3, 3)
STREAM = streams(SCHEMA, time="at", within="3s", k=KEYS, v=SMALL)
LATE = streams(SCHEMA, time="at", within="1s", late="20s", k=KEYS, v=SMALL)


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


def test_a_delay_that_is_too_short_is_found() -> None:
    drawn = scripts({"rows": STREAM}, time="at")
    refuted(drawn, lambda script: check_counts(script, counts(delay="1s")))


def test_what_is_kept_beside_the_state_is_found() -> None:
    check = lambda script: check_running(script, Careless())  # noqa: E731
    refuted(scripts({"left": STREAM, "right": STREAM}), check)


def test_without_crashes_it_would_not_be_found() -> None:
    drawn = scripts({"left": STREAM, "right": STREAM}, crashes=False)
    options = settings(max_examples=EXAMPLES, database=None, derandomize=True)
    options(given(drawn)(lambda script: check_running(script, Careless())))()
