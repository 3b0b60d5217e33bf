"""Chunks on their way: what arrives is what was sent, whatever the columns and the order."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.chunk import HASH
from headrace.epoch.compact_columns import compact, dictionary_encoded, expand
from headrace.epoch.envelope import ChunkAssembler, Envelope, pack, send, unpack
from headrace.hashing import hash_keys

ROWS = 5_000  # enough to be made small
WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
         pa.uint64(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("us"),
         pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns"),
         pa.duration("us")]  # fmt: skip


def arrived(envelopes: list[Envelope]) -> list[pa.Table]:
    """What comes of them, through Arrow as on Spark."""
    arriving = ChunkAssembler()
    found = [arriving.add(e) for e in unpack([pack(envelopes)])]
    return [table for table in found if table is not None]


def whole(kind: pa.DataType, low: int, span: int, seed: int) -> pa.Array:
    """Numbers of a type in a range of the given span, its ends included."""
    rng = np.random.default_rng(seed)
    values = low + rng.integers(0, span, ROWS, np.uint64, endpoint=True).astype(object)
    values[:2] = low, low + span
    signed = "u" if pa.types.is_unsigned_integer(kind) else ""
    day = 86_400_000 if kind == pa.date64() else 1
    integers = pa.array([v * day for v in values], getattr(pa, f"{signed}int{kind.bit_width}")())
    return integers.view(kind)


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    kind = draw(st.sampled_from(WHOLE))
    unsigned, bits = pa.types.is_unsigned_integer(kind), kind.bit_width
    least, most = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if pa.types.is_time(kind):
        least, most = 0, 86_399_999
    if kind == pa.date64():
        least, most = -10_000, 10_000
    low = draw(st.integers(least, most) | st.sampled_from([least, most]))
    edges = [0, 1, 2**8 - 1, 2**8, 2**16 - 1, 2**16, 2**32 - 1, 2**32, most - low]
    span = min(draw(st.sampled_from(edges)), most - low)
    return whole(kind, low, span, draw(st.integers(0, 99)))


@settings(max_examples=200, deadline=None)
@given(st.lists(columns(), min_size=1, max_size=4))
def test_whole_numbers_and_times_arrive_as_they_were(given: list[pa.Array]) -> None:
    sent = pa.table(given, [f"c{i}" for i in range(len(given))])
    assert expand(compact(sent)).equals(sent)


def texts(different: int, rows: int = ROWS) -> pa.Array:
    picked = np.random.default_rng(different).integers(0, different, rows)
    return pa.array([f"Straße {i}" for i in picked])


OTHERS: dict[str, pa.Array] = {
    "floats": pa.array(np.linspace(-1, 1, ROWS)),
    "nulls": pa.array([None, 2**40] * (ROWS // 2)),
    "no values": pa.nulls(ROWS, pa.int64()),
    "nothing": pa.nulls(ROWS),
    "booleans": pa.array([True, False] * (ROWS // 2)),
    "lists": pa.array([[1, 2**40]] * ROWS),
    "bytes": pa.array([b"\0", b""] * (ROWS // 2)),
    "texts and nulls": pa.array(["a", None] * (ROWS // 2)),
    "one text": pa.array(["a"] * ROWS),
    "decimals": pa.array([1, 2] * (ROWS // 2)).cast(pa.decimal128(21, 2)),
    "spans": pa.array([timedelta(days=1)] * ROWS),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_columns_do_too(name: str) -> None:
    sent = pa.table({"other": OTHERS[name], "number": pa.array(range(ROWS))})
    assert expand(compact(dictionary_encoded(sent))).equals(sent)


@pytest.mark.parametrize("different", [1, 10, 300, 1_200, 5_000, 10**9])
def test_texts_are_coded_where_they_repeat(different: int) -> None:
    sent = pa.table({"text": texts(different)})
    assert pa.types.is_dictionary(dictionary_encoded(sent).schema.field(0).type) == (
        different <= 1_200
    )
    assert expand(compact(dictionary_encoded(sent))).equals(sent)


def test_a_sample_may_mislead() -> None:
    """All that is looked at is the same; all else is different."""
    values = [f"text {i}" for i in range(3 * 4_096)]
    for i in np.linspace(0, len(values) - 1, 4_096).astype(int):
        values[i] = "same"
    sent = pa.table({"text": values})
    assert dictionary_encoded(sent).equals(sent)


KEYS: dict[str, Any] = {
    "a number": {"k": pa.array(np.arange(ROWS) % 70_000)},
    "a text": {"k": texts(100)},
    "a rare text": {"k": texts(10**9)},
    "a float": {"k": pa.array([0.0, -0.0, 1.5, -2.5] * (ROWS // 4))},
    "none": {},
    "several": {"k": texts(100), "l": pa.array(np.arange(ROWS), pa.int32())},
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("half", [False, True])
def test_hashes_arrive_though_they_may_not_travel(name: str, half: bool) -> None:
    keys = KEYS[name]
    hashes = pa.array(hash_keys(list(keys.values()), ROWS))
    rows = pa.table({**keys, HASH: hashes, "n": pa.array(range(ROWS)), "one": [7] * ROWS})
    sent = dictionary_encoded(rows)
    if half:
        mask = pa.array([True] * 4_500 + [False] * 500)
        rows, sent = rows.filter(mask), sent.filter(mask)
    (found,) = arrived(list(send(1, 0, "step", 0, sent, [*keys])))
    assert found.equals(rows)
    travelled = compact(sent, [*keys]).column_names
    assert (HASH in travelled) == (name in ("a rare text", "a float"))
    assert "one" not in travelled


@pytest.mark.parametrize("rows", [1, 10, 5_000, 400_000])
def test_pieces_come_in_any_order(rows: int) -> None:
    rng = np.random.default_rng(1)
    sent = [pa.table({"n": rng.integers(0, 2**62, rows), "x": rng.random(rows)}) for _ in range(2)]
    envelopes = [e for table in sent for e in send(2, 1, "step", 3, table)]
    assert len(envelopes) > 2 or rows < 400_000
    random.Random(5).shuffle(envelopes)
    found = arrived(envelopes)
    assert sorted(found, key=_first) == sorted(sent, key=_first)
    assert {(e.level, e.task, e.op, e.port) for e in envelopes} == {(2, 1, "step", 3)}


def _first(table: pa.Table) -> Any:
    return table.column(0)[0].as_py()


def test_what_is_said_of_columns_and_chunks_stays() -> None:
    """Not null, metadata, dictionaries of the user's own, and texts in several chunks."""
    kinds = [
        pa.field("k", pa.string(), nullable=False, metadata={"unit": "one"}),
        pa.field("own", pa.dictionary(pa.int8(), pa.string())),
        pa.field("n", pa.int64(), nullable=False),
    ]
    part = [texts(50, 3_000), texts(2, 3_000).dictionary_encode().cast(kinds[1].type),
            pa.array(range(3_000))]  # fmt: skip
    parts = [pa.Table.from_arrays(part, schema=pa.schema(kinds, {"of": "the table"}))] * 2
    for rows in (pa.concat_tables(parts), parts[0]):
        sent = dictionary_encoded(rows)
        assert pa.types.is_dictionary(sent.schema.field("k").type) == (rows.num_rows > ROWS)
        for cut in (sent, sent.slice(0, 10)):
            (found,) = arrived(list(send(1, 0, "step", 0, cut)))
            assert found.equals(rows.slice(0, len(cut)).combine_chunks())
            assert found.schema.equals(rows.schema, check_metadata=True)


def test_a_small_cut_does_not_take_all_texts_along() -> None:
    rows = pa.table({"k": [f"a rather long text {i % 2_000}" for i in range(20_000)]})
    (cut,) = send(1, 0, "step", 0, dictionary_encoded(rows).slice(0, 100), ["k"])
    assert len(cut.payload) < 5_000


def test_columns_that_cannot_be_one_array_are_left_alone() -> None:
    """As texts of more than two gigabytes are, of which a table is made in several chunks."""
    several = pa.chunked_array([texts(10**9), texts(10**9)])
    sent = pa.table({"text": several, "n": pa.array(range(2 * ROWS))})
    assert compact(sent)["text"].num_chunks == 2
    assert expand(compact(sent)).equals(sent)


def test_a_piece_that_is_missing_is_told() -> None:
    envelopes = list(send(1, 0, "step", 0, pa.table({"x": np.random.rand(200_000)})))
    arriving = ChunkAssembler()
    assert [arriving.add(e) for e in envelopes[1:]] == [None] * (len(envelopes) - 1)
    with pytest.raises(RuntimeError, match="pieces of 1 chunks did not arrive"):
        arriving.finish()


def test_small_chunks_travel_as_they_are() -> None:
    sent = pa.table({"n": [1, 1, 1], "text": ["a", "a", "a"]})
    assert compact(dictionary_encoded(sent)).equals(sent)
    assert arrived(list(send(1, 0, "step", 0, sent))) == [sent]


def test_a_chunk_without_rows_is_not_sent_in_vain() -> None:
    sent = pa.table({"n": pa.array([], pa.int64())})
    assert arrived(list(send(1, 0, "step", 0, sent))) == [sent]
