"""DuckDB and Spark give the same values for every function, on the values that are hard."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

from headrace.expr import parsed
from headrace.expr.catalog import names
from headrace.kernel import SelectStep, compile_chain, infer
from tests.expr.hard_cases import FAILING, FRAMES
from tests.expr.spark_lowering import to_spark_sql
from tests.expr.user_texts import FAMILIES

NEWER = "ƛɤꟓꟕ"  # got an upper case in Unicode 16 or 17, which Spark knows and DuckDB does not

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    return own


def by_kernel(table: pa.Table, text: str) -> tuple[list[Any], set[int]]:
    """The value of each row, and the rows that fail (their value is None)."""
    kernel = compile_chain([SelectStep(columns=(("r", parsed(text)),))], table.schema)
    good, bad = kernel.run(table)
    assert good.schema == infer({"r": parsed(text)}, table.schema)
    failed = {row for row, _ in bad}
    values = iter(good.column("r").to_pylist())
    return [None if row in failed else next(values) for row in range(table.num_rows)], failed


def by_spark(
    session: Any, table: pa.Table, expressions: dict[str, set[int]]
) -> dict[str, list[Any]]:
    """The values of each expression but on the rows where it is expected to fail."""
    frame = with_rows(session, table)
    wanted = [guarded(to_spark_sql(parsed(e), table.schema), bad) for e, bad in expressions.items()]
    made = frame.selectExpr(*(f"{sql} AS r{i}" for i, sql in enumerate(wanted))).toArrow()
    return {e: made.column(i).to_pylist() for i, e in enumerate(expressions)}


def with_rows(session: Any, table: pa.Table) -> Any:
    return session.createDataFrame(table.append_column("row", pa.array(range(table.num_rows))))


def guarded(sql: str, bad: set[int]) -> str:
    return f"CASE WHEN row NOT IN ({', '.join(map(str, bad))}) THEN {sql} END" if bad else sql


def close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-14) or a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    return bool(a == b) and type(a) is type(b)


def differences(table: pa.Table, expressions: list[str], session: Any) -> list[Any]:
    ours = {text: by_kernel(table, text) for text in expressions}
    theirs = by_spark(session, table, {text: bad for text, (_, bad) in ours.items()})
    return [
        (text, row, a, b)
        for text, (values, _) in ours.items()
        for row, (a, b) in enumerate(zip(values, theirs[text], strict=True))
        if not close(a, b)
    ]


@pytest.mark.parametrize("name", FRAMES)
def test_both_engines_agree_on_every_expression(name, session):
    table, expressions = FRAMES[name]
    assert differences(table, expressions, session) == []


def fails(frame: Any, sql: str, row: int) -> bool:
    try:
        frame.where(f"row = {row}").selectExpr(f"{sql} AS r").collect()
    except Exception as error:  # PySpark has one class per kind of failure
        assert "Analysis" not in type(error).__name__, error
        return True
    return False


@pytest.mark.parametrize("name", FAILING)
def test_both_engines_fail_on_the_same_rows(name, session):
    table = FRAMES[name][0]
    frame = with_rows(session, table)
    assert differences(table, FAILING[name], session) == []  # where DuckDB works, Spark does
    for text in FAILING[name]:
        bad = sorted(by_kernel(table, text)[1])
        assert bad, f"{text} never fails"
        sql = to_spark_sql(parsed(text), table.schema)
        assert all(fails(frame, sql, row) for row in {bad[0], bad[-1]}), (text, bad)


def test_case_and_length_agree_on_every_character_python_knows(session):
    points = [*range(1, 0xD800), *range(0xE000, 0x1F000)]
    known = [c for c in map(chr, points) if unicodedata.category(c) != "Cn" and c not in NEWER]
    table = pa.table({"s": [f"a{c}b" for c in known]})
    wanted = ["upper(s)", "lower(s)", "length(s)", "reverse(s)", "substring(s, 2, 1)",
              "lpad(s, 5, 'é')", "s ilike 'A%B'", "ascii(substring(s, 2))", "trim(s)",
              "octet_length(s)"]  # fmt: skip
    assert differences(table, wanted, session) == []


def test_every_function_of_the_catalogue_is_compared():
    called = {
        node.this
        for _, expressions in (*FRAMES.values(), *FAMILIES.values())
        for e in expressions
        for node in parsed(e).node.find_all(exp.Anonymous)
    }
    elsewhere = {"get_json_object", "current_date"}  # test_json_object, test_current_date
    assert set(names()) - called == elsewhere
