"""Carriage returns in CSV: at the end of a line, inside quotes, and where none may be."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import InputError
from headrace.schema import schema_of
from headrace.sources.formats import LONE_RETURN, MISQUOTED, PLAIN, csv_header, decode_csv

AB = schema_of("a string, b int")


@pytest.mark.parametrize("line", [b"x\ry,1", b"x,1\r2", b"x,1\ry,2", b"\r\r", b"x\r\r,1"])
def test_a_carriage_return_between_fields_is_the_reason_that_is_named(line):
    rows, bad, reasons = decode_csv(pa.array([b"z,2", line, b"z,3"]), AB, None, PLAIN)
    assert (rows.column("b").to_pylist(), bad.tolist()) == ([2, 3], [False, True, False])
    assert reasons == [LONE_RETURN]


def test_one_inside_quotes_is_text():
    rows, bad, _ = decode_csv(pa.array([b'"x\ry",1']), AB, None, PLAIN)
    assert (rows.to_pylist(), bad.any()) == ([{"a": "x\ry", "b": 1}], False)


def test_a_quote_is_still_the_reason_where_one_is():
    _, _, reasons = decode_csv(pa.array([b'"x,1']), AB, None, PLAIN)
    assert reasons == [MISQUOTED]


def test_a_header_of_lines_that_end_with_a_carriage_return_alone():
    with pytest.raises(InputError) as caught:
        csv_header("a.csv", "a,b\rx,1\ry,2\r\n", ",")
    assert LONE_RETURN in caught.value.message


@pytest.mark.parametrize("line", [b"", b"\r"])
def test_a_record_of_nothing_but_a_carriage_return_is_empty(line):
    """It was a row of nulls."""
    rows, bad, reasons = decode_csv(pa.array([b"z,2", line]), AB, None, PLAIN)
    assert (rows.num_rows, bad.tolist(), reasons) == (1, [False, True], ["an empty record"])
