"""The corpus: the user's own text goes to Spark, and our parser and kernel give the same.

Written texts are those of `hard_cases`; the rest is drawn. `make corpus` draws many more.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from sqlglot import exp
from tools.evidence import record

from headrace.errors import PlanError
from headrace.expr import parsed
from headrace.expr.catalog import names
from tests.expr.by_design import DESIGN, undocumented
from tests.expr.drawn_texts import APART, ELSEWHERE, OWN_CALLS, TABLE, Draw
from tests.expr.hard_cases import FAILING, FRAMES
from tests.expr.spark_oracle import Oracle, compare

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "0"))
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "expressions.md"

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def drawn_oracle(spark):
    return Oracle(spark, TABLE)


def spoken_in_spark(text):
    """Whether every function of the text is one of Spark's by that name."""
    called = {node.this for node in parsed(text).node.find_all(exp.Anonymous)}
    other = APART | ELSEWHERE.keys() - {"is_nan"} | OWN_CALLS.keys()
    return not called & other and "is_nan(" not in text


@pytest.mark.parametrize("name", FRAMES)
def test_written_texts_mean_what_they_mean_in_spark(name, spark):
    table, texts = FRAMES[name]
    wanted = {t for t in (*texts, *FAILING.get(name, ())) if spoken_in_spark(t)}
    found = compare(Oracle(spark, table), table, [(t, t) for t in wanted])
    assert found.compared == len(wanted)
    assert undocumented(found.differences) == []


@pytest.mark.parametrize("seed", range(1))
def test_drawn_texts_mean_what_they_mean_in_spark(seed, drawn_oracle):
    found = compare(drawn_oracle, TABLE, Draw(seed).texts(250))
    assert found.refused == {}
    assert undocumented(found.differences) == []


@pytest.mark.skipif(not EXAMPLES, reason="make corpus draws them")
def test_many_drawn_texts(drawn_oracle):
    compared = values = 0
    wrong = []
    for seed in range(1000, 1000 + EXAMPLES // 1000):
        found = compare(drawn_oracle, TABLE, Draw(seed).texts(1000))
        compared, values = compared + found.compared, values + found.values
        wrong += (differs := undocumented(found.differences))
        print(f"seed {seed}: {found.compared} texts", *differs, sep="\n  ", flush=True)
    record("expressions", "drawn expressions against Spark, as text", "make corpus",
           faults=compared, records=values, violations=len(wrong))  # fmt: skip
    assert wrong == []


@pytest.mark.parametrize(
    ("design", "text"),
    [(design, text) for design in DESIGN for text in design.examples],
    ids=lambda value: value if isinstance(value, str) else value.row,
)
def test_a_documented_difference_is_one(design, text, drawn_oracle):
    found = compare(drawn_oracle, TABLE, [(text, text)])
    assert any(map(design.kind, found.differences)), "they agree: take it off the table"
    assert undocumented(found.differences) == []


def test_every_documented_difference_is_in_the_guide():
    rows = GUIDE.read_text().split("## Where Spark differs")[1].split("\n## ")[0]
    assert [design.row for design in DESIGN if f"| {design.row} |" not in rows] == []
    assert rows.count("\n| ") == len(DESIGN) + 1


def test_every_function_is_drawn_or_compared_elsewhere():
    drawn = {
        node.this
        for one in Draw(0).texts(3 * len(names()))
        for node in parsed(one.ours).node.find_all(exp.Anonymous)
    }
    assert set(names()) - drawn - APART == set()


# precedence: Spark's own parser reads the text, and what we make of it, as the same tree

OPERATORS = ["+", "-", "*", "/", "%", "div", "=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>",
             "and", "or", "||", "like", "not like", "ilike", "not ilike", "rlike", "not rlike",
             "is distinct from", "is not distinct from"]  # fmt: skip
AROUND = ["{0}", "not {0}", "- {0}", "{0} is null", "{0} is not null", "{0} is true",
          "{0} between x and y", "{0} not between x and y", "{0} in (x, y)", "{0} not in (x)",
          "x between {0}", "+ {0}"]  # fmt: skip


def combinations():
    for one, two in itertools.product(OPERATORS, repeat=2):
        yield f"a {one} b {two} c"
        yield f"a {one} - b {two} c"
        yield f"not a {one} b {two} c"
    for one, around in itertools.product(OPERATORS, AROUND):
        yield around.format(f"a {one} b")
        yield f"a {one} {around.format('b')}"
        yield f"{around.format('a')} {one} b"
    for one, two in itertools.product(AROUND, repeat=2):
        yield one.format(two.format("a"))


INFIX = {"like": "LIKE", "ilike": "ILIKE", "rlike": "RLIKE", "concat": "||"}


def in_parentheses(node):
    """Our tree as text for Spark, in which nothing is left to precedence."""
    if isinstance(node, exp.Anonymous):
        args = [in_parentheses(a) for a in node.expressions]
        return f"(+ {args[0]})" if len(args) == 1 else f"({args[0]} {INFIX[node.this]} {args[1]})"
    if isinstance(node, exp.Column | exp.Null | exp.Boolean):
        return node.name or node.sql()
    made = type(node)(**{
        key: exp.var(in_parentheses(value)) if isinstance(value, exp.Expr)
        else [exp.var(in_parentheses(v)) for v in value] if isinstance(value, list) else value
        for key, value in node.args.items()
    })  # fmt: skip
    return f"({made.sql(dialect='spark')})"


def as_spark_reads(session, text):
    parser = session._jsparkSession.sessionState().sqlParser()
    try:
        read = str(parser.parseExpression(text).toString())
    except Exception:  # the class depends on what it stumbles over
        return None
    return read.replace("isnotnull(", "NOT isnull(")


def test_operators_bind_as_they_do_in_spark(spark):
    wrong, read = [], 0
    for text in combinations():
        theirs = as_spark_reads(spark, text)
        try:
            ours = in_parentheses(parsed(text).node)
        except PlanError:
            continue
        read += 1
        if theirs != as_spark_reads(spark, ours):
            wrong.append((text, ours, theirs))
    assert wrong == []
    assert read > 1000
