"""Types: what an expression is announced to be is what the engine makes of it, without a cast."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.expr import parsed
from headrace.expr.lower import Lowering, check
from headrace.expr.types import common, computed, type_name, zoneless
from headrace.kernel import duckdb
from headrace.schema import TIMESTAMP, schema_of
from tests.expr.hard_cases import FRAMES


@pytest.mark.parametrize("name", FRAMES)
def test_the_announced_type_is_the_one_that_duckdb_gives(name):
    table, expressions = FRAMES[name]
    slots = {n: f"c{i}" for i, n in enumerate(table.column_names)}
    empty = table.slice(0, 0).rename_columns(list(slots.values()))
    empty = empty.cast(pa.schema([f.with_type(zoneless(f.type)) for f in empty.schema]))
    low = Lowering(table.schema, slots.__getitem__)
    for text in expressions:
        kind = check(parsed(text), table.schema)
        made = duckdb.once(f"SELECT {low.top(parsed(text)).sql} AS r FROM {duckdb.FEED}", empty)
        given = computed(made.schema.field("r").type)
        assert type_name(given) == type_name(computed(kind)), text


INFERRED = [
    ("a + 1", "int"), ("a + a", "tinyint"), ("a + b", "bigint"), ("b / b", "double"),
    ("f", "float"), ("f * 2", "double"), ("a + f", "double"), ("p + 1", "decimal(13,2)"),
    ("p * p", "decimal(21,4)"), ("a div 2", "bigint"), ("length(s)", "int"),
    ("case when true then a else b end", "bigint"), ("coalesce(a, 1.5)", "double"),
    ("array(a, b)", "array<bigint>"), ("named_struct('x', a)", "struct<x tinyint>"),
    ("cast(s as date)", "date"), ("d + interval 1 hour", "timestamp"), ("unix_millis(d)", "bigint"),
    ("split(s, ',')", "array<string>"), ("st.x", "int"), ("st", "struct<x int>"),
    ("u8 + u8", "smallint"), ("5000000000", "bigint"), ("5", "int"), ("5.0", "double"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "ddl"), INFERRED)
def test_an_expression_has_the_type(text, ddl):
    schema = schema_of(
        "a tinyint, b bigint, f float, p decimal(10,2), s string, d date, st struct<x int>"
    ).append(pa.field("u8", pa.uint8()))
    assert check(parsed(text), schema) == schema_of(f"r {ddl}").field("r").type


def test_numbers_meet_in_the_smallest_type_that_holds_both():
    assert common([pa.int8(), pa.int32()]) == pa.int32()
    assert common([pa.int64(), pa.float64()]) == pa.float64()
    assert common([pa.int32(), pa.decimal128(5, 2)]) == pa.decimal128(12, 2)
    assert common([pa.null(), pa.string()]) == pa.string()
    assert common([pa.date32(), TIMESTAMP]) == TIMESTAMP
    assert common([pa.string(), pa.int64()]) is None
    assert common([pa.decimal128(38, 0), pa.decimal128(38, 10)]) is None
