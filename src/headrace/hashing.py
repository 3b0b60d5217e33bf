"""Key hashes: one uint64 per row, and the slot and the task that it belongs to.

The hash of a key never changes: not with versions, machines, chunking, the width of an
integer or dictionary encoding, because state files and topics are laid out by it. Slots
and tasks grow with the hash, so what is sorted by hash is sorted by slot and by task.
Equal keys have equal hashes; unequal ones may too, and whoever stores keys compares them.
No state and no randomness here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.errors import PlanError

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_JOIN = np.uint64(0x9FB21C651E98DF25)
_NULL = np.uint64(0x6E756C6C2E6B6579)  # "null.key": a null is a value like any other
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_BLOCK = 1 << 14  # rows of text hashed at a time, so that what is in between stays in cache
_WORDS_BY_COLUMN = 16  # longer texts than 128 bytes are rare: their tails go another way
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": -1_000}  # negative: divide


def hash_keys(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int = 0) -> Hashes:
    """The hash of each row of the key `columns`; `rows` zeros if there are no columns."""
    if not columns:
        return np.zeros(rows, np.uint64)
    first, *rest = (_column(c) for c in columns)
    for column in rest:
        first = mixed(first * _JOIN + column)
    return first


def seed_of(seed: int, step: str) -> int:
    """A seed from that of the user and the name of a step: each step draws independently."""
    both = hash_keys([pa.array([seed], pa.int64()), pa.array([step], pa.string())])
    return int(both.astype(np.int64)[0])


def with_plain_keys(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows with keys that are the same bits where they are equal; see `plain_floats`."""
    for name in keys:
        column = rows.column(name)
        if pt.is_floating(column.type):
            place = rows.column_names.index(name)
            rows = rows.set_column(place, rows.schema.field(place), plain_floats(column))
    return rows


def plain_floats(column: pa.Array | pa.ChunkedArray) -> Any:
    """0.0 for -0.0, and the same NaN for all: Arrow groups by bits, and would separate them."""
    if pt.is_float16(column.type):  # no arithmetic of its own
        return plain_floats(column.cast(pa.float32())).cast(column.type)
    zero, nan = (pa.scalar(value, column.type) for value in (0.0, float("nan")))
    column = pc.add(column, zero)
    return pc.if_else(pc.is_nan(column), nan, column)


def slots_of(hashes: Hashes, slots: int) -> Ints:
    """The slot of each hash: its share of the key space, from 0 to `slots` - 1."""
    scaled: Hashes = ((hashes >> np.uint64(32)) * np.uint64(slots)) >> np.uint64(32)
    return scaled.astype(np.int64)


def slot_range(task: int, tasks: int, slots: int) -> tuple[int, int]:
    """The slots [lo, hi) that `task` of `tasks` holds; empty for some if tasks > slots."""
    return task * slots // tasks, (task + 1) * slots // tasks


def tasks_of(hashes: Hashes, slots: int, tasks: int) -> Ints:
    """The task that holds the slot of each hash: the inverse of `slot_range`."""
    holders: Ints = ((slots_of(hashes, slots) + 1) * tasks - 1) // slots
    return holders


def first_hash(slot: int, slots: int) -> int:
    """The smallest hash in `slot`; 2**64 for the slot after the last."""
    return -(-(slot << 32) // slots) << 32


def block_starts(hashes: Hashes, blocks: int) -> Hashes:
    """The smallest hash of the block of each, where there are `blocks` shares of the key space."""
    wide = np.uint64(blocks)
    first = (slots_of(hashes, blocks).view(np.uint64) << np.uint64(32)) + wide - np.uint64(1)
    starts: Hashes = first // wide << np.uint64(32)
    return starts


def hash_family(kind: pa.DataType) -> str:
    """The types whose equal values have equal hashes, as a text that stays.

    Widths do not matter, nor does a dictionary; values of different families are never compared.
    """
    if pt.is_dictionary(kind):
        return hash_family(kind.value_type)
    if pt.is_decimal(kind):
        return f"decimals with {kind.scale} decimal places"
    found = (name for fits, name in _FAMILIES if fits(kind))
    return next(found, str(kind))


def mixed(values: Hashes) -> Hashes:
    """splitmix64: a bijection, so different integers never share a hash."""
    x = values + _GOLDEN
    x ^= x >> np.uint64(30)
    x *= _MIX1
    x ^= x >> np.uint64(27)
    x *= _MIX2
    x ^= x >> np.uint64(31)
    return x


def _column(column: pa.Array | pa.ChunkedArray) -> Hashes:
    if isinstance(column, pa.ChunkedArray):
        parts = [_array(chunk) for chunk in column.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.zeros(0, np.uint64)])
    return _array(column)


def _array(array: pa.Array) -> Hashes:
    if pt.is_null(array.type):
        return np.full(len(array), _NULL, np.uint64)
    hashes = _dictionary(array) if pt.is_dictionary(array.type) else _values(array)
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _dictionary(array: pa.DictionaryArray) -> Hashes:
    if len(array.dictionary) == 0:
        return np.full(len(array), _NULL, np.uint64)
    at: Ints = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return _array(array.dictionary)[at]


def _values(array: pa.Array) -> Hashes:
    for fits, words in _WORDS:
        if fits(array.type):
            return words(array)
    raise PlanError(
        "HR-KEY-001",
        f"a value of type {array.type} cannot be a key",
        "Key by booleans, numbers, texts, bytes, dates or timestamps.",
    )


def _raw(array: pa.Array, dtype: str, per_row: int = 1) -> npt.NDArray[Any]:
    """The values under `array`, those under its nulls included, without a copy."""
    buffer, count = array.buffers()[1], (array.offset + len(array)) * per_row
    if buffer is None or not len(array):
        return np.zeros(0, dtype)
    return np.frombuffer(buffer, dtype, count)[array.offset * per_row :]


def _integers(array: pa.Array) -> Hashes:
    sign = "i" if pt.is_signed_integer(array.type) else "u"
    return mixed(_wide(_raw(array, f"<{sign}{array.type.bit_width // 8}")))


def _wide(values: npt.NDArray[Any]) -> Hashes:
    """As 64 bits, the sign kept, so that the width of the column does not matter."""
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
    return wide.view(np.uint64)


def _booleans(array: pa.Array) -> Hashes:
    return _integers(array.cast(pa.uint8()))


def _floats(array: pa.Array) -> Hashes:
    values = _raw(array, f"<f{array.type.bit_width // 8}").astype(np.float64)
    values[values == 0] = 0.0  # -0.0 is the same key
    values[np.isnan(values)] = np.nan  # and so are all NaNs
    return mixed(values.view(np.uint64))


def _times(array: pa.Array) -> Hashes:
    values = _wide(_raw(array, f"<i{array.type.bit_width // 8}")).view(np.int64)
    factor = _MICROS[array.type.unit]
    micros = values * factor if factor > 0 else values // -factor
    return mixed(micros.view(np.uint64))


def _dates(array: pa.Array) -> Hashes:
    if pt.is_date32(array.type):
        return mixed(_wide(_raw(array, "<i4")))
    return mixed(_wide(_raw(array, "<i8") // 86_400_000))


def _decimals(array: pa.Array) -> Hashes:
    """By the unscaled value: the width of the decimal does not matter, its scale does."""
    words = array.type.bit_width // 64
    if words < 2:
        low = _wide(_raw(array, f"<i{array.type.bit_width // 8}"))
        high = (low.view(np.int64) >> 63).view(np.uint64)
    else:
        raw = _raw(array, "<u8", words)
        low, high = raw[0::words], raw[1::words]
    return mixed(mixed(high) + low)


def _texts(array: pa.Array) -> Hashes:
    size = 8 if pt.is_large_string(array.type) or pt.is_large_binary(array.type) else 4
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(0, np.uint64)
    stop = array.offset + len(array) + 1
    ends = np.frombuffer(offsets, f"<i{size}", stop)[array.offset :].astype(np.int64)
    return _bytes(data, ends[:-1], np.diff(ends))


def _views(array: pa.Array) -> Hashes:
    return _texts(array.cast(pa.large_binary()))


def _fixed(array: pa.Array) -> Hashes:
    width = array.type.byte_width
    starts = (np.arange(len(array), dtype=np.int64) + array.offset) * width
    return _bytes(array.buffers()[1], starts, np.full(len(array), width, np.int64))


def _bytes(buffer: pa.Buffer | None, starts: Ints, lengths: Ints) -> Hashes:
    """Sum of the mixed 8-byte words, each seeded by its place, then mixed again."""
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    if len(data) < 8:
        data = np.concatenate([data, np.zeros(8, np.uint8)])
    hashes = np.empty(len(starts), np.uint64)
    for at in range(0, len(starts), _BLOCK):
        rows = slice(at, at + _BLOCK)
        hashes[rows] = mixed(_sum_of_words(data, starts[rows], lengths[rows]))
    return hashes


def _sum_of_words(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints) -> Hashes:
    """A sum can be taken in any order: all first words, all second words, and so on, and then
    the few long tails."""
    total = lengths.view(np.uint64) * _GOLDEN
    for word in range(_WORDS_BY_COLUMN):
        longer = lengths > 8 * word
        if not longer.any():
            return total
        rows = slice(None) if longer.all() else np.flatnonzero(longer)
        seed = mixed(np.full(1, word + 1, np.uint64))
        at, left = starts[rows] + 8 * word, lengths[rows] - 8 * word
        total[rows] += mixed(_load(data, at, left) ^ seed)
    for row in np.flatnonzero(lengths > 8 * _WORDS_BY_COLUMN):
        total[row : row + 1] += _tail(data, int(starts[row]), int(lengths[row]))
    return total


def _tail(data: npt.NDArray[np.uint8], start: int, length: int) -> Hashes:
    words = np.arange(_WORDS_BY_COLUMN, -(-length // 8), dtype=np.int64)
    seeds = mixed((words + 1).view(np.uint64))
    words_mixed = mixed(_load(data, start + 8 * words, length - 8 * words) ^ seeds)
    return np.add.reduce(words_mixed, keepdims=True)


def _load(data: npt.NDArray[np.uint8], at: Ints, left: Ints) -> Hashes:
    """The little-endian word at each place `at`, zero beyond the `left` bytes of its text."""
    words: Hashes = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    inside = np.minimum(at, len(data) - 8)  # a word may not reach over the end of the data
    word = words[inside] >> ((at - inside) * 8).view(np.uint64)
    unused = ((8 - np.minimum(left, 8)) * 8).view(np.uint64)
    return word & (_ALL >> unused)


_WORDS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Hashes]]] = [
    (pt.is_integer, _integers),
    (lambda t: pt.is_string(t) or pt.is_binary(t), _texts),
    (lambda t: pt.is_large_string(t) or pt.is_large_binary(t), _texts),
    (lambda t: pt.is_timestamp(t) or pt.is_time(t) or pt.is_duration(t), _times),
    (pt.is_floating, _floats),
    (pt.is_boolean, _booleans),
    (pt.is_date, _dates),
    (pt.is_decimal, _decimals),
    (lambda t: pt.is_string_view(t) or pt.is_binary_view(t), _views),
    (pt.is_fixed_size_binary, _fixed),
]

_FAMILIES: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (pt.is_signed_integer, "whole numbers"),
    (pt.is_floating, "floating-point numbers"),
    (lambda t: pt.is_string(t) or pt.is_large_string(t) or pt.is_string_view(t), "texts"),
    (lambda t: pt.is_binary(t) or pt.is_large_binary(t) or pt.is_binary_view(t), "bytes"),
    (pt.is_boolean, "booleans"),
    (pt.is_date, "dates"),
    (lambda t: pt.is_timestamp(t) and t.tz is not None, "timestamps"),
    (pt.is_timestamp, "timestamps without a time zone"),
]


def hash_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether equal values of two types have equal hashes."""
    return pt.is_null(one) or pt.is_null(other) or hash_family(one) == hash_family(other)
