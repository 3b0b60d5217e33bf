"""json_array_length, json_object_keys, json_long and the others, against Python's own reading."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.expr.spark_oracle import by_kernel

MALFORMED = [
    "[1,]", "[1,2, ]", '{"a":1,}', '{"a":[1,\n]}', '[{"a":1,},2]', '{"a":nan}', '{"a":-Infinity}',
    "[Inf]", '{"a":"x,}","b":NaN}', '{"a":1} x', '{"a":01}', '{"a":+1}', "{'a':1}", '{"a":1.}',
    '{"a":.5}', "[1 2]", '/*c*/{"a":1}', "", '{"a":"\n"}', '{"a":1',
]  # fmt: skip
GOOD = [
    '{"a":"x,}","b":[]}', '{"nan":1,"a":2}', '{"a":"\\"nan,]"}', '["a,]","inf",null]', "[ ]",
    '{"a":"\\\\"}', '{"a":1.0}', '{"a":-0}', '{"a":true}', '{"a":9223372036854775807}', "5", '"x"',
    '{"a":1,"a":2}', ' {"a":1e5} ', '{"a":"information"}', '["\\\\\\"",",]"]',
]  # fmt: skip
KINDS = {"json_text": str, "json_long": int, "json_double": (int, float), "json_bool": bool}


def read(document: str) -> Any:
    """The document by Python's strict reading, objects as pairs; None if it is malformed."""

    def refused(word: str) -> Any:
        raise ValueError(word)

    try:
        return json.loads(document, object_pairs_hook=tuple, parse_constant=refused)
    except ValueError:
        return None


def expected(document: str) -> dict[str, Any]:
    made = read(document)
    pairs = made if isinstance(made, tuple) else ()
    first = next((v for k, v in pairs if k == "a"), None)

    def of(kind: Any) -> Any:
        fits = isinstance(first, kind) and (kind is bool or not isinstance(first, bool))
        return (float(first) if kind == (int, float) else first) if fits else None

    return {
        "json_array_length(s)": len(made) if isinstance(made, list) else None,
        "json_object_keys(s)": [k for k, _ in pairs] if isinstance(made, tuple) else None,
        **{f"{name}(s, '$.a')": of(kind) for name, kind in KINDS.items()},
    }


def found(documents: list[str]) -> list[dict[str, Any]]:
    table = pa.table({"s": pa.array(documents, pa.string())})
    made = {text: by_kernel(table, text) for text in expected("")}
    return [{text: values[i] for text, values in made.items()} for i in range(len(documents))]


@pytest.mark.parametrize("document", MALFORMED)
def test_a_malformed_document_has_no_values(document):
    assert set(map(str, found([document])[0].values())) == {"None"}


def test_documents_are_read_as_python_reads_them():
    documents = [*MALFORMED, *GOOD]
    assert found(documents) == [expected(d) for d in documents]


PIECES = ["{", "}", "[", "]", ",", ":", " ", '"a"', '"x,]"', '"\\\\"', "1", "-2.5", "true", "null",
          "NaN", "Infinity", '"a":', '"nan"', ",]", ",}"]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=7).map("".join), min_size=40))
@settings(max_examples=25, deadline=None)
def test_drawn_documents_are_read_as_python_reads_them(drawn):
    documents = [*drawn, *(f"[{d}]" for d in drawn), *(f'{{"a":{d}}}' for d in drawn)]
    assert found(documents) == [expected(d) for d in documents]
