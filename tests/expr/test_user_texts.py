"""Functions that users reach for: Spark, given the user's own text, computes the same values."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import PlanError
from headrace.expr import as_expr, parsed, same
from headrace.expr.catalog import names
from headrace.kernel import infer
from headrace.schema import schema_of
from tests.expr.golden_texts import GOLDEN
from tests.expr.spark_oracle import by_kernel as outcomes
from tests.expr.test_agreement import by_kernel, close, guarded, with_rows
from tests.expr.user_texts import FAILING, FAMILIES, REFUSED

SCHEMA = schema_of("s string, d bigint, n int, x double, p decimal(10,2), at timestamp, day date, "
                   "xs array<bigint>")  # fmt: skip


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    return own


def as_written(session: Any, table: pa.Table, texts: dict[str, set[int]]) -> pa.Table:
    """What Spark makes of each text, but on the rows where it is expected to fail."""
    wanted = [f"{guarded(f'({t})', bad)} AS r{i}" for i, (t, bad) in enumerate(texts.items())]
    return with_rows(session, table).selectExpr(*wanted).toArrow()


@pytest.mark.spark
@pytest.mark.parametrize("family", FAMILIES)
def test_spark_agrees_on_the_text_as_it_is_written(family, session):
    table, texts = FAMILIES[family]
    ours = {text: by_kernel(table, text) for text in texts}
    theirs = as_written(session, table, {text: bad for text, (_, bad) in ours.items()})
    assert [
        (text, row, a, b)
        for i, (text, (values, _)) in enumerate(ours.items())
        for row, (a, b) in enumerate(zip(values, theirs.column(i).to_pylist(), strict=True))
        if not alike(a, b)
    ] == []
    types = [infer({"r": parsed(t)}, table.schema).field(0).type for t in texts]
    pairs = zip(texts, types, theirs.schema.types, strict=True)
    assert [(t, a, b) for t, a, b in pairs if plain(a) != plain(b)] == []


def alike(a: Any, b: Any) -> bool:
    """Close, and zeros have the same sign."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    zeros = isinstance(a, float) and isinstance(b, float) and a == b == 0
    return close(a, b) and not (zeros and math.copysign(1, a) != math.copysign(1, b))


def plain(t: pa.DataType) -> str:
    """A type without what Arrow and Spark name differently."""
    return str(t).replace("element:", "item:").replace(" not null", "")


@pytest.mark.spark
@pytest.mark.parametrize("family", FAILING)
def test_spark_fails_on_the_rows_that_fail(family, session):
    table, texts = FAILING[family]
    frame = with_rows(session, table)
    for text in texts:
        values, bad = by_kernel(table, text)
        assert bad, f"{text} never fails"
        made = as_written(session, table, {text: bad}).column(0).to_pylist()
        assert all(map(close, values, made)), text
        for row in bad:
            with pytest.raises(Exception, match=r"ARITHMETIC|PARSE|CAST|RANGE|OVERFLOW"):
                frame.where(f"row = {row}").selectExpr(f"{text} AS r").collect()


@pytest.mark.parametrize("family", GOLDEN)
def test_no_row_fails_where_spark_has_a_value(family):
    table, texts = GOLDEN[family]
    assert [text for text in texts if by_kernel(table, text)[1]] == []


@pytest.mark.parametrize(
    "text", ["lpad(s, 2147483647, 'x')", "rpad(s, n, 'x')", "repeat(s, n)",
             "repeat('ab', 16777216)", "lpad('a', 2147483647, 'x')", "repeat('x', n)"])  # fmt: skip
def test_text_beyond_all_measure_fails_the_row(text):
    table = pa.table({"s": ["a"], "n": pa.array([2**31 - 1], pa.int32())})
    assert "makes more than 16777216 characters" in str(outcomes(table, text))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_is_shown_as_one_that_is_read_as_the_same_tree(family):
    for text in FAMILIES[family][1]:
        made = parsed(text)
        assert same(parsed(made.sql()), made), text


@pytest.mark.parametrize(("text", "said"), REFUSED, ids=[t for t, _ in REFUSED])
def test_what_cannot_be_equal_is_refused_by_name(text, said):
    with pytest.raises(PlanError, match=r"HR-EXPR-00[34]") as error:
        as_expr(text, SCHEMA)
    assert said in str(error.value)


def test_there_are_texts_for_every_function_with_a_lambda():
    assert {"transform", "filter", "exists", "forall", "aggregate", "zip_with"} <= set(names())
