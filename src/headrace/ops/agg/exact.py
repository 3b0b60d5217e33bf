"""Sums of doubles without rounding: the same bits, however rows are split and ordered.

A double is a few *digits* to the base 2**32: x = sum of d[j] * 2**(32 j), each d[j] an integer of
at most 2**32 either way, found by rounding x to multiples of 2**(32 j), largest first. The digits
of many values add up as integers, exactly and in any order; only the result is rounded, once. So it
is what `math.fsum` gives. inf and NaN have no digits; their sum lies beside, as IEEE adds them up.

A partial is a list of integers: the place of its lowest digit, then the digits; or `SPECIAL` and
the bits of an inf or a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.ops.agg.groups import Column, Grouping, Index, Mask, array, flat, floats, valid
from headrace.ops.agg.span import ADD, Span

DIGITS = pa.list_(pa.int64())
SPECIAL = 1_000  # the place of no digit: doubles have places from -34 to 32
_BITS = 32
_HALF = 1 << (_BITS - 1)
_TOP = 31  # 2**(32 j) is no double above; rounding up here could go beyond the largest one
_EXACT = 1 << 21  # so many digits add up exactly as doubles

Floats = npt.NDArray[np.float64]
Digits = Callable[[], pa.Array]


@dataclass(frozen=True, slots=True)
class Places:
    """Numbers by digit: `digits[i][r]` is that of row r at place `low + i`."""

    low: int
    digits: Sequence[Index | Floats]
    special: Floats | None = None  # what is not finite, 0 elsewhere


def split_up(values: Floats) -> Places:
    """Each value as digits, all rows at the same places."""
    special, top = None, _largest(values)
    if not np.isfinite(top):
        finite = np.isfinite(values)
        special, values = np.where(finite, 0.0, values), np.where(finite, values, 0.0)
        top = _largest(values)
    place = min(-((_BITS - 1 - int(np.frexp(top)[1])) // _BITS), _TOP)
    digits: list[Floats] = []
    rest = values
    while not digits or rest.any():
        digit = _scaled(rest, -_BITS * place)
        np.trunc(digit, out=digit) if place == _TOP else np.rint(digit, out=digit)
        taken = _scaled(digit, _BITS * place)
        rest = np.subtract(rest, taken, out=taken)
        digits.append(digit)
        place -= 1
    return Places(place + 1, digits[::-1], special)


def _largest(values: Floats) -> float:
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def _scaled(values: Floats, exponent: int) -> Floats:
    """values * 2**exponent, which no step of it may round."""
    if -1_000 < exponent < 1_000:
        return np.asarray(values * 2.0**exponent)
    return np.asarray(np.ldexp(values, exponent))


def whole(values: Index) -> Places:
    """Integers as digits."""
    return Places(0, [values & ((1 << _BITS) - 1), values >> _BITS])


def encoded(numbers: Places, present: Mask | None = None) -> pa.Array:
    """As a column of partials, null where `present` is false."""
    rows = len(numbers.digits[0])
    low, digits = numbers.low, _carried(numbers.digits)
    table = np.empty((rows, len(digits) + 1), np.int64)
    for i, digit in enumerate(digits):
        table[:, i + 1] = digit
    some = table[:, 1:] != 0
    first = np.argmax(some, axis=1)
    last = np.where(some.any(axis=1), len(digits) - np.argmax(some[:, ::-1], axis=1), first)
    place = np.arange(len(digits))
    kept = np.ones(table.shape, np.bool_)
    kept[:, 1:] = (place >= first[:, None]) & (place < last[:, None])
    table[:, 0] = low + first
    odd = None if numbers.special is None else np.flatnonzero(numbers.special)
    if odd is not None and len(odd):  # NaN is not zero either
        assert numbers.special is not None
        table[odd, 0], table[odd, 1] = SPECIAL, numbers.special[odd].view(np.int64)
        kept[odd, 1], kept[odd, 2:] = True, False
    sizes = kept.sum(axis=1)
    if present is not None:
        kept[~present], sizes[~present] = False, 0
    offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
    mask = None if present is None or present.all() else pa.array(~present)
    return pa.ListArray.from_arrays(offsets, pa.array(table[kept]), mask=mask)


def _carried(digits: Sequence[Index | Floats]) -> list[Index]:
    """Sums of digits as digits again."""
    carried: list[Index] = []
    carry: Index = np.zeros(len(digits[0]), np.int64)
    for digit in digits:
        total = np.asarray(digit).astype(np.int64) + carry
        carry = (total + _HALF) >> _BITS
        carried.append(total - (carry << _BITS))
    while carry.any():
        total, carry = carry, (carry + _HALF) >> _BITS
        carried.append(total - (carry << _BITS))
    return carried


def decoded(column: Column) -> Places:
    """The digits of a column of partials; zero where it is null."""
    lists = flat(column)
    sizes = np.diff(lists.offsets.to_numpy())
    if lists.null_count:
        sizes = np.where(valid(lists), sizes, 0)
    values = lists.flatten().to_numpy()
    starts = np.cumsum(sizes) - sizes
    there = np.flatnonzero(sizes)
    low = np.zeros(len(sizes), np.int64)
    low[there] = values[starts[there]]
    odd = np.flatnonzero(low == SPECIAL)
    special = None
    if len(odd):
        special = np.zeros(len(sizes))
        special[odd] = values[starts[odd] + 1].view(np.float64)
    counts = np.maximum(sizes - 1, 0)
    counts[odd] = 0
    if len(counts) and (counts == counts[0]).all() and counts[0] and (low == low[0]).all():
        table = values.reshape(len(sizes), -1)  # all alike
        return Places(int(low[0]), [table[:, i + 1] for i in range(int(counts[0]))], special)
    bottom = int(low[counts > 0].min(initial=SPECIAL))
    bottom = 0 if bottom == SPECIAL else bottom
    width = int((low + counts)[counts > 0].max(initial=bottom)) - bottom
    table = np.zeros((max(width, 1), len(sizes)), np.int64)
    for i in range(int(counts.max(initial=0))):
        mine = np.flatnonzero(counts > i)
        table[low[mine] - bottom + i, mine] = values[starts[mine] + 1 + i]
    return Places(bottom, [*table], special)


@np.errstate(over="ignore")
def rounded(column: Column) -> Floats:
    """The nearest double of each partial; ties go to the even one, as everywhere."""
    numbers = decoded(column)
    digits = _carried(numbers.digits)
    rows = len(digits[0])
    top = np.zeros(rows, np.int64)
    for i, digit in enumerate(digits):
        top[digit != 0] = i
    high, rest, tail = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    for i in range(len(digits) - 1, -1, -1):  # in units of the highest digit that is not zero
        exact = rest == 0
        tail = np.where(exact | (tail != 0), tail, np.sign(digits[i]))
        digit = np.where(exact, np.ldexp(digits[i].astype(np.float64), _BITS * (i - top)), 0.0)
        total = high + digit
        rest = np.where(exact, digit - (total - high), rest)
        high = total
    beyond = high + rest * 2  # rest is half a unit of the last place, and more comes after it
    up = (np.sign(rest) == tail) & (tail != 0) & (beyond - high == rest * 2)
    high = np.ldexp(np.where(up, beyond, high), _BITS * (numbers.low + top))
    if numbers.special is not None:
        odd = numbers.special != 0
        high = np.where(odd, np.where(np.isnan(numbers.special), np.nan, numbers.special), high)
    return high


def ask_digits(grouping: Grouping, label: str, numbers: Places) -> Digits:
    """Ask for the sum of these numbers per group, as partials."""
    tickets = [
        grouping.ask(f"{label}:{numbers.low + i}", _column(digit), "sum")
        for i, digit in enumerate(numbers.digits)
    ]
    special = None
    if numbers.special is not None:
        special = grouping.ask(f"{label}:special", pa.array(numbers.special), "sum")

    def finish() -> pa.Array:
        sums = [_plain(grouping.answer(ticket)) for ticket in tickets]
        odd = None if special is None else floats(grouping.answer(special))
        return encoded(Places(numbers.low, sums, odd))

    return finish


def _column(digit: Index | Floats) -> pa.Array:
    """Doubles where they add up exactly, which is the faster way."""
    kind = np.float64 if len(digit) < _EXACT else np.int64
    return pa.array(digit.astype(kind, copy=False))


def _plain(sums: Column) -> Index | Floats:
    found: Index | Floats = flat(sums).to_numpy(zero_copy_only=False)
    return found


def ask_floats(grouping: Grouping, label: str, values: Column) -> Digits:
    """Ask for the exact sum of doubles per group; null where a group has none."""
    known = grouping.shared.get(f"{label}:digits")
    if known is None:
        filled = values.fill_null(0.0) if values.null_count else values
        known = grouping.shared[f"{label}:digits"] = split_up(floats(filled))
    digits = ask_digits(grouping, label, known)
    return _or_null(grouping, label, values, digits)


def ask_partials(grouping: Grouping, label: str, column: Column) -> Digits:
    """Ask for the sum of partials per group; null where all are."""
    digits = ask_digits(grouping, label, decoded(column))
    return _or_null(grouping, label, column, digits)


def _or_null(grouping: Grouping, label: str, values: Column, digits: Digits) -> Digits:
    if not values.null_count:
        return digits
    there = array(valid(values).astype(np.int64), pa.int64())
    ticket = grouping.ask(f"{label}:there", there, "sum")

    def finish() -> pa.Array:
        some = pc.greater(flat(grouping.answer(ticket)), 0)
        return pc.if_else(some, digits(), pa.scalar(None, DIGITS))

    return finish


def singles(values: Column) -> pa.Array:
    """Each double as a partial of its own."""
    filled = values.fill_null(0.0) if values.null_count else values
    return encoded(split_up(floats(filled)), valid(values) if values.null_count else None)


@np.errstate(invalid="ignore")
def combined(column: Column, present: Mask | None, span: Span) -> pa.Array:
    """The sum of the partials of each stretch."""
    numbers = decoded(column)
    sums = [span.reduce(ADD, [digit])[0] for digit in numbers.digits]
    odd = None
    if numbers.special is not None:
        odd = span.reduce(ADD, [numbers.special])[0]
    return encoded(Places(numbers.low, sums, odd), present)
