"""What the strategies that are shipped to users draw, how it reads, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import HeadraceError
from headrace.schema import schema_of
from headrace.testing import Advance, Crash, End, Idle, Restart, Send, Step, Watermark
from headrace.testing.harness import records
from headrace.testing.script import moment
from headrace.testing.strategies import rows, scripts, streams

SCHEMA = "k string, v bigint, at bigint"
STREAM = streams(SCHEMA, time="at", within="3s")
LATE = streams(SCHEMA, time="at", within="1s", late="20s")
KINDS = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, i binary, "
    "j date, k timestamp, l decimal(38,10), m array<string>, n map<string, int>, "
    "o struct<p: bigint, q: array<double>>, r decimal(2,2), s string not null"
)


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
