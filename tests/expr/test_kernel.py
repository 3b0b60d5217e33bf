"""The kernel: chains over chunks keep order, names, types and hidden columns, and lose no row."""

from __future__ import annotations

import math
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError, StepError
from headrace.expr import Expr, as_expr, col, lit, parsed
from headrace.kernel import Kernel, SelectStep, compile_chain, infer
from headrace.kernel.arrow import simple_mask
from headrace.kernel.sql import sql_mask
from headrace.schema import schema_of

SCHEMA = schema_of("area string, t double, n bigint, k int, ok boolean")


def chain(schema: pa.Schema, *steps: Any) -> Kernel:
    """Steps as users think of them: a text filters, a dict makes columns."""
    made = []
    for step in steps:
        if isinstance(step, str):
            made.append(SelectStep(where=parsed(step)))
        else:
            made.append(SelectStep(columns=tuple((n, parsed(e)) for n, e in step.items())))
    return compile_chain(made, schema)


def readings(count: int) -> pa.Table:
    return pa.table(
        {
            "area": [f"a{i % 7}" for i in range(count)],
            "t": [None if i % 11 == 0 else float(i % 50) for i in range(count)],
            "n": list(range(count)),
            "k": pa.array([i % 5 - 2 for i in range(count)], pa.int32()),
            "ok": [i % 3 == 0 for i in range(count)],
            "__t": pa.array(range(count), pa.int64()),
            "__h": pa.array([2**64 - 1 - i for i in range(count)], pa.uint64()),
        }
    )


def test_a_chain_filters_and_projects_in_the_order_it_is_written():
    kernel = chain(SCHEMA, "t > 40", {"f": "t * 1.8 + 32", "n": "n"}, "f < 110", {"n2": "n * 2"})
    table = readings(500)
    made = kernel(table)
    expected = [i * 2 for i in range(500) if i % 11 and i % 50 > 40 and (i % 50) * 1.8 + 32 < 110]
    assert made.column("n2").to_pylist() == expected
    assert made.column_names == ["n2", "__t", "__h"]
    assert kernel.schema == schema_of("n2 bigint")


@pytest.mark.parametrize(
    "steps",
    [
        ["t > 20"],
        ["upper(area) = 'A1'"],
        ["t > 20", {"n": "n + 1"}],
        ["length(area) + k > 2", {"n": "n + 1"}],
        [{"n": "n + 1"}],
        [{"n": "n"}],
        [{"one": "1"}],
        ["upper(area) = 'A1'", {"one": "'x'"}],
    ],
)
def test_hidden_columns_stay_with_their_rows_in_order(steps):
    made = chain(SCHEMA, *steps)(readings(100_000))
    times = made.column("__t").to_numpy()
    assert (np.diff(times) > 0).all()
    assert (made.column("__h").to_numpy() == np.uint64(2**64 - 1) - times.astype("u8")).all()
    assert made.schema.field("__h").type == pa.uint64()


def test_a_chain_of_picks_and_renames_copies_nothing():
    table = readings(1000)
    made = chain(SCHEMA, {"place": "area", "n": "n"}, {"n": "n", "area": "place"})(table)
    assert made.column_names == ["n", "area", "__t", "__h"]
    theirs, ours = (t.column("area").chunk(0).buffers()[2].address for t in (table, made))
    assert theirs == ours


def test_a_filter_that_keeps_all_rows_copies_nothing():
    table = readings(1000)
    assert chain(SCHEMA, "n >= 0")(table) is not None
    ours = chain(SCHEMA, "n >= 0")(table).column("n").chunk(0).buffers()[1].address
    assert ours == table.column("n").chunk(0).buffers()[1].address


def test_any_column_name_works():
    names = ["a", "A", 'say "hi"', "back`tick", "select", "c0", "ünï", "a b", "$feed", "'"]
    table = pa.table({n: pa.array([i], pa.int64()) for i, n in enumerate(names)})
    columns = tuple((n + "!", col(n) + 1) for n in names)
    made = compile_chain([SelectStep(col("A") == 1, columns)], table.schema)(table)
    assert made.to_pylist() == [{n + "!": i + 1 for i, n in enumerate(names)}]
    aside = compile_chain([SelectStep(columns=columns)], table.schema).run(table)
    assert aside[1] == []


TYPES = [
    pa.int8(), pa.uint8(), pa.uint64(), pa.float32(), pa.large_string(), pa.timestamp("ms"),
    pa.timestamp("us", "Europe/Rome"), pa.timestamp("ns", "UTC"), pa.date32(), pa.binary(),
    pa.decimal128(20, 3), pa.list_(pa.int32()), pa.struct([("x", pa.float32())]),
    pa.map_(pa.string(), pa.int64()), pa.dictionary(pa.int8(), pa.string()), pa.bool_(),
    pa.large_list(pa.string()), pa.time64("us"),
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_column_that_is_passed_on_keeps_its_exact_type(kind):
    schema = pa.schema([("c", kind), ("n", pa.int64())])
    table = pa.table({"c": pa.nulls(3, kind), "n": [1, 2, 3]}, schema=schema)
    for steps in (["n > 1"], ["n + 0 > 1"], ["n + 0 > 1", {"c": "c", "m": "n + 1"}], [{"c": "c"}]):
        made = chain(schema, *steps)(table)
        assert made.schema.field("c").type == kind


def test_the_output_has_the_schema_that_was_announced():
    exprs = {
        "s": "length(area)", "d": "t / n", "i": "k + 1", "l": "n + 1", "b": "t > 1",
        "x": "case when ok then k else n end", "a": "array(n, 1)", "r": "named_struct('a', k)",
        "w": "cast('2024-01-01' as timestamp)", "q": "cast(n as decimal(20,2)) * 2",
        "f": "cast(t as float)", "u": "upper(area)", "e": "cast(null as date)",
    }  # fmt: skip
    kernel = chain(SCHEMA, exprs)
    assert kernel.schema == infer({n: parsed(e) for n, e in exprs.items()}, SCHEMA)
    assert kernel(readings(10)).schema.names == [*exprs, "__t", "__h"]
    assert kernel(readings(10)).select(list(exprs)).schema == kernel.schema
    assert kernel(readings(0)).select(list(exprs)).schema == kernel.schema


def test_a_not_null_column_stays_so_and_a_computed_one_is_not():
    schema = schema_of("a int not null, b int")
    made = infer({"a": col("a"), "c": col("a") + 1}, schema)
    assert [f.nullable for f in made] == [False, True]


def test_chunks_with_and_without_hidden_columns_may_take_turns():
    kernel = chain(SCHEMA, "n + 0 > 1", {"m": "n * 2"})
    full = readings(5)
    for names in (["__t", "__h"], [], ["__t"], ["__t", "__h"]):
        made = kernel(full.select([*SCHEMA.names, *names]))
        assert made.column_names == ["m", *names]
        assert made.column("m").to_pylist() == [4, 6, 8]


def test_many_small_batches_in_one_table_are_one_chunk_to_the_kernel():
    pieces = [readings(100).slice(i, 10) for i in range(0, 100, 10)]
    made = chain(SCHEMA, "k > 0", {"n": "n + 1"})(pa.concat_tables(pieces))
    assert made.column("n").to_pylist() == [i + 1 for i in range(100) if i % 5 - 2 > 0]


# bad rows


def test_bad_rows_are_set_aside_with_their_reason_and_the_others_go_on():
    table = pa.table({"s": ["1", "x", None, "3", "1.5"], "__t": [1, 2, 3, 4, 5]})
    kernel = chain(schema_of("s string"), {"n": "cast(s as int)"})
    good, bad = kernel.run(table)
    assert good.to_pylist() == [{"n": 1, "__t": 1}, {"n": None, "__t": 3}, {"n": 3, "__t": 4}]
    assert bad == [(1, "'x' is not int"), (4, "'1.5' is not int")]
    with pytest.raises(StepError) as caught:
        kernel(table)
    assert caught.value.code == "HR-STEP-002"


@given(st.lists(st.sampled_from([1, 2**62, -(2**63), None, 7]), max_size=40), st.booleans())
@settings(max_examples=40, deadline=None)
def test_exactly_the_rows_that_overflow_are_bad(values, kept_first):
    schema = schema_of("n bigint, keep boolean")
    keep = [i % 3 > 0 for i in range(len(values))]
    table = pa.table({"n": pa.array(values, pa.int64()), "keep": pa.array(keep, pa.bool_())})
    steps: list[Any] = [{"m": "n * 4"}]
    if kept_first:
        steps = ["keep or n is null and keep", *steps]
    good, bad = chain(schema, *steps).run(table)
    seen = [(i, v) for i, v in enumerate(values) if keep[i] or not kept_first]
    fine = [None if v is None else v * 4 for _, v in seen if v is None or abs(v) < 2**61]
    assert good.column("m").to_pylist() == fine
    assert [i for i, _ in bad] == [i for i, v in seen if v is not None and abs(v) >= 2**61]


def test_a_row_that_a_filter_drops_cannot_fail_later():
    schema = schema_of("s string")
    table = pa.table({"s": ["5", "x", None, "12"] * 5000})
    for steps in (
        ["s rlike '^[0-9]+$'", "cast(s as int) > 6"],
        ["s rlike '^[0-9]+$' and cast(s as int) > 6"],
        ["s rlike '^[0-9]+$'", {"n": "cast(s as int)"}, "n > 6"],
        [{"hit": "s rlike '^[0-9]+$' and cast(s as int) > 6"}, "hit"],
        ["not (s not rlike '^[0-9]+$' or cast(s as int) <= 6)"],
    ):
        good, bad = chain(schema, *steps).run(table)
        assert (good.num_rows, bad) == (5000, [])


def test_many_bad_rows_cost_one_look_not_one_each():
    table = pa.table({"s": ["x" if i % 2 else "1" for i in range(20_000)]})
    good, bad = chain(schema_of("s string"), {"n": "cast(s as int)"}).run(table)
    assert good.num_rows == 10_000
    assert [i for i, _ in bad] == list(range(1, 20_000, 2))
    assert bad[0][1] == "'x' is not int"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n + 9223372036854775807", "overflow: 1 + 9223372036854775807"),
        ("-(n - 9223372036854775807 - 2)", "overflow: 0 - -9223372036854775808"),
        ("cast(n + 299 as tinyint)", "300 does not fit tinyint"),
        ("cast(area as date)", "'a1' is not date"),
        ("cast(area as timestamp)", "'a1' is not timestamp"),
        ("cast(area as double)", "'a1' is not double"),
        ("cast(area as boolean)", "'a1' is not boolean"),
        ("abs(cast(n - 129 as tinyint))", "overflow: abs(-128)"),
    ],
)
def test_a_reason_speaks_plainly(text, reason):
    table = readings(2).slice(1, 1)
    assert chain(SCHEMA, {"r": text}).run(table)[1] == [(0, reason)]


# the short way through Arrow

VALUES = st.fixed_dictionaries(
    {
        "t": st.one_of(st.none(), st.sampled_from([0.0, -0.0, 2.5, math.nan, math.inf, -1e300])),
        "n": st.one_of(st.none(), st.integers(-3, 3)),
        "area": st.one_of(st.none(), st.sampled_from(["", "a", "b", "é", "😀"])),
        "ok": st.one_of(st.none(), st.booleans()),
    }
)
TESTS = st.one_of(
    st.tuples(
        st.sampled_from(["t", "n"]), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        st.sampled_from(["0", "1", "-2", "2"]),
    ).map(" ".join),
    st.tuples(
        st.just("t"), st.sampled_from([">", "<", "<>"]), st.sampled_from(["2.5", "-0.5"])
    ).map(" ".join),
    st.tuples(
        st.just("area"), st.sampled_from(["=", "<>", "<", ">="]), st.sampled_from(["'a'", "''"])
    ).map(" ".join),
    st.sampled_from(["ok", "t is null", "n is not null", "1 < n", "n in (1, -2)", "area in ('a')",
                     "t between -1 and 2", "n between -2 and 1", "t in (0, 2.5)"]),
)  # fmt: skip
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({' '.join(p)})"),
        inner.map(lambda c: f"not ({c})"),
    ),
    max_leaves=5,
)
FLAT = schema_of("t double, n bigint, area string, ok boolean")


@given(st.lists(VALUES, max_size=12), CONDITIONS)
@settings(max_examples=120, deadline=None)
def test_arrow_and_duckdb_keep_the_same_rows(rows, condition):
    table = pa.Table.from_pylist(rows, schema=FLAT)
    expr = as_expr(condition, FLAT)
    short, long = simple_mask(expr.node, FLAT), sql_mask(expr, FLAT)
    assert short is not None
    assert table.filter(short(table)).num_rows == table.filter(long(table)).num_rows
    kept = short(table).fill_null(False).to_pylist()
    assert kept == long(table).to_pylist()


@pytest.mark.parametrize(
    "text", ["n + 1 > 2", "t > n", "upper(area) = 'A'", "n > 1.5", "area like 'a%'", "t = null"]
)
def test_what_arrow_might_decide_otherwise_is_left_to_sql(text):
    assert simple_mask(parsed(text).node, FLAT) is None


# where and how it runs


def test_long_sums_are_compiled_in_no_time_to_speak_of():
    """Each term once: twice for each of 60 would never end."""
    long = {"n": " + ".join(["n"] * 60), "area": " + ".join(["area"] * 60)}
    rows = readings(3)
    made = chain(SCHEMA, long)(rows).to_pydict()
    assert made["n"] == [None if n is None else 60 * n for n in rows["n"].to_pylist()]
    assert made["area"] == [None if a is None else 60 * a for a in rows["area"].to_pylist()]


def test_a_kernel_travels_by_pickle():
    kernel = pickle.loads(pickle.dumps(chain(SCHEMA, "t > 20", {"n": "n + 1"})))
    assert kernel(readings(30)).num_rows == 8


def in_child(kernel: Kernel, queue: Any) -> None:
    queue.put(kernel(readings(30)).num_rows)


def test_a_kernel_works_in_a_forked_process_and_in_many_threads():
    kernel = chain(SCHEMA, "t + 0 > 20", {"n": "n + 1"})
    assert kernel(readings(30)).num_rows == 8
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    child = fork.Process(target=in_child, args=(kernel, queue))
    child.start()
    assert queue.get(timeout=60) == 8
    child.join()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: kernel(readings(30)).num_rows, range(40))) == [8] * 40


def test_nothing_is_printed_when_the_process_ends():
    code = (
        "import pyarrow as pa; from headrace.kernel import *; from headrace.expr import col\n"
        "s = pa.schema([('a', pa.int64())])\n"
        "k = compile_chain([SelectStep(columns=(('b', col('a') + 1),))], s)\n"
        "assert k(pa.table({'a': [1]})).to_pylist() == [{'b': 2}]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM read_csv('/etc/passwd')", "INSTALL httpfs", "SET threads = 4",
            "COPY (SELECT 1) TO '/tmp/headrace_never'", "ATTACH '/tmp/headrace_never.db'"]
)  # fmt: skip
def test_the_door_is_shut_to_files_and_settings(sql):
    from headrace.kernel.duckdb import Error, connection

    with pytest.raises(Error):
        connection().execute(sql)


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (SelectStep(where=col("x") > 1), "HR-EXPR-001"),
        (SelectStep(where=col("t")), "HR-EXPR-003"),
        (SelectStep(columns=(("a", col("area") * 2),)), "HR-EXPR-003"),
        (SelectStep(columns=(("a", lit(None)),)), "HR-EXPR-003"),
    ],
)
def test_a_wrong_step_is_refused_when_the_chain_is_compiled(step, code):
    with pytest.raises(PlanError) as caught:
        compile_chain([step], SCHEMA)
    assert caught.value.code == code


def test_a_later_step_sees_only_the_columns_of_the_step_before():
    with pytest.raises(PlanError) as caught:
        chain(SCHEMA, {"n": "n"}, "t > 1")
    assert caught.value.code == "HR-EXPR-001"


def test_an_alias_does_not_matter_to_the_kernel():
    aliased: Expr = (col("n") + 1).alias("other")
    step = SelectStep(where=(col("n") > 1).alias("c"), columns=(("m", aliased),))
    kernel = compile_chain([step], SCHEMA)
    assert kernel(readings(4)).column("m").to_pylist() == [3, 4]


def test_no_text_of_a_user_is_taken_for_a_place_in_the_query():
    odd = ["$feed", "\0feed", "\0today", "a\0b", "{0}", "{}", "feed_1"]
    table = pa.table({"s": odd})
    for value in odd:
        columns = (
            ("r", col("s") == lit(value)),
            ("q", lit(value)),
            ("p", col("s").contains(value)),
        )
        made = compile_chain([SelectStep(columns=columns)], table.schema)(table)
        assert made.column("r").to_pylist() == [s == value for s in odd]
        assert made.column("q").to_pylist() == [value] * len(odd)
        assert made.column("p").to_pylist() == [value in s for s in odd]
