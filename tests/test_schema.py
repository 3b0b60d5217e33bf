import dataclasses
import datetime as dt
import decimal
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NewType, Optional, TypedDict

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis.strategies import booleans, deferred, lists, one_of, sampled_from, text, tuples

from headrace.errors import PlanError
from headrace.schema import TIMESTAMP, ddl_of, ddl_type, schema_of, type_of

AreaId = NewType("AreaId", int)


@dataclasses.dataclass
class Position:
    x: float
    y: float


@dataclasses.dataclass
class Reading:
    version: ClassVar[int] = 1
    area: str
    celsius: float | None
    count: int
    at: dt.datetime
    day: dt.date
    ok: bool
    price: decimal.Decimal
    raw: bytes
    place: Position
    tags: list[str]
    levels: dict[str, int]


class Pair(NamedTuple):
    a: int
    b: "str"


class Record(TypedDict, total=False):
    a: int
    b: str


@dataclasses.dataclass
class Tree:
    value: int
    children: "list[Tree]"


@dataclasses.dataclass
class Empty:
    pass


AB = pa.schema([("a", pa.int64()), ("b", pa.string())])


def refusal(spec):
    with pytest.raises(PlanError) as caught:
        schema_of(spec)
    return caught.value


def test_a_dataclass_gives_its_fields_in_order_and_no_class_variables():
    assert schema_of(Reading) == pa.schema(
        {
            "area": pa.string(),
            "celsius": pa.float64(),
            "count": pa.int64(),
            "at": TIMESTAMP,
            "day": pa.date32(),
            "ok": pa.bool_(),
            "price": pa.decimal128(38, 18),
            "raw": pa.binary(),
            "place": pa.struct([("x", pa.float64()), ("y", pa.float64())]),
            "tags": pa.list_(pa.string()),
            "levels": pa.map_(pa.string(), pa.int64()),
        }
    )


@pytest.mark.parametrize(
    "spec", [Pair, Record, {"a": int, "b": "string"}, "a bigint, b string", AB]
)
def test_all_ways_to_write_a_schema_meet_in_the_same_one(spec):
    assert schema_of(spec) == AB


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        (Optional[int], pa.int64()),  # noqa: UP045
        (int | None, pa.int64()),
        (AreaId, pa.int64()),
        (Annotated[int, ["celsius"]], pa.int64()),
        (Sequence[int], pa.list_(pa.int64())),
        (set[str], pa.list_(pa.string())),
        (tuple[int, ...], pa.list_(pa.int64())),
        (Mapping[str, list[float]], pa.map_(pa.string(), pa.list_(pa.float64()))),
        (list[Position | None], pa.list_(type_of(Position))),
        ("decimal(10)", pa.decimal128(10, 0)),
        ("Numeric( 10 , 2 )", pa.decimal128(10, 2)),
        ("varchar(20)", pa.string()),
        ("ARRAY<MAP<string, INT>>", pa.list_(pa.map_(pa.string(), pa.int32()))),
        (pa.uint8(), pa.uint8()),
    ],
)
def test_a_hint_or_type_name_gives_an_arrow_type(hint, kind):
    assert type_of(hint) == kind


@pytest.mark.parametrize(
    "text",
    ["a int, b struct<x: int, y: array<string>>", "a:int,b:struct<x:int,y:array<string>>",
     " a\n: INT , b  STRUCT< x int , y ARRAY<String> > ",
     "a :int, `b` struct<x int, y array<text>>,"],
)  # fmt: skip
def test_ddl_is_read_however_it_is_spaced(text):
    inner = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    assert schema_of(text) == pa.schema([("a", pa.int32()), ("b", inner)])


def test_ddl_keeps_what_may_not_be_null():
    schema = schema_of("a int NOT  NULL, b array<int> not null, c struct<x int not null>")
    assert [f.nullable for f in schema] == [False, False, True]
    assert schema.field("c").type.field("x").nullable is False


PLAIN = sampled_from(
    [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
     pa.string(), pa.binary(), pa.date32(), TIMESTAMP, pa.decimal128(38, 18), pa.decimal128(5, 5)]
)  # fmt: skip
NAMES = text(min_size=1, max_size=5).filter(lambda n: not n.startswith("__"))
FIELDS = deferred(
    lambda: lists(
        tuples(NAMES, TYPES, booleans()), min_size=1, max_size=3, unique_by=lambda f: f[0].lower()
    ).map(lambda fields: [pa.field(n, t, null) for n, t, null in fields])
)
TYPES = deferred(
    lambda: one_of(
        PLAIN,
        TYPES.map(pa.list_),
        tuples(PLAIN, TYPES).map(lambda kv: pa.map_(*kv)),
        FIELDS.map(pa.struct),
    )
)


@settings(max_examples=60)
@given(fields=FIELDS)
def test_ddl_reads_back_what_it_wrote_whatever_the_names(fields):
    schema = pa.schema(fields)
    assert schema_of(ddl_of(schema)) == schema


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.timestamp("ns"), "timestamp"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.list_(pa.int64(), 3), "array<bigint>"),
        (pa.uint16(), "uint16"),
    ],
)
def test_arrow_types_that_ddl_does_not_have_show_the_nearest_name(kind, name):
    assert ddl_type(kind) == name


@pytest.mark.parametrize("spec", [None, 5, int, dict, Reading("", 1, 1, *[None] * 8), ["a int"]])
def test_what_does_not_describe_a_schema_is_refused(spec):
    assert refusal(spec).code == "HR-SCHEMA-001"


@pytest.mark.parametrize(
    "kind",
    [object, Any, None, list, dict, tuple, [int], int | str, tuple[int, str], Literal["a"], complex,
     "", "strin", "array", "array<>", "map<int>", "map<int, int, int>", "struct<>", "array<int",
     "decimal(39,2)", "decimal(0)", "decimal(2,5)", "list<int>"],
)  # fmt: skip
def test_what_is_not_a_column_type_is_refused(kind):
    assert refusal({"a": kind}).code == "HR-SCHEMA-002"


@pytest.mark.parametrize("text", ["area", "a-b int", "a int, b", "`a int", "struct<a>"])
def test_ddl_that_cannot_be_read_is_refused_and_quoted(text):
    error = refusal(text)
    assert error.code == "HR-SCHEMA-003"
    assert repr(text) in error.message


@pytest.mark.parametrize(
    ("spec", "fact"),
    [
        ("", "at least one column"),
        (Empty, "at least one column"),
        (pa.schema([]), "at least one column"),
        ("__t bigint", "reserved: __t"),
        ("a int, b int, a string", "the schema names 'a' twice"),
        ("Area int, area int", "without regard to case: 'Area', 'area'"),
        ("p struct<x int, X int>", "without regard to case: 'x', 'X'"),
    ],
)
def test_names_that_cannot_be_columns_are_refused(spec, fact):
    error = refusal(spec)
    assert error.code == "HR-SCHEMA-004"
    assert fact in error.message


def test_a_record_that_contains_itself_is_refused():
    assert refusal(Tree).code == "HR-SCHEMA-005"


def test_a_record_with_types_that_are_not_there_is_refused():
    @dataclasses.dataclass
    class Lost:
        a: "Nowhere"  # noqa: F821

    error = refusal(Lost)
    assert error.code == "HR-SCHEMA-005"
    assert "Nowhere" in error.message
