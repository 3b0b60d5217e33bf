"""One tree: operators, SQL text and lambdas build the same expression, and it survives travel."""

from __future__ import annotations

import datetime as dt
import decimal
import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.expr import Expr, Untraceable, as_expr, call, col, lit, parsed, same
from headrace.schema import schema_of

SCHEMA = schema_of(
    "t double, n int, area string, ok boolean, at timestamp, day date, tags array<string>, "
    "home struct<city string, zip int>, m map<string, int>, `odd name` int, `select` int"
)
UTC = dt.UTC
SINCE = dt.datetime(2024, 1, 1, tzinfo=UTC)

SPELLINGS = [
    (col("t") > 40, "t > 40", lambda e: e.t > 40),
    (col("t") >= -1.5, "t >= -1.5", lambda e: e.t >= -1.5),
    (col("t") < 40, "t < 40", lambda e: e.t < 40),
    ((col("n") + 1) * 2, "(n + 1) * 2", lambda e: (e.n + 1) * 2),
    (col("n") + 1 * col("n"), "n + 1 * n", lambda e: e.n + 1 * e.n),
    (1 - col("n"), "1 - n", lambda e: 1 - e.n),
    (col("n") / 2, "n / 2", lambda e: e.n / 2),
    (-col("n"), "-n", lambda e: -e.n),
    (abs(col("n")), "abs(n)", lambda e: abs(e.n)),
    (col("n") % 3, "floor_mod(n, 3)", lambda e: e.n % 3),
    (col("n") // 3, "floor_div(n, 3)", lambda e: e.n // 3),
    (col("n") ** 2, "pow(n, 2)", lambda e: e.n**2),
    ((col("n") > 1) & (col("t") < 2), "n > 1 and t < 2", lambda e: (e.n > 1) & (e.t < 2)),
    ((col("n") > 1) | ~col("ok"), "n > 1 or not ok", lambda e: (e.n > 1) | ~e.ok),
    (col("n") == None, "n is null", lambda e: e.n == None),  # noqa: E711
    (col("n") != None, "n is not null", lambda e: e.n != None),  # noqa: E711
    (col("area") != "x", "area <> 'x'", lambda e: e.area != "x"),
    (col("n").between(1, 5), "n between 1 and 5", lambda e: e.n.between(1, 5)),
    (col("n").isin(1, 2), "n in (1, 2)", lambda e: e.n.isin([1, 2])),
    (col("n").eq_null(3), "n <=> 3", lambda e: e.n.eq_null(3)),
    (col("area").upper(), "upper(area)", lambda e: e.area.upper()),
    (col("area").upper(), "UCASE(area)", lambda e: e["area"].upper()),
    (col("area").startswith("a"), "startswith(area, 'a')", lambda e: e.area.startswith("a")),
    (col("area").like("a%"), "area like 'a%'", lambda e: e.area.like("a%")),
    (col("area").rlike(r"\d"), r"area rlike '\\d'", lambda e: e.area.rlike(r"\d")),
    (col("area").substring(1, 2), "substr(area, 1, 2)", lambda e: e.area.substring(1, 2)),
    (col("t").round(1), "round(t, 1)", lambda e: e.t.round(1)),
    (col("n").cast("bigint"), "cast(n as bigint)", lambda e: e.n.cast("long")),
    (col("n").cast(float), "n::double", lambda e: e.n.cast(float)),
    (col("n").try_cast("tinyint"), "try_cast(n as tinyint)", lambda e: e.n.try_cast("tinyint")),
    (col("n").fill_null(0), "coalesce(n, 0)", lambda e: e.n.fill_null(0)),
    (col("home")["city"], "home.city", lambda e: e.home.city),
    (col("home").field("zip"), "home['zip']", lambda e: e["home"]["zip"]),
    (col("m")["k"], "m['k']", lambda e: e.m["k"]),
    (col("tags")[0], "tags[0]", lambda e: e.tags[0]),
    (col("tags")[-1], "element_at(tags, -1)", lambda e: e.tags[-1]),
    (col("odd name") + col("select"), "`odd name` + `select`", lambda e: e["odd name"] + e.select),
    (col("at") > dt.datetime(2024, 1, 1, tzinfo=UTC), "at > timestamp '2024-01-01'",
     lambda e: e.at > SINCE),
    (col("day") == dt.date(2024, 2, 29), "day = date '2024-02-29'", None),
    (col("at") + dt.timedelta(seconds=1), "at + interval 1000000 microseconds", None),
    (col("area") + "x", "area + 'x'", lambda e: e.area + "x"),
    (lit(True), "true", lambda e: True),
    (call("if", col("ok"), 1, 2), "if(ok, 1, 2)", None),
    (lit(2**40), "1099511627776", None),
    (lit(1e300), "1e300", None),
    (lit("it's"), "'it''s'", None),
    (lit(decimal.Decimal("1.50")), "cast('1.50' as decimal(3,2))", None),
    (lit([1, 2]), "array(1, 2)", None),
    (col("n").alias("x"), "n as x", None),
]  # fmt: skip


@pytest.mark.parametrize(("built", "text", "function"), SPELLINGS, ids=[s[1] for s in SPELLINGS])
def test_operators_text_and_lambda_are_one_tree(built, text, function):
    assert same(built, parsed(text))
    assert same(built, as_expr(text, SCHEMA))
    assert hash(built) == hash(parsed(text))
    if function is not None:
        assert same(built, as_expr(function, SCHEMA))


@pytest.mark.parametrize("text", [s[1] for s in SPELLINGS])
def test_an_expression_survives_its_own_text_and_a_pickle(text):
    expr = parsed(text)
    assert same(parsed(expr.sql()), expr)
    assert same(pickle.loads(pickle.dumps(expr)), expr)


NAMES = st.text(min_size=1, max_size=6).filter(lambda s: not s.startswith("__"))
LEAVES = st.one_of(
    NAMES.map(col),
    st.integers(-(2**63), 2**63 - 1).map(lit),
    st.floats(allow_nan=False).map(lit),
    st.text(max_size=8).map(lit),
    st.booleans().map(lit),
    st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)).map(lit),
    st.dates().map(lit),
    st.none().map(lit),
    st.decimals(-(10**9), 10**9, places=3).map(lit),
    st.binary(max_size=4).map(lit),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] / p[1]),
        st.tuples(inner, inner).map(lambda p: (p[0] < p[1]) | ~(p[0] == p[1])),
        st.tuples(inner, inner, inner).map(lambda p: p[0].between(p[1], p[2])),
        st.tuples(inner, inner).map(lambda p: p[0].isin(p[1], 3)),
        st.tuples(inner, NAMES).map(lambda p: p[0].field(p[1])),
        st.tuples(inner, inner).map(lambda p: call("concat", *p)),
        inner.map(lambda e: -e),
        inner.map(lambda e: e.is_null()),
        inner.map(lambda e: e.cast("decimal(10,2)")),
        inner.map(lambda e: e.try_cast("array<int>")),
        inner.map(lambda e: e[0]),
    ),
    max_leaves=8,
)


@given(TREES)
@settings(max_examples=200, deadline=None)
def test_any_tree_reads_back_from_its_text(expr):
    assert same(parsed(expr.sql()), expr)


def test_an_expression_knows_its_columns_and_name():
    assert parsed("a + b.c * upper(d)").columns == {"a", "b", "d"}
    assert col("a").name == "a"
    assert col("a").field("b").name == "b"
    assert (col("a") + 1).name is None
    assert (col("a") + 1).alias("c").name == "c"


def test_building_on_an_expression_leaves_it_as_it_was():
    base = col("a")
    before = base.sql()
    _ = (base + 1, base * 2, base.alias("b"), base.field("x"))
    assert base.sql() == before


def test_an_alias_inside_a_larger_expression_is_dropped():
    assert same(col("a").alias("x") + 1, parsed("a + 1"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "HR-EXPR-004"),
        ("t >", "HR-EXPR-004"),
        ("t > 1; n > 2", "HR-EXPR-004"),
        ("t, n", "HR-EXPR-004"),
        ("(select 1)", "HR-EXPR-004"),
        ("sum(t) over ()", "HR-EXPR-004"),
        ("count(*)", "HR-EXPR-002"),
        ("date '2024-02-30'", "HR-EXPR-004"),
        ("at + interval 1 fortnight", "HR-EXPR-004"),
        ("n in (select 1)", "HR-EXPR-004"),
        ("tt > 1", "HR-EXPR-001"),
        ("T > 1", "HR-EXPR-001"),
        ("home.town", "HR-EXPR-001"),
        ("uper(area)", "HR-EXPR-002"),
        ("count(n)", "HR-EXPR-002"),
        ("upper(t)", "HR-EXPR-003"),
        ("upper(area, area)", "HR-EXPR-003"),
        ("t > area", "HR-EXPR-003"),
        ("area + 1", "HR-EXPR-003"),
        ("n and ok", "HR-EXPR-003"),
        ("not t", "HR-EXPR-003"),
        ("-area", "HR-EXPR-003"),
        ("t.x", "HR-EXPR-003"),
        ("t[0]", "HR-EXPR-003"),
        ("tags = tags", "HR-EXPR-003"),
        ("home > home", "HR-EXPR-003"),
        ("at - at", "HR-EXPR-003"),
        ("n + interval 1 day", "HR-EXPR-003"),
        ("interval 1 day", "HR-EXPR-003"),
        ("null", "HR-EXPR-003"),
        ("t is n", "HR-EXPR-004"),
        ("99999999999999999999", "HR-EXPR-003"),
        ("cast(t as string)", "HR-EXPR-003"),
        ("cast(at as bigint)", "HR-EXPR-003"),
        ("cast(tags as string)", "HR-EXPR-003"),
        ("case when ok then 1 else 'a' end", "HR-EXPR-003"),
        ("coalesce(n, area)", "HR-EXPR-003"),
        ("round(t, n)", "HR-EXPR-003"),
        ("date_trunc('eon', at)", "HR-EXPR-003"),
        ("date_trunc(area, at)", "HR-EXPR-003"),
        ("from_utc_timestamp(at, 'Mars/Base')", "HR-EXPR-003"),
        ("from_utc_timestamp(at, '+01:00')", "HR-EXPR-003"),
        ("date_format(at, 'EEEE')", "HR-EXPR-003"),
        ("split(area, '')", "HR-EXPR-003"),
        ("like(area, area)", "HR-EXPR-003"),
        (r"area like 'a\\b'", "HR-EXPR-003"),
        (r"area rlike '\\bword'", "HR-EXPR-003"),
        ("area rlike '(?=x)'", "HR-EXPR-003"),
        (r"area rlike '(a)\\1'", "HR-EXPR-003"),
        ("area rlike '(?i)x'", "HR-EXPR-003"),
        ("area rlike '(x'", "HR-EXPR-003"),
        ("area rlike '[[:alpha:]]'", "HR-EXPR-003"),
        ("area rlike 'a**'", "HR-EXPR-003"),
        ("area rlike 'a*+'", "HR-EXPR-003"),
        ("regexp_replace(area, 'x*', '-')", "HR-EXPR-003"),
        ("regexp_replace(area, 'x', '$0')", "HR-EXPR-003"),
        ("regexp_extract(area, 'x', 1)", "HR-EXPR-003"),
        ("json_text(area, 'a.b')", "HR-EXPR-003"),
        ("unhex('abc')", "HR-EXPR-003"),
        ("element_at(m, 1)", "HR-EXPR-003"),
        ("array_join(array(1), ',')", "HR-EXPR-003"),
        ("named_struct('a')", "HR-EXPR-003"),
        ("octet_length(n)", "HR-EXPR-003"),
        ("year(n)", "HR-EXPR-003"),
    ],
)
def test_a_wrong_expression_is_refused_when_it_is_built(text, code):
    with pytest.raises(PlanError) as caught:
        as_expr(text, SCHEMA)
    assert caught.value.code == code
    assert caught.value.hint
    assert not caught.value.message.endswith(".")


def test_an_unknown_name_comes_with_the_nearest_ones():
    with pytest.raises(PlanError) as column:
        as_expr("aera = 'x'", SCHEMA)
    assert "'area'" in (column.value.hint or "")
    with pytest.raises(PlanError) as function:
        as_expr("uper(area)", SCHEMA)
    assert "upper" in (function.value.hint or "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t > area", "in 't > area': double and string do not go together"),
        ("upper(t)", "upper takes text, not double"),
        ("n and ok", "in 'n': it is int, not a condition"),
        ("left(area)", "left takes 2 arguments, not 1"),
    ],
)
def test_a_type_error_speaks_of_the_users_columns(text, words):
    with pytest.raises(PlanError) as caught:
        as_expr(text, SCHEMA)
    assert words in caught.value.message


def test_a_value_that_no_column_holds_is_refused():
    with pytest.raises(PlanError) as caught:
        lit(object())
    assert caught.value.code == "HR-EXPR-003"


def test_an_expression_is_never_taken_for_a_value():
    for use in (bool, len, int, float, list, round, lambda e: 1 in e, lambda e: [0][e]):
        with pytest.raises(Untraceable):
            use(col("a"))


def test_an_unknown_method_names_the_nearest():
    with pytest.raises(AttributeError, match="upper"):
        col("a").uper()


def test_an_expression_shows_itself():
    assert repr(col("a") + 1) == "Expr('`a` + 1')"
    assert str(col("a") + 1) == "`a` + 1"
    assert f"{col('a')}" == "Expr('`a`')"


def test_a_column_name_is_a_column_even_if_it_looks_like_sql():
    schema = pa.schema([("a + b", pa.int64())])
    assert same(as_expr("a + b", schema), col("a + b"))


def test_literals_of_other_libraries_are_plain_values():
    import numpy as np

    assert same(lit(np.int64(5)), lit(5))
    assert same(lit(pa.scalar("x")), lit("x"))
    assert isinstance(lit(float("nan")), Expr)


@pytest.mark.parametrize("sign", ["or", "and"])
def test_a_long_chain_of_conditions_travels(sign):
    expr = parsed(f" {sign} ".join(f"n <> {i}" for i in range(150)))
    assert same(pickle.loads(pickle.dumps(expr)), expr)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (col("n") - 1 - 2, "`n` - 1 - 2"),
        (col("n") - (1 - col("n")), "`n` - (1 - `n`)"),
        (col("n") + 1 - 2 + col("n"), "`n` + 1 - 2 + `n`"),
        (col("n") - (1 + col("n")), "`n` - (1 + `n`)"),
        (col("ok") | (col("ok") | col("ok")), "`ok` OR (`ok` OR `ok`)"),
        (col("ok") | col("ok") & col("ok"), "`ok` OR (`ok` AND `ok`)"),
    ],
)
def test_only_what_is_read_from_the_left_needs_no_parentheses(expr, text):
    assert expr.sql() == text and same(parsed(text), expr)


@pytest.mark.parametrize(
    "text", ["(" * 500 + "n" + ")" * 500, " or ".join(["ok"] * 300), " or ".join(["ok"] * 9_000)]
)
def test_what_is_too_deep_is_refused(text):
    with pytest.raises(PlanError, match=r"HR-EXPR-004 .*too long, or nested too deep"):
        parsed(text)


def test_python_cannot_decide_by_a_column_where_a_program_is_written():
    with pytest.raises(PlanError, match="HR-EXPR-007") as caught:
        bool((col("a") > 1) and (col("b") > 1))
    assert caught.value.site is not None and caught.value.site.file == __file__
