"""Names that other systems have are answered with ours, and still are AttributeErrors."""

from __future__ import annotations

import copy
import inspect

import pytest

import headrace as hr
from headrace.api.topology import BoltInputs
from headrace.errors import PlanError
from headrace.expr import as_expr
from headrace.hints import _ELSEWHERE, AGGREGATES, UnknownNameError
from headrace.ops.agg.kinds import KINDS
from headrace.schema import schema_of
from tests.ops.aggregate_model import AGGS


def stream():
    return hr.Job("hints").read(hr.rows([{"a": 1}], "a int"))


def windows():
    return stream().key_by("a").window(hr.tumbling(rows=2)).agg(n=hr.count())


@pytest.mark.parametrize(
    ("get", "hint"),
    [
        (lambda: hr.average, "Did you mean mean?"),
        (lambda: hr.udf, "It is a method of streams: stream.map(...)."),
        (lambda: hr.desc, "A stream has no end, so it is not sorted: top(n, by=...) holds"),
        (lambda: hr.tumble, "Did you mean tumbling?"),
        (lambda: hr.meen, "Did you mean mean"),
        (lambda: stream().group_by("a"), "Did you mean key_by?"),
        (lambda: stream().withColumn, 'Use with_columns(x="v + 1")'),
        (lambda: stream().groupBy("a").count(), "Did you mean key_by?"),
        (lambda: stream().key_by("a").count(), "Use agg(x=hr.count()) on a key or a window."),
        (lambda: stream().window(hr.tumbling("1s")).sum("a"), 'Use agg(x=hr.sum("x")) on a key'),
        (lambda: stream().orderBy("a"), "A stream has no end"),
        (lambda: stream().dropna(), 'Use where("x is not null")'),
        (lambda: stream().assign(b=1), "Use with_columns("),
        (lambda: stream().apply(len), "Did you mean map?"),
        (lambda: stream().take(5), "Use head(n) to look at rows, limit(n)"),
        (lambda: stream().toPandas(), "Use head(n), which returns an Arrow table"),
        (lambda: stream().withColumnRenamed("a", "b"), 'Use rename(new="old")'),
        (lambda: hr.explode("xs"), "It is a method of streams: stream.explode(...)."),
        (lambda: hr.quantile("a", 0.5), 'Use hr.percentile("v", 0.95)'),
        (lambda: hr.Job("x").run(), "Use hr.run(job)."),
        (lambda: hr.Job("x").readStream, "An input is job.read("),
        (lambda: stream().wirte, "Did you mean write"),
        (lambda: stream().avg("a"), 'Use agg(x=hr.mean("x")) on a key or a window.'),
        (lambda: stream().key_by("a").avg("a"), 'Use agg(x=hr.mean("x")) on a key or a window.'),
        (lambda: stream().key_by("a").windowed("5s"), "Did you mean window?"),
    ],
)
def test_a_name_that_is_not_offered_comes_with_the_one_that_is(get, hint):
    with pytest.raises(AttributeError) as caught:
        get()
    assert isinstance(caught.value, UnknownNameError)
    assert caught.value.code == "HR-PLAN-060"
    assert (caught.value.hint or "").startswith(hint)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("avg(a)", "hr.mean is an aggregate"),
        ("sum(a)", "hr.sum is an aggregate"),
        ("strpos('a', 'b')", "Did you mean instr?"),
        ("uper('a')", "Did you mean upper"),
    ],
)
def test_a_function_that_is_not_offered_comes_with_the_one_that_is(text, hint):
    with pytest.raises(PlanError) as caught:
        as_expr(text, schema_of("a int"))
    assert caught.value.code == "HR-EXPR-002"
    assert (caught.value.hint or "").startswith(hint)


def test_the_expression_says_what_a_column_can_do():
    with pytest.raises(AttributeError, match="did you mean cast"):
        hr.col("a").astype("int")


def test_what_only_a_stream_without_key_has_says_where_to_call_it():
    with pytest.raises(AttributeError, match="Call it before key_by") as caught:
        stream().key_by("a").map(len)
    assert isinstance(caught.value, PlanError) and caught.value.code == "HR-PLAN-060"


def test_asking_whether_there_is_a_name_and_copying_work():
    one = stream()
    assert not hasattr(one, "group_by") and not hasattr(hr, "average")
    assert getattr(one, "nothing", 5) == 5
    assert copy.copy(one).schema == one.schema
    assert not hasattr(one, "__array__")


def test_every_hint_leads_somewhere():
    kinds = (hr, hr.Stream, hr.KeyedStream, hr.Expr, hr.Topology, BoltInputs)
    assert {n for n in _ELSEWHERE.values() if not any(hasattr(k, n) for k in kinds)} == set()


@pytest.mark.parametrize(
    ("call", "method", "hint"),
    [
        (lambda: stream().map_async(len, schema="a int"), "map_async", "Pass output=."),
        (lambda: stream().map(len, output="a int"), "map", "Pass schema=."),
        (lambda: stream().flat_map(len, output="a int"), "flat_map", "Pass schema=."),
        (lambda: stream().key_by("a").process(len, schema="a int"), "process", "Pass output=."),
        (lambda: stream().key_by("a").fold(0, len, output="a int"), "fold", "Pass schema=."),
        (lambda: stream().match(schema="a int"), "match", "Pass output=."),
        (lambda: stream().map(len, nane="x"), "map", "Pass name=."),
        (lambda: stream().union(stream(), zzz=1), "union", "It takes "),
        (lambda: stream().key_by("a").top(1, by="a", per="a"), "top", "Pass each=."),
        (lambda: windows().top(1, by="n", each="a"), "top", "Pass per=."),
    ],
)
def test_an_argument_that_a_method_does_not_have_comes_with_the_one_that_it_has(call, method, hint):
    with pytest.raises(TypeError) as caught:
        call()
    error = caught.value
    assert isinstance(error, PlanError)
    assert (error.code, error.site.line > 0) == ("HR-PLAN-061", True)
    assert f"{method} has no argument " in error.message
    assert error.hint.startswith(hint)


def test_methods_are_still_described_as_they_were_written():
    assert "concurrency" in inspect.signature(hr.Stream.map_async).parameters


def test_every_aggregate_is_known_to_hints_and_to_the_model() -> None:
    assert {*KINDS, "median"} == AGGREGATES
    assert {agg.kind for agg in AGGS.values()} == set(KINDS)
    assert all(name in hr.__all__ for name in KINDS)


@pytest.mark.parametrize(
    ("build", "hint"),
    [
        (lambda s: s.rename({"a": "b"}), 'Write rename(b="a").'),
        (lambda s: s.rename(a="b"), 'Write rename(b="a").'),
        (lambda s: s.rename("a", "b"), 'Write rename(new="old").'),
    ],
)
def test_rename_says_which_name_comes_first(build, hint):
    job = hr.Job("names")
    build(job.read(hr.rows([{"a": 1}]))).write("collect:")
    with pytest.raises(PlanError) as caught:
        job.check()
    assert (caught.value.code, caught.value.hint) == ("HR-PLAN-062", hint)


def test_a_text_that_is_taken_for_a_column_hints_at_lit():
    with pytest.raises(PlanError, match=r"If it is a text: hr.lit\('!!!'\)"):
        as_expr(lambda r: hr.concat(r.word, "!!!"), schema_of("word string"))
