"""Exact sums: integers and decimals are exact or an error; doubles are in `exact.py`.

Arrow's own integer sum wraps around. A cheap bound on the result shows that nearly always
it cannot; where it might, the halves of each number are summed separately and joined with a
check.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, array, flat, integers, valid
from headrace.ops.agg.exact import TERMS, ask_floats, ask_partials
from headrace.ops.agg.groups import Grouping

_LIMIT = 2**63
_HALF = 2**32
_DIGITS = 38

Summed = Callable[[], Column]


class Overflow(ArithmeticError):
    """A sum that is larger than its type; the text says what it does not fit in."""


def ask_sum(grouping: Grouping, label: str, values: Column) -> Summed:
    """Ask for the sum per group; null where a group has no value."""
    if pa.types.is_integer(values.type):
        return _ask_integers(grouping, label, values)
    if pa.types.is_decimal(values.type):
        return _ask_decimals(grouping, label, values)
    if pa.types.is_list(values.type):
        return ask_partials(grouping, label, values)
    return ask_floats(grouping, label, values.cast(pa.float64()))


def _ask_integers(grouping: Grouping, label: str, values: Column) -> Summed:
    if fits(values):
        ticket = grouping.ask(label, values, "sum")
        return lambda: grouping.answer(ticket).cast(pa.int64())
    whole = whole_numbers(values)
    high = grouping.ask(f"{label}:high", pc.shift_right(whole, 32), "sum")
    low = grouping.ask(f"{label}:low", pc.bit_wise_and(whole, _HALF - 1), "sum")
    return lambda: joined(grouping.answer(high), grouping.answer(low))


def _ask_decimals(grouping: Grouping, label: str, values: Column) -> Summed:
    kind = sum_type(values.type)
    if values.type.precision + len(str(grouping.rows)) <= _DIGITS:
        ticket = grouping.ask(label, values.cast(kind), "sum")
        return lambda: grouping.answer(ticket).cast(kind)
    wide = pa.decimal256(76, kind.scale)
    ticket = grouping.ask(f"{label}:wide", values.cast(wide), "sum")
    return lambda: _narrowed(grouping.answer(ticket), kind)


def _narrowed(sums: Column, kind: pa.DataType) -> Column:
    try:
        return sums.cast(kind)
    except pa.ArrowInvalid as error:
        raise Overflow(f"{_DIGITS} digits") from error


def joined(high: Column, low: Column) -> pa.Array:
    """Sums of high halves and of low halves as the sums of the whole numbers, checked."""
    top, rest = integers(high), integers(low)
    top = top + (rest >> 32)
    if len(top) and (top.min() < -(_HALF // 2) or top.max() >= _HALF // 2):
        raise Overflow("64 bits")
    return array((top << 32) + (rest & (_HALF - 1)), pa.int64(), valid(high))


def limbs(column: Column) -> list[Index]:
    """A decimal column as four columns of 32 bits, lowest first; zero for null."""
    whole = flat(column.fill_null(0) if column.null_count else column)
    words = np.frombuffer(whole.buffers()[1], np.uint64).reshape(-1, 2)
    low, high = words[whole.offset : whole.offset + len(whole)].T
    mask = np.uint64(_HALF - 1)
    parts = [low & mask, low >> np.uint64(32), high & mask]
    return [*(p.astype(np.int64) for p in parts), high.view(np.int64) >> 32]


def from_limbs(parts: list[Index], kind: pa.DataType, present: object) -> pa.Array:
    """Sums of limbs as decimals of `kind`, checked."""
    carried, carry = [], np.zeros(len(parts[0]), np.int64)
    for part in parts:
        total = part + carry
        carried.append((total & (_HALF - 1)).astype(np.uint64))
        carry = total >> 32
    negative = carried[3] >= _HALF // 2
    words = np.stack([carried[0] | carried[1] << 32, carried[2] | carried[3] << 32], axis=1)
    shape = [None, pa.py_buffer(np.ascontiguousarray(words))]
    sums = pa.Array.from_buffers(kind, len(words), shape)
    try:
        sums.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Overflow(f"{_DIGITS} digits") from error
    if (carry != -negative.astype(np.int64)).any():
        raise Overflow(f"{_DIGITS} digits")
    return sums if present is None else pc.if_else(pa.array(present), sums, None)


def halves(values: Index) -> tuple[Index, Index]:
    return values >> 32, values & (_HALF - 1)


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of a sum: int64, float64, or a decimal with all the digits there are."""
    if pa.types.is_decimal(kind):
        return pa.decimal128(_DIGITS, kind.scale)
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


def partial_type(kind: pa.DataType) -> pa.DataType:
    """The type of a sum while it is added up."""
    return TERMS if pa.types.is_floating(kind) else sum_type(kind)


def cannot_overflow(values: Index, terms: int) -> bool:
    """No `terms` of these values can have a sum beyond int64."""
    if not len(values):
        return True
    return max(-int(values.min()), int(values.max())) * terms < _LIMIT


def whole_numbers(values: Column) -> Column:
    """Integers of any width as int64."""
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise Overflow("64 bits") from error


def fits(values: Column) -> bool:
    """Whether no sum of these integers can go beyond int64."""
    if values.type.bit_width < 64 and len(values) < _HALF // 2:
        return True
    if pa.types.is_uint64(values.type):
        return False
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return all(cannot_overflow(_raw(c), len(values)) for c in chunks)


def _raw(chunk: pa.Array) -> Index:
    """The buffer itself: what lies under a null may raise the bound but not hide a value."""
    if not len(chunk):
        return np.empty(0, np.int64)
    whole = np.frombuffer(chunk.buffers()[1], np.int64)
    return whole[chunk.offset : chunk.offset + len(chunk)]
