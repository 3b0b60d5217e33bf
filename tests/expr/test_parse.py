"""What is read is read as Spark reads it; what is not read whole is refused."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.errors import PlanError
from headrace.expr import parsed
from headrace.expr.parse import _RULES, canonical


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("s not like 'a%'", "NOT like(s, 'a%')"),
        ("s not ilike 'a%'", "NOT ilike(s, 'a%')"),
        ("s not rlike 'a'", "NOT rlike(s, 'a')"),
        ("a not between 1 and 2", "NOT (a BETWEEN 1 AND 2)"),
        ("a is not null", "NOT (a IS NULL)"),
        ("a is distinct from b", "NOT (a IS NOT DISTINCT FROM b)"),
        ("s like 'a%' = b", "like(s, 'a%' = b)"),
        ("a = b < c", "(a = b) < c"),
        ("a < b = c", "(a < b) = c"),
        ("a || b + c", "concat(a, b) + c"),
        ("a + b || c", "concat(a + b, c)"),
        ("a = b is null", "(a = b) IS NULL"),
        ("not a = b and c", "(NOT (a = b)) AND c"),
        ("not a is null or c", "(NOT (a IS NULL)) OR c"),
        ("a between b and c = d", "a BETWEEN b AND (c = d)"),
        ("- a * b", "(-a) * b"),
        ("+a", "positive(a)"),
        ("1.5D + 2L", "1.5 + CAST(2 AS BIGINT)"),
    ],
)  # fmt: skip
def test_operators_bind_as_they_do_in_spark(text, tree):
    assert parsed(text).sql().replace("`", "") == tree


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("i between symmetric 9 and 1", "BETWEEN takes two values"),
        ("i between 1 2", "BETWEEN takes two values"),
        ("try_cast(s as int format 'x')", "FORMAT is not supported for try_cast"),
        ("cast(s as date format 'x')", "FORMAT is not supported"),
        ("a is null = b", "put parentheses around the condition before ="),
        ("a is null is null", "put parentheses"),
        ("s like 'a' like 'b'", "put parentheses"),
        ("a in (1) in (2)", "put parentheses"),
        ("a = not b", "an operand is missing"),
        ("a is b", "IS takes null, true, false or distinct from"),
        ("a in xs", "FIELD is not supported for IN"),
        ("s ! like 'x'", "unexpected "),
        ("f(distinct a)", "distinct is not supported"),
        ("a := 1", "unexpected "),
        ("a ** 2", "unexpected "),
        ("a ?? 2", "unexpected "),
        ("cast(s as time)", "there is no type 'time'"),
        ("s::datetime", "there is no type 'datetime'"),
        ("cast(s as int8)", "there is no type 'int8'"),
        ("cast(s as string collate utf8_lcase)", "there is no type 'string collate utf8_lcase'"),
        ("cast(s as timestamp without time zone)", "there is no type"),
        ("try_cast(s as array<time>)", "there is no type 'time'"),
        ("1e", "it is not a number"),
        *((text, "unexpected ") for text in ("s:a", "home:city", "1:a", "(s):a",
                                                           "x.y:z", "b notnull")),
        *((text, "unexpected word") for text in (
            "b isnull", "b foo", "n > 1 n", "not a b", "a is null b", "f(a b)",
            "struct(a b)", "transform(xs, x int -> x)", "a::int b", "a collate x", "a limit 1")),
        *((text, "a name (AS) is not supported") for text in ("(a as b) + 1", "upper(s as t)",
                                                           "case when (a as b) then 1 end")),
        ("extract(year(2) from a)", "the name of a part"),
    ],
)  # fmt: skip
def test_what_spark_would_not_read_is_refused(text, why):
    with pytest.raises(PlanError) as caught:
        parsed(text)
    assert caught.value.code == "HR-EXPR-004"
    assert why.lower() in caught.value.message.lower()


@pytest.mark.parametrize("text", ["b as c", "n > 1 as m", "b as isnull"])
def test_a_name_is_refused_where_it_would_be_without_use(text):
    def said(build):
        job = hr.Job("names")
        build(job.read(hr.rows([{"n": 1, "b": True}], "n int, b boolean"), name="in"))
        return str(job.explain())

    for build in (
        lambda rows: rows.where(text),
        lambda rows: rows.filter(text),
        lambda rows: rows.select(r=text),
        lambda rows: rows.with_columns(r=text),
        lambda rows: rows.key_by(r=text),
        lambda rows: rows.key_by("n").window(hr.everything()).agg(r=hr.max(text)),
    ):
        with pytest.raises(PlanError, match="would be without use here"):
            said(build)


@pytest.mark.parametrize("kind", _RULES, ids=lambda kind: kind.__name__)
def test_an_argument_that_no_rule_reads_is_refused(kind):
    """Whatever sqlglot may add to a node in a later version."""
    node = kind(something_new=True)
    with pytest.raises(PlanError) as caught:
        canonical(node, "a")
    assert "SOMETHING_NEW is not supported" in caught.value.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        ("'a\"\"b'", 'a""b'),
        ('"a""b"', 'a"b'),
        (r"'\u00e9\101\%\_\q\U0001F600\300'", "éA\\%\\_q😀300"),
        (r"'\t\n\r\b\Z\0\\\''", "\t\n\r\b\x1a\0\\'"),
    ],
)
def test_a_text_literal_means_what_it_means_in_spark(text, value):
    node = parsed(text).node
    assert node.this == value
    assert parsed(parsed(text).sql()).node.this == value
