"""get_json_object: Spark, given the same text and documents, finds the same; or the row fails."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from headrace.errors import PlanError
from headrace.expr import as_expr
from headrace.kernel.json_documents import java_double
from headrace.schema import schema_of
from tests.expr.spark_oracle import Failure, Oracle, by_kernel, compare

DOCUMENTS = [
    None, "", "  ", "null", "1", "-0", '"s"', "1x", "1 x", "1.", "01", "true", "truex", 'true"',
    "[", "\ufeff{}", '{"a":1}', ' {"a" : false } ', '{"a":1} x', '{"a":1}}', '{"a":1', "{a:1}",
    '{"a":1,}', '{"A":1}',
    *(f'{{"a":{number}}}' for number in (
        "1.0", "1e10", "-0", "-0.0", "1e400", "-1e400", "1e-400", "1e-7", "0.001", "0.00099",
        "1.1e7", "9999999.5", "5e-324", "1E+2", "123456789012345678901234567890",
        "123.456789012345678901234567890", "9007199254740993.0", "01", "1.", ".5", "+5",
        "NaN", "-Infinity", "0x1", "-", "1e",
        "\x0b1", "1" * 1000)),
    '{"a":null}', '{"a":null,"a":3}', '{"a":{"c":1},"a":{"b":2}}', '{"a":1,"b":tru}',
    '{"a":1,"b":[}', '{"a":{"b":[1, 2 ,{"c" : "d\\u00e9\\n\\u0001\\/"}]}}',
    '{"a":"x\\"y\\u00e9\\n\\ud83d\\ude00"}', '{"a":["😀", "\x7f/é\u2028"]}', '{"a":["😀"]}',
    '{"a":{"😀":["😀"]}}', '{"a":"\\ud83d"}', '{"a":["\\ud83d"]}', '{"a":"\\udc00\\ud800"}',
    '{"a":["\\udc00x", 1]}', "{'a':'it\\'s'}", "{'a':'say \"hi\" \\\"'}", '{"a":"it\\\'s"}',
    "{'a\":1}", "{'a':['x', \"it's\"]} '", '{"a":"\\x"}', '{"a":"\\u12"}', '{"a":"tab\there\n"}',
    '{"a":["tab\there\x01"]}', '{"a":"\\u0000"}', '{"a":{"\\u0000":"\\b\\f\\u001f"}}',
    '{"a":[1,2,]}', '{"a":[]}', '{"a":{}}', '{"a":[null]}', '{"a":[[1,2],[3]]}',
    '{"a":[[1,"x"],["y"],[]]}', '{"a":["x"]}', '{"a":[{"b":1},{"b":null},{"c":2}]}',
    '{"a":[{"b":"x"}]}', '{"a":[{"b":[1,2]},{"b":[3]}]}', '{"a":[{"b":[[1],[2]]},{"b":[3,[4]]}]}',
    '{"a":[[],[]],"a":[[1]]}', '{"a":[[]],"a":[[1]]}', '{"a":{"b":"q","b":["r"]}}',
    '{"a":[[[1,[2]],"x"],[[3]]]}', '[1,"a",null,{"a":2}]', '[{"a":"x"},{"a":"y"}]', '[{"a":"x"}]',
    '["x"]', "[[[]]]", '{"a b":1,"a.b":2,"":3,"é":"ü"}', "/**/{}",
    '{"a":' + "[" * 250 + "]" * 250 + "}",
]  # fmt: skip
PATHS = [
    "$", "$.a", "$.a.b", "$['a']", "$['a']['b']", "$.a['b']", "$.a[0]", "$.a[1]", "$.a[00]",
    "$[0]", "$[3].a", "$[99999999999]", "$.a.b[2].c", "$.a b", "$['a.b']", "$.é", "$.A",
    "$.a[0][0]", "$.a.b[0]", "$.a[*]", "$[*]", "$.a[*].b", "$[*].a", "$.a[*].b[*]", "$.a[*].b[0]",
    "$.a[*][*]", "$[*][*]", "$.a[0][*]", "$.a[*][0]", "$.a[*].b[*][*]", "$.a[0][*][*]",
    "$.a[*][*][*]",
]  # fmt: skip
NO_PATHS = [
    "", "a", "$.", "$..a", "$.*", "$['*']", "$.a.*", "$[ 0 ]", "$ .a", "$. a", "$.a ", "$.a[-1]",
    '$["a"]', "$['']", "$.a?", "$['a?']", "$.a]", '$."a"', "$[]", "$.a[", "$a",
]  # fmt: skip


def asked(path: str) -> str:
    quoted = path.replace("'", "\\'")
    return f"get_json_object(j, '{quoted}')"


def table(documents: list[str | None]) -> pa.Table:
    return pa.table({"j": pa.array(documents, pa.string())})


@pytest.mark.spark
def test_spark_finds_the_same(spark):
    rows = table(DOCUMENTS)
    found = compare(Oracle(spark, rows), rows, [(asked(p), asked(p)) for p in PATHS])
    assert found.compared == len(PATHS)
    assert list(map(str, found.differences)) == []


def drawn(rng: random.Random, depth: int = 0) -> str:
    """A document, well formed or nearly so."""
    blank = rng.choice(["", "", "", " ", "\n"])
    inner = [drawn(rng, depth + 1) for _ in range(rng.randint(0, 3) if depth < 4 else 0)]
    names = [rng.choice(['"a"', '"b"', "'a'", '"a\\u0062"', '"c"']) for _ in inner]
    plain = rng.choice(
        ["1", "-2.50", "null", "true", '"x"', "'y\"'", '"é😀"', '"\\t"', "1e3", "0.1"]
    )
    if rng.random() < 0.02:
        return rng.choice(["", "tru", '"', "]", ",", "nan", "'", "00"])
    if depth and (not inner or rng.random() < 0.3):
        return blank + plain + blank
    if rng.random() < 0.5:
        return f"[{blank}{','.join(inner)}]"
    return "{" + ",".join(f"{n}{blank}:{v}" for n, v in zip(names, inner, strict=True)) + "}"


@pytest.mark.spark
def test_spark_finds_the_same_in_drawn_documents(spark):
    rng = random.Random(5)
    rows = table([drawn(rng) for _ in range(500)])
    found = compare(Oracle(spark, rows), rows, [(asked(p), asked(p)) for p in PATHS])
    assert list(map(str, found.differences)) == []


@pytest.mark.parametrize("path", NO_PATHS)
def test_a_path_that_is_none_is_refused(path):
    with pytest.raises(PlanError, match="HR-EXPR-003") as error:
        as_expr(asked(path), schema_of("j string"))
    assert "not a path into a document" in str(error.value)


def test_a_path_is_a_literal():
    with pytest.raises(PlanError, match="text literal"):
        as_expr("get_json_object(j, j)", schema_of("j string"))


UNCERTAIN = {
    "[" * 300 + "]" * 300: "levels deep",
    "[" * 100_000: "levels deep",
    f"[{'1' * 1001}]": "a number has more than 1000",
    '"\\udc00\\udc00"': "halves of surrogate pairs",
    "true\u20ac": "where the document ends",
    '{"%s":1}' % ("a" * 50_001): "a name has more than",
}  # fmt: skip


@pytest.mark.parametrize(("document", "said"), UNCERTAIN.items(), ids=UNCERTAIN.values())
def test_a_document_of_which_it_is_not_certain_fails_its_row_alone(document, said):
    rows = table(['{"a":1}', document, "[2]"])
    first, bad, last = by_kernel(rows, "get_json_object(j, '$')")
    assert (first, last) == ('{"a":1}', "[2]")
    assert isinstance(bad, Failure) and said in bad.why


def test_doubles_are_spelt_as_java_spells_them():
    # from the examples and rules of java.lang.Double.toString in Java 19 and later
    spelt = {
        2e23: "2.0E23", 4.9e-324: "4.9E-324", 1e-3: "0.001", 9.999e-4: "9.999E-4", 1e7: "1.0E7",
        9999999.0: "9999999.0", 100.0: "100.0", -1234.5: "-1234.5",
        1.7976931348623157e308: "1.7976931348623157E308", 0.1 + 0.2: "0.30000000000000004",
        -1e-5: "-1.0E-5", 12345678.9: "1.23456789E7",
    }  # fmt: skip
    assert {value: java_double(value) for value in spelt} == spelt
