"""What a changed list of aggregates means for what is stored of them, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.plan.comparison import Comparison
from headrace.plan.evolution import compare, describe

SCHEMA = "k string, v int, f double, at bigint"
Build = Callable[[hr.KeyedStream], hr.Stream]
TEN = hr.tumbling("10s")


def program(build: Build, schema: str = SCHEMA) -> Any:
    job = hr.Job("j")
    rows = job.read("log:nowhere", schema=schema, time="at", delay="1s", name="rows")
    build(rows.key_by("k")).write("log:out", name="out")
    return job.program()


def versus(after: Build, before: Build, schema: str = SCHEMA) -> Comparison:
    return compare(program(after, schema), describe(program(before)))


def lines(comparison: Comparison) -> list[str]:
    return [str(c) for c in comparison.changes if c.role in ("operator", "value")]


def windowed(window: Any = TEN, name: str | None = "s", **aggs: Any) -> Build:
    return lambda rows: rows.window(window).agg(name=name, **aggs)


def running(name: str | None = "s", **aggs: Any) -> Build:
    return lambda rows: rows.agg(name=name, unbounded=True, **aggs)


SUM, LOW = hr.sum("v"), hr.min("v")
OF = pytest.mark.parametrize("of", [running, windowed])


@OF
def test_a_new_aggregate_needs_to_be_said_from_when_it_counts(of: Any) -> None:
    (refused,) = versus(of(a=SUM, b=LOW), of(a=SUM)).of("refused")
    assert refused.because == "the aggregate 'b' is new" and refused.code == "HR-EVOLVE-001"
    assert 'since="restart"' in refused.hint
    allowed = versus(of(a=SUM, b=LOW, since="restart"), of(a=SUM))
    allowed.check()
    assert lines(allowed) == [
        "operator  s: same",
        "value     s.b: new and counts from this start on: what is open now lacks the rows before",
    ]


@OF
def test_an_aggregate_that_is_gone_needs_consent(of: Any) -> None:
    found = versus(of(a=SUM), of(a=SUM, b=LOW))
    assert lines(found) == ["operator  s: same", "value     s.b: dropped"]
    with pytest.raises(hr.StateError, match="HR-EVOLVE-002") as lost:
        found.check()
    assert "drop='s.b'" in str(lost.value)
    found.check(drop="s.b")


@OF
def test_an_aggregate_has_another_name(of: Any) -> None:
    found = versus(of(z=SUM, b=LOW, was_fields={"z": "a"}), of(a=SUM, b=LOW))
    found.check()
    assert lines(found) == ["operator  s: same", "value     s.z: renamed from a"]
    versus(of(z=SUM, was_fields={"z": "a"}), of(z=SUM)).check()  # it has been followed


@pytest.mark.parametrize(
    ("after", "before", "because"),
    [
        ({"z": "y"}, {"a": SUM}, "the aggregate 'z' says it was 'y', but what is stored has 'a'"),
        (
            {"z": "a"},
            {"a": SUM, "z": SUM},
            "the aggregate 'z' says it was 'a', but what is stored has 'z' as well",
        ),
    ],
)
def test_a_name_before_that_is_not_sure_is_refused(
    after: dict[str, str], before: dict[str, Any], because: str
) -> None:
    found = versus(running(z=SUM, since="restart", was_fields=after), running(**before))
    (refused,) = found.of("refused")
    assert (refused.because, refused.code) == (because, "HR-EVOLVE-003")


@pytest.mark.parametrize(
    "aggregate", [hr.max("v"), hr.sum("f"), hr.sum("v * 2"), hr.mean("v"), hr.count("v")]
)
def test_a_name_that_is_another_aggregate_now_is_refused(aggregate: Any) -> None:
    for said in ({}, {"since": "restart"}):
        (refused,) = versus(running(a=aggregate, **said), running(a=SUM)).of("refused")
        assert "the aggregate 'a' was " in refused.because
    renamed = versus(running(z=aggregate, was_fields={"z": "a"}), running(a=SUM))
    assert "the aggregate 'z' was " in renamed.of("refused")[0].because


@pytest.mark.parametrize(
    ("aggregate", "wider"),
    [(hr.min, True), (hr.collect, True), (hr.first, True), (hr.count_distinct, True),
     (hr.sum, False), (hr.mean, False)],
)  # fmt: skip
def test_wider_columns_are_wider_aggregates(aggregate: Any, wider: bool) -> None:
    wide, build = SCHEMA.replace("int", "bigint", 1), running(a=aggregate("v"))
    found = versus(build, build, wide)
    found.check()
    told = "value     s.a: widened from int to bigint"
    assert lines(found) == ["operator  s: same", *([told] if wider else [])]
    assert bool(compare(program(build), describe(program(build, wide))).of("refused")) == wider


ROWS_STORED = {
    "last rows": hr.sliding(rows=4, every_rows=2),
    "last while": hr.sliding("10s", every_rows=2),
    "ticks": hr.sliding(rows=3, every="5s"),
}


@pytest.mark.parametrize("window", ROWS_STORED.values(), ids=[*ROWS_STORED])
def test_windows_that_store_rows_can_only_lose_aggregates(window: Any) -> None:
    before = windowed(window, a=SUM, b=LOW)
    for after in (
        windowed(window, a=SUM, b=LOW, c=hr.max("f"), since="restart"),
        windowed(window, z=SUM, b=LOW, was_fields={"z": "a"}),
    ):
        (refused,) = versus(after, before).of("refused")
        assert "its windows store rows" in refused.because
    versus(windowed(window, a=SUM), before).check(drop="s.b")
    versus(windowed(window, b=LOW, a=SUM), before).check()


def test_what_may_be_taken_back_can_only_lose_aggregates() -> None:
    def retracting(**aggs: Any) -> Build:
        said = {"lateness": "1m", "mode": "retract"}
        return lambda rows: rows.window(TEN, **said).agg(name="s", **aggs)

    (refused,) = versus(retracting(a=SUM, b=LOW, since="restart"), retracting(a=SUM)).of("refused")
    assert 'mode="retract"' in refused.because
    versus(retracting(a=SUM), retracting(a=SUM, b=LOW)).check(drop="s.b")


def test_a_step_without_a_name_is_not_changed() -> None:
    for after in (
        running(None, a=SUM, b=LOW, c=hr.max("v"), since="restart"),
        running(None, a=SUM),
        running(None, b=LOW, a=SUM),
        running(None, z=SUM, b=LOW, was_fields={"z": "a"}),
    ):
        (refused,) = versus(after, running(None, a=SUM, b=LOW)).of("refused")
        assert refused.code == "HR-EVOLVE-005" and "name='rows.agg'" in refused.hint


def test_a_window_with_a_trigger_now_is_another_one_whatever_it_computes() -> None:
    late = lambda rows: rows.window(TEN, lateness="1s").agg(name="s", a=SUM, b=LOW, since="restart")  # noqa: E731
    (refused,) = versus(late, windowed(a=SUM)).of("refused")
    assert "its windows and its aggregates are others: change them one" in refused.because


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"since": "monday"}, "HR-AGG-018"),
        ({"was_fields": {"b": "a"}}, "HR-PLAN-039"),
        ({"was_fields": {"a": "b", "c": "b"}}, "HR-PLAN-039"),
    ],
)
def test_what_is_said_wrongly_is_refused(said: dict[str, Any], code: str) -> None:
    with pytest.raises(hr.PlanError, match=code):
        program(running(a=SUM, c=LOW, **said))


def test_results_may_be_called_like_the_options() -> None:
    made = program(running(since=SUM, was_fields=LOW))
    assert {"since", "was_fields"} <= {*made.nodes["s"].schema.names}


# Computed of past rows, too: what can be known from the program alone.


def new_of_past(build: Callable[..., Build], **said: Any) -> Comparison:
    aggs = {"a": SUM, **said}
    return versus(build(**aggs, b=LOW, since="beginning"), build(**aggs))


@OF
def test_a_new_aggregate_may_be_computed_of_past_rows(of: Any) -> None:
    allowed = new_of_past(of)
    allowed.check()
    assert lines(allowed) == [
        "operator  s: same",
        "value     s.b: new and computed of all rows, 'rows' read again",
    ]


WINDOWS_OF_PAST: dict[str, tuple[Build, str]] = {
    "delta": (
        lambda rows, **a: rows.window(TEN, lateness="1s", mode="delta").agg(name="s", **a),
        'with mode="delta" it counts since a window last fired',
    ),
    "rows": (
        lambda rows, **a: rows.window(hr.tumbling(rows=3)).agg(name="s", **a),
        "where its windows end depends on the order in which rows came",
    ),
    "by the clock": (
        lambda rows, **a: rows.window(TEN, time="processing").agg(name="s", **a),
        "its windows go by the clock",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("build", "because"), WINDOWS_OF_PAST.values(), ids=[*WINDOWS_OF_PAST])
def test_windows_that_depend_on_when_rows_came(build: Any, because: str) -> None:
    (refused,) = new_of_past(lambda **a: lambda rows: build(rows, **a)).of("refused")
    assert because in refused.because and 'since="restart"' in refused.hint


def _date(rows: hr.Stream) -> hr.Stream:
    return rows.where("cast(k as date) < current_date()")


def _async(rows: hr.Stream) -> hr.Stream:
    async def asked(row: Any) -> dict[str, Any]:
        return {"k": row.k, "v": row.v}

    return rows.map_async(asked, output="k string, v int")


BEFORE: dict[str, tuple[Callable[[hr.Stream], hr.Stream], str]] = {
    "state": (
        lambda rows: rows.key_by("k").deduplicate(within="1m", name="once"),
        "the step 'once' before it has state",
    ),
    "the date": (_date, "uses current_date()"),
    "calls": (_async, "asks elsewhere"),
    "a tap": (lambda rows: rows.tap(print), "is a tap"),
}


@pytest.mark.parametrize(("step", "because"), BEFORE.values(), ids=[*BEFORE])
def test_steps_before_it_that_may_do_another_thing_now(step: Any, because: str) -> None:
    def of(**aggs: Any) -> Any:
        job = hr.Job("j")
        rows = job.read("log:nowhere", schema=SCHEMA, time="at", delay="1s", name="rows")
        found = step(rows).key_by("k").agg(unbounded=True, name="s", **aggs)
        found.write("log:out", name="out")
        return job.program()

    found = compare(of(a=SUM, b=LOW, since="beginning"), describe(of(a=SUM)))
    (refused,) = found.of("refused")
    assert "the aggregate 'b' is new, and cannot be computed of past rows" in refused.because
    assert because in refused.because


def test_time_of_reading_cannot_be_had_again() -> None:
    def of(**aggs: Any) -> Any:
        job = hr.Job("j")
        rows = job.read("log:nowhere", schema=SCHEMA, time=hr.ingestion(), name="rows")
        rows.key_by("k").window(TEN).agg(name="s", **aggs).write("log:out", name="out")
        return job.program()

    found = compare(of(a=SUM, b=LOW, since="beginning"), describe(of(a=SUM)))
    assert "the event time of 'rows' is the clock's" in found.of("refused")[0].because


def test_something_that_is_stored_must_prove_it() -> None:
    sketch = hr.approx_count_distinct("v")
    found = versus(running(z=SUM, since="beginning"), running(a=SUM, b=LOW))
    assert "nothing could prove" in found.of("refused")[0].because
    found = versus(running(a=sketch, z=SUM, since="beginning"), running(a=sketch))
    assert "nothing could prove" in found.of("refused")[0].because
    versus(running(a=sketch, b=LOW, z=SUM, since="beginning"), running(a=sketch, b=LOW)).check()


def test_what_stores_no_partials_is_refused_whatever_is_said() -> None:
    for window in ROWS_STORED.values():
        (refused,) = new_of_past(lambda w=window, **a: windowed(w, **a)).of("refused")
        assert "its windows store rows" in refused.because
