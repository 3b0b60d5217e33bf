"""Public functions: each builds the same tree as its name in SQL text, and says what it does."""

from __future__ import annotations

import contextlib
import inspect
import itertools

import pyarrow as pa
import pytest

from headrace import functions as f
from headrace.errors import PlanError
from headrace.expr import Expr, as_expr, col, lit, parsed, same
from headrace.expr.catalog import find, names
from headrace.kernel import SelectStep, compile_chain
from headrace.schema import schema_of
from tests.expr.spark_oracle import Failure, by_kernel

SCHEMA = schema_of(
    "x double, n int, s string, t string, z binary, at timestamp, til timestamp, day date, "
    "xs array<bigint>, ys array<bigint>, ss array<string>, m map<string, int>, j string"
)

CALLS = [
    (f.abs("n"), "abs(n)"), (f.round("x"), "round(x, 0)"), (f.round(col("x"), 2), "round(x, 2)"),
    (f.pow("x", 2), "power(x, 2)"), (f.mod("n", 3), "mod(n, 3)"),
    (f.atan2("x", "n"), "atan2(x, n)"),
    (f.greatest("n", 3), "greatest(n, 3)"), (f.coalesce("n", "x", 0), "coalesce(n, x, 0)"),
    (f.nullif("s", "a"), "nullif(s, 'a')"), (f.nvl2("s", 1, 2), "nvl2(s, 1, 2)"),
    (f.when(col("n") > 1, "many").when("n = 1", "one").otherwise("none"),
     "case when n > 1 then 'many' when n = 1 then 'one' else 'none' end"),
    (f.when("n > 1", col("x")), "case when n > 1 then x end"),
    (f.trim("s"), "trim(s)"), (f.trim("s", "x"), "trim('x', s)"),
    (f.lpad("s", 5), "lpad(s, 5, ' ')"),
    (f.substring("s", 2), "substring(s, 2)"), (f.substring("s", 2, 3), "substr(s, 2, 3)"),
    (f.concat("s", lit("-"), "t"), "concat(s, '-', t)"),
    (f.concat_ws("-", "s", "t"), "concat_ws('-', s, t)"), (f.split("s", ","), "split(s, ',')"),
    (f.split_part("s", ",", 1), "split_part(s, ',', 1)"), (f.rlike("s", r"\d"), r"s rlike '\\d'"),
    (f.regexp_extract("s", "(a)"), "regexp_extract(s, '(a)', 1)"),
    (f.like("s", "a%"), "s like 'a%'"),
    (f.date_trunc("hour", "at"), "date_trunc('hour', at)"),
    (f.date_diff("day", "day"), "datediff(day, day)"),
    (f.timestamp_diff("second", "at", "til"), "timestamp_diff('second', at, til)"),
    (f.date_format("at", "yyyy"), "date_format(at, 'yyyy')"),
    (f.date_add("day", 1), "date_add(day, 1)"),
    (f.from_utc_timestamp("at", "Europe/Rome"), "from_utc_timestamp(at, 'Europe/Rome')"),
    (f.array(1, col("n")), "array(1, n)"), (f.get("xs", 0), "get(xs, 0)"),
    (f.size("xs"), "size(xs)"),
    (f.array_concat("xs", "ys"), "array_concat(xs, ys)"),
    (f.element_at("m", "k"), "element_at(m, 'k')"),
    (f.struct(a=col("n"), b=lit("x")), "named_struct('a', n, 'b', 'x')"),
    (f.like("s", "a/%", "/"), "s like 'a/%' escape '/'"),
    (f.locate("a", "s"), "position('a' in s)"),
    (col("n").bitwise_and(3).bitwise_or(col("n").bitwise_not()), "n & 3 | ~n"),
    (col("n").bitwise_xor(3) << 2, "(n ^ 3) << 2"), (col("n") >> 1, "n >> 1"),
    (f.ceil("x", 1), "ceil(x, 1)"), (f.log("x"), "log(x)"), (f.log(lit(2), "x"), "log(2, x)"),
    (f.to_date("s", "yyyy"), "to_date(s, 'yyyy')"), (f.date_part("year", "at"),
                                                     "extract(year from at)"),
    (f.transform("xs", lambda x: x + 1), "transform(xs, x -> x + 1)"),
    (col("xs").filter(lambda x, i: i > 0), "filter(xs, (x, i) -> i > 0)"),
    (f.aggregate("xs", 0, lambda acc, x: acc, lambda acc: acc * 2),
     "reduce(xs, 0, (acc, x) -> acc, acc -> acc * 2)"),
    (f.json_text("j", "$.a"), "json_text(j, '$.a')"), (f.sha256("s"), "sha256(s)"),
    (f.get_json_object("j", "$.a[0]"), "get_json_object(j, '$.a[0]')"),
    (f.log("x"), "log(x)"), (f.log(2, "x"), "log(2, x)"), (f.sha2("s", 512), "sha2(s, 512)"),
]  # fmt: skip


@pytest.mark.parametrize(("built", "text"), CALLS, ids=[c[1] for c in CALLS])
def test_a_function_is_the_tree_of_its_sql(built, text):
    assert same(built, parsed(text))
    as_expr(built, SCHEMA)


def test_a_lambda_in_python_never_takes_a_name_from_what_it_reads():
    inner = f.transform("xs", lambda x: x + col("x"))
    assert same(inner, parsed("transform(xs, x_ -> x_ + x)"))
    add = lambda outer: f.transform("ys", lambda v: v + outer)  # noqa: E731
    nested = f.transform("xs", lambda v: f.size(add(v)))
    assert same(nested, parsed("transform(xs, v -> size(transform(ys, v_ -> v_ + v)))"))
    assert same(parsed(nested.sql()), nested)


def test_a_lambda_in_a_traced_lambda_becomes_part_of_the_expression():
    made = as_expr(lambda e: e.xs.exists(lambda x: x > e.n), SCHEMA)
    assert same(made, parsed("exists(xs, x -> x > n)"))


def arguments(name: str) -> list[object]:
    """Something of the right kind for each parameter that has no default."""
    kinds = {
        "text": "s", "number": "x", "double": "x", "int": "n", "long": "n", "bool": "ok",
        "binary": "z", "date": "day", "timestamp": "at", "[T]": "xs", "map": "m", "T": "n",
    }  # fmt: skip
    special = {
        "date_trunc": ["hour", "at"], "timestamp_diff": ["hour", "at", "til"],
        "element_at": ["xs", 1], "array_join": ["ss", "-"], "octet_length": ["s"],
        "concat_ws": ["-", "s", "t"], "regexp_extract": ["s", "(a)"],
        "regexp_replace": ["s", "a", "b"], "date_format": ["at", "yyyy"],
        "from_utc_timestamp": ["at", "UTC"], "when": ["n > 1", 1], "nvl2": ["s", 1, 2],
        "array_contains": ["xs", 1], "array_append": ["xs", 1], "make_date": ["n", "n", "n"],
        "make_timestamp": ["n", "n", "n", "n", "n", 0],
        "date_part": ["year", "at"], "locate": ["a", "s"], "sha2": ["s", 256], "size": ["xs"],
        "get_json_object": ["j", "$.a"],
        "to_utc_timestamp": ["at", "UTC"], "trunc": ["day", "month"],
        **{n: ["s"] for n in ("to_date", "to_timestamp", "unix_timestamp")},
        **{n: ["n", 3] for n in ("shiftleft", "shiftright", "shiftrightunsigned")},
        **{n: ["xs", lambda x: x > 1] for n in ("exists", "filter", "forall", "transform")},
        "aggregate": ["xs", lit(0).cast("bigint"), lambda total, x: total + x],
        "zip_with": ["xs", "ys", lambda x, y: x + y],
        **{n: ["j", "$.a"] for n in ("json_text", "json_long", "json_double", "json_bool")},
        **{n: ["at"] for n in ("year", "quarter", "month", "dayofmonth", "dayofyear", "dayofweek",
                               "weekday", "weekofyear")},
    }  # fmt: skip
    if name in special:
        return special[name]
    fn = find(name)
    wanted = [fn.kind(i) for i in range(max(fn.least, 1))]
    column, *rest = [kinds.get(k, "x") for k in wanted]
    literals = {"s": "a", "x": 1.5, "n": 1, "day": "day", "at": "at", "xs": "xs"}
    others = zip(rest, wanted[1:], strict=True)
    return [column, *("a" if kind == "word" else literals[name] for name, kind in others)]


@pytest.mark.parametrize("name", [n for n in f.__all__ if n not in ("struct", "current_date")])
def test_every_function_passes_the_checks_and_runs(name):
    made = getattr(f, name)(*arguments(name))
    assert isinstance(made, Expr)
    kernel = compile_chain([SelectStep(columns=(("r", as_expr(made, SCHEMA)),))], SCHEMA)
    assert kernel(SCHEMA.empty_table()).schema == kernel.schema
    row = pa.Table.from_pylist([dict.fromkeys(SCHEMA.names)], schema=SCHEMA)
    assert kernel(row).num_rows == 1


@pytest.mark.parametrize("name", f.__all__)
def test_every_function_says_what_it_does(name):
    doc = inspect.getdoc(getattr(f, name)) or ""
    assert doc.endswith(".") and len(doc.splitlines()[0]) < 100


def test_every_name_of_the_catalogue_is_public_or_has_an_operator():
    spelt_otherwise = {"log", "if", "isnull", "isnotnull", "equal_null", "named_struct", "positive",
                       "unhex"}  # fmt: skip
    assert set(names()) - set(f.__all__) == spelt_otherwise
    assert set(f.__all__) - set(names()) == {"when", "struct"}


def test_there_are_more_than_a_hundred_functions():
    assert len(f.__all__) > 100


def test_text_is_a_column_where_one_is_expected_and_itself_elsewhere():
    table = pa.table({"s": ["a-b"], "t": ["-"]})
    columns = (("r", f.replace("s", "-", "+")), ("q", f.replace("s", col("t"), "/")))
    made = compile_chain([SelectStep(columns=columns)], table.schema)(table)
    assert made.to_pylist() == [{"r": "a+b", "q": "a/b"}]


def test_when_without_otherwise_is_null():
    table = pa.table({"n": pa.array([1, 5], pa.int32())})
    columns = (("r", f.when(col("n") > 3, "big")),)
    made = compile_chain([SelectStep(columns=columns)], table.schema)(table)
    assert made.column("r").to_pylist() == [None, "big"]


def test_sets_of_long_arrays_hold_each_element_once_in_its_first_place():
    long = [(n * 7919) % 5000 for n in range(20_000)] + [None, 1, None]
    table = pa.table({"xs": pa.array([long, None, []], pa.list_(pa.int64()))})
    columns = (("d", parsed("array_distinct(xs)")), ("u", parsed("array_union(xs, array(-1, 1))")))
    made = compile_chain([SelectStep(columns=columns)], table.schema)(table)
    once = list(dict.fromkeys(long))
    assert made.column("d").to_pylist() == [once, None, []]
    assert made.column("u").to_pylist() == [[*once, -1], None, [-1, 1]]


def test_an_array_that_fails_fails_the_row_whatever_is_removed():
    table = pa.table({"n": pa.array([-1, 1], pa.int32()), "k": pa.array([None, None], pa.int64())})
    bad, good = by_kernel(table, "array_remove(slice(array(1L, 2L), 1, n), k)")
    assert isinstance(bad, Failure) and good is None


def test_digests_are_those_of_the_standard():
    # FIPS 180-4, the examples of one block
    table = pa.table({"s": ["abc"]})
    begins = {224: "23097d22", 256: "ba7816bf", 0: "ba7816bf", 384: "cb00753f", 512: "ddaf35a1"}
    ends = {224: "e36c9da7", 256: "f20015ad", 0: "f20015ad", 384: "34c825a7", 512: "a54ca49f"}
    for bits in begins:
        (made,) = by_kernel(table, f"sha2(s, {bits})")
        assert made.startswith(begins[bits]) and made.endswith(ends[bits])
        assert len(made) == (bits or 256) // 4
    assert by_kernel(table, "sha2(s, 1)") == [None]


_OF_KIND = {
    "text": "'a'", "word": "'day'", "int": "1", "long": "1", "double": "1.5D", "number": "1",
    "T": "1", "[T]": "array(1)", "any": "1", "bool": "true", "binary": "unhex('61')",
    "date": "date '2024-01-01'", "timestamp": "timestamp '2024-01-01'",
}  # fmt: skip


def _with_nulls(name):
    """Every call of a function in which some arguments are nulls without a type."""
    function = find(name)
    kinds = [kind.rstrip("?*") for kind in function.takes]
    for count in range(function.least, len(kinds) + 1):
        for nulls in itertools.product((True, False), repeat=count):
            pairs = zip(kinds[:count], nulls, strict=True)
            args = ("null" if null else _OF_KIND.get(kind, "x -> x") for kind, null in pairs)
            yield f"{name}({', '.join(args)})"


@pytest.mark.parametrize("name", names())
def test_a_null_without_a_type_is_computed_with_or_refused_by_name(name):
    table = pa.table({"one": [1]})
    for text in _with_nulls(name):
        with contextlib.suppress(PlanError):
            assert len(by_kernel(table, text)) == 1


def test_a_column_that_is_always_null_has_no_elements():
    with pytest.raises(PlanError, match=r"takes .* not null"):
        by_kernel(pa.table({"v": pa.nulls(2)}), "v[0]")
