"""DuckDB and Spark give the same values for every function, on the values that are hard."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import StepError
from headrace.expr import parsed
from headrace.expr_catalog import names
from headrace.kernel import SelectStep, compile_chain, infer, to_spark_sql

from tests.expr.hard_cases import FRAMES, INTEGERS, TEXTS, DOUBLES, TIMES

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    return own


def by_kernel(table: pa.Table, expressions: list[str]) -> pa.Table:
    columns = tuple((f"r{i}", parsed(e)) for i, e in enumerate(expressions))
    return compile_chain([SelectStep(columns=columns)], table.schema)(table)


def by_spark(session: Any, table: pa.Table, expressions: list[str]) -> pa.Table:
    frame = session.createDataFrame(table)
    wanted = [to_spark_sql(parsed(e), table.schema) + f" AS r{i}" for i, e in enumerate(expressions)]
    return frame.selectExpr(*wanted).toArrow()


def close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-14) or a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    return bool(a == b) and type(a) is type(b)


@pytest.mark.parametrize("name", FRAMES)
def test_both_engines_agree_on_every_expression(name, session):
    table, expressions = FRAMES[name]
    ours, theirs = by_kernel(table, expressions), by_spark(session, table, expressions)
    apart = [
        (text, row, a, b)
        for i, text in enumerate(expressions)
        for row, (a, b) in enumerate(
            zip(ours.column(i).to_pylist(), theirs.column(i).to_pylist(), strict=True)
        )
        if not close(a, b)
    ]
    assert apart == []
