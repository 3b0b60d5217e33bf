"""What Arrow writes behind the rows of a slice, seen and left out."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.spare_bytes import has_spare, without_spare

N = 40
COLUMNS = {
    "text": pa.array([f"w{i}" if i % 7 else None for i in range(N)]),
    "long text": pa.array([f"w{i}" for i in range(N)], pa.large_string()),
    "bytes": pa.array([b"x%d" % i for i in range(N)]),
    "number": pa.array(range(100, 100 + N)),
    "decimal": pa.array([Decimal(i + 1) for i in range(N)], pa.decimal128(10, 2)),
    "fixed": pa.array([b"%04d" % i for i in range(N)], pa.binary(4)),
    "list": pa.array([[f"a{i}"] * (1 + i % 3) for i in range(N)]),
    "map": pa.array([[(f"k{i}", i)] for i in range(N)], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"a": i, "b": f"q{i}"} for i in range(N)]),
    "pair": pa.array([[i + 1, i + 2] for i in range(N)], pa.list_(pa.int64(), 2)),
    "deep": pa.array([[{"x": f"deep{i}"}] for i in range(N)]),
    "dictionary": pa.array([f"z{i % 5}" for i in range(N)]).dictionary_encode(),
}


def stored(table: pa.Table) -> tuple[bytes, pa.Table]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes(), pa.ipc.open_stream(sink.getvalue()).read_all()


@pytest.mark.parametrize("start", [0, 3, N - 2])
@pytest.mark.parametrize("kind", sorted(COLUMNS))
def test_bytes_of_other_rows_are_seen_and_left_out(kind: str, start: int) -> None:
    whole = pa.table({"c": COLUMNS[kind]})
    part = whole.slice(start, 2)
    assert not has_spare(whole) and has_spare(part)
    raw, clean = stored(without_spare(part))
    assert clean.to_pylist() == part.to_pylist() and clean.schema == part.schema
    assert not has_spare(clean)
    texts = [str(value).encode() for value in COLUMNS["text"].to_pylist()]
    if kind == "text":
        assert not any(text in raw for text in [*texts[10:start], *texts[start + 2 :]])


def test_what_is_behind_the_rows_of_a_slice_is_written() -> None:
    """Why this is needed: if Arrow ever stops doing so, much of it may go."""
    raw, again = stored(pa.table({"c": ["mine", "another's"]}).slice(0, 1))
    assert b"another's" in raw and again.to_pylist() == [{"c": "mine"}] and has_spare(again)
