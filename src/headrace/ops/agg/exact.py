"""Sums of doubles without rounding: the same bits, however rows are split and ordered.

Doubles that are multiples of one unit add up exactly as doubles, in any order, as long as no sum is
beyond 2**53 units. So a column is split into a few columns: each value rounded to a unit that is
large enough for all sums, then what remains, to a smaller unit, until nothing remains. Numbers of
few digits (measurements, prices in eighths) need one column, others two; the wider they range the
more. Only the result is rounded, once: it is what `math.fsum` gives.

A partial is a list of doubles whose sum it is. What is beyond 2**960, where sums could overflow,
follows after a NaN, in units of 2**960. A partial that holds an inf or a NaN is just that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, Mask, array, flat, floats, valid
from headrace.ops.agg.groups import Grouping
from headrace.ops.agg.span import ADD, RunningSpan, Span

TERMS = pa.list_(pa.float64())
_HUGE = 960
_LARGEST = 2.0**_HUGE
_DIGITS = 53
_SMALLEST = -1_074  # every double is a multiple of 2**-1074
_BLOCK = 1 << 14  # rows looked at together while they are in the processor's cache
_ROOM = 1 << 12  # numbers that add up exactly at least: what is split now is not split when merged

Floats = npt.NDArray[np.float64]
Summed = Callable[[], pa.Array]


@dataclass(frozen=True, slots=True)
class Terms:
    """Numbers that are the sum of several columns."""

    plain: Sequence[Floats]
    huge: Sequence[Floats] = ()  # in units of 2**960
    special: Floats | None = None  # what is not finite, 0 elsewhere


def of_doubles(values: Floats) -> Terms:
    """Each value as one term."""
    if _largest([values]) <= _LARGEST:
        return Terms([values])
    return _without_huge(_without_special([values]))


def _largest(columns: Iterable[Floats]) -> float:
    """The largest size of any number; NaN where one is NaN."""
    sizes = [s for c in columns for s in (c.max(initial=0.0), -c.min(initial=0.0))]
    return float(np.max(sizes, initial=0.0))


def _without_special(columns: Sequence[Floats]) -> Terms:
    """Take out what is not finite, which is the whole of its row."""
    finite = np.logical_and.reduce([np.isfinite(c) for c in columns])
    if finite.all():
        return Terms(columns)
    special = np.where(finite, 0.0, np.add.reduce(columns))
    return Terms([np.where(finite, c, 0.0) for c in columns], (), special)


def _without_huge(terms: Terms) -> Terms:
    """Take out what is beyond 2**960, which leaves sums room below the largest double."""
    above = [np.trunc(np.ldexp(c, -_HUGE)) for c in terms.plain]
    below = [c - np.ldexp(a, _HUGE) for c, a in zip(terms.plain, above, strict=True)]
    huge = [a for a in above if a.any()]
    return replace(terms, plain=below, huge=[*terms.huge, *huge])


def of_integers(values: Index) -> Terms:
    """Integers, each as two terms if it has more digits than a double."""
    if not len(values) or max(-int(values.min()), int(values.max())) < 1 << _DIGITS:
        return Terms([values.astype(np.float64)])
    high = (values >> 32).astype(np.float64) * 2.0**32
    return Terms([high, (values & (2**32 - 1)).astype(np.float64)])


def split_up(columns: Sequence[Floats], count: int) -> list[Floats]:
    """Columns with the same sums row by row, in which any `count` numbers add up exactly."""
    if all(_all_multiples(c, count) for c in columns):
        return [*columns]
    count = max(count * len(columns), _ROOM)
    unit, digits = _unit(_largest(columns), count), list[Floats]()
    for part in _blocks(columns):
        for i, digit in enumerate(_digits([c[part] for c in columns], unit, count)):
            if i == len(digits):
                digits.append(np.zeros(len(columns[0])))
            digits[i][part] = digit
    return digits if len(digits) <= 2 else [f for f in digits if f.any()]


def _blocks(columns: Sequence[Floats]) -> Iterator[slice]:
    rows = len(columns[0]) if len(columns) else 0
    return (slice(i, i + _BLOCK) for i in range(0, rows, _BLOCK))


def _digits(numbers: Sequence[Floats], unit: int, count: int) -> Iterator[Floats]:
    """The sums of the numbers in multiples of 2**unit, and what remains in smaller ones."""
    while len(numbers):
        digits = [_rounded_to(unit, n) for n in numbers]
        rest = [n - d for n, d in zip(numbers, digits, strict=True)]
        yield reduce(np.add, digits)
        numbers = [r for r in rest if r.any()]
        unit += (count - 1).bit_length() - _DIGITS  # what remains is half a unit at most


def _unit(largest: float, count: int) -> int:
    """The exponent of the smallest unit in which `count` such numbers add up exactly."""
    return math.frexp(largest)[1] + (count - 1).bit_length() - _DIGITS


def _rounded_to(unit: int, values: Floats) -> Floats:
    """Multiples of 2**unit: adding the number cuts off the digits, subtracting it leaves them."""
    if unit <= _SMALLEST:
        return values.copy()
    cut = math.ldexp(1.5, unit + _DIGITS - 1)
    rounded = values + cut
    rounded -= cut
    return rounded


def _all_multiples(values: Floats, count: int) -> bool:
    unit = _unit(_largest([values]), max(count, 4))
    blocks = (values[part] for part in _blocks([values]))
    return all((_rounded_to(unit, block) == block).all() for block in blocks)


def encoded(terms: Terms, present: Mask | None = None) -> pa.Array:
    """As a column of partials, null where `present` is false."""
    plain, huge = _shortened(terms.plain), _shortened(terms.huge)
    if terms.special is None and not huge and present is None and len(plain) <= 2:
        table = plain[0] if len(plain) == 1 else np.stack(plain, axis=1).reshape(-1)
        offsets = np.arange(0, len(table) + 1, len(plain), dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(table))
    rows = len(plain[0])
    marks = [np.full(rows, np.nan)] if huge else []
    table = np.stack([*plain, *marks, *huge], axis=1)
    used = table != 0
    used[:, 0] = True
    if huge:
        used[:, len(plain)] = used[:, len(plain) + 1 :].any(axis=1)
    if terms.special is not None:
        odd = terms.special != 0
        table[odd, 0], used[odd, 1:] = terms.special[odd], False
    if present is not None:
        used[~present] = False
    offsets = np.append(0, np.cumsum(used.sum(axis=1))).astype(np.int32)
    mask = None if present is None or present.all() else pa.array(~present)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(table[used]), mask=mask)


def _shortened(columns: Sequence[Floats]) -> list[Floats]:
    """The same sums without columns of zeros; two stay as they are, with room for more sums."""
    if len(columns) > 2:
        return _distilled(columns)
    return [*columns[:1], *(c for c in columns[1:] if c.any())]


def _distilled(columns: Sequence[Floats]) -> list[Floats]:
    """The same sums in as few columns as two rounds leave; the first is nearly the whole sum."""
    left = [*columns]
    for _ in range(2):
        for i in range(len(left) - 1, 0, -1):
            left[i - 1], left[i] = _two_sum(left[i - 1], left[i])
        left = [*left[:1], *(c for c in left[1:] if c.any())]
    return left


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The rounded sum and the rounding error (Knuth)."""
    total = a + b
    share = total - a
    return total, (a - (total - share)) + (b - share)


def decoded(column: Column) -> Terms:
    """The terms of a column of partials; zero where it is null."""
    lists = flat(column)
    values: Floats = lists.flatten().to_numpy()
    columns = _columns(lists, values)
    if _largest([values]) <= _LARGEST:
        return Terms([*columns])
    mark = np.isnan(columns)
    mark[0] = False
    behind = np.logical_or.accumulate(mark, axis=0)
    huge = np.where(behind & ~mark, columns, 0.0)
    terms = _without_huge(_without_special([*np.where(behind, 0.0, columns)]))
    return replace(terms, huge=[*(h for h in huge if h.any()), *terms.huge])


def _columns(lists: pa.ListArray, values: Floats) -> Floats:
    """The first number of each list, the second, ...; 0 where there is none."""
    rows = len(lists)
    width = len(values) // rows if rows else 1
    offsets = lists.offsets.to_numpy()
    sizes = np.diff(offsets)
    if width and not lists.null_count and len(values) == width * rows and (sizes == width).all():
        return np.ascontiguousarray(values.reshape(rows, width).T)
    if lists.null_count:
        sizes = np.where(valid(lists), sizes, 0)
    starts = np.cumsum(sizes) - sizes
    columns = np.zeros((max(int(sizes.max(initial=0)), 1), rows))
    for i, numbers in enumerate(columns):
        long_enough = np.flatnonzero(sizes > i)
        numbers[long_enough] = values[starts[long_enough] + i]
    return columns


@np.errstate(invalid="ignore")
def rounded(column: Column) -> Floats:
    """The nearest double of each partial; ties go to the even one, as everywhere."""
    terms = decoded(column)
    if terms.huge or len(terms.plain) > 2:
        total = _nearest(terms)
    else:
        total = sum(terms.plain, start=np.zeros(1))  # so that -0.0 is 0.0
    if terms.special is None:
        return total
    special = np.where(np.isnan(terms.special), np.nan, terms.special)
    return np.where(special != 0, special, total)


def _nearest(terms: Terms) -> Floats:
    """The nearest double of sums of many terms; one by one where two rounds do not show it."""
    total, *rest = _distilled(terms.plain)
    total = total + 0.0
    sure = np.ones(len(total), np.bool_)
    if rest:
        error = sum((np.abs(r) for r in rest[1:]), start=np.zeros(1)) * 2
        low, high = np.nextafter(rest[0] - error, -np.inf), np.nextafter(rest[0] + error, np.inf)
        sure = (total + low == total) & (total + high == total)
    for column in terms.huge:
        sure &= column == 0
    for row in np.flatnonzero(~sure):
        total[row] = _nearest_one([c[row] for c in terms.plain], [c[row] for c in terms.huge])
    return total


def _nearest_one(plain: Sequence[float], huge: Sequence[float]) -> float:
    if not any(huge):
        return math.fsum(plain)
    whole = sum(map(Fraction, plain)) + sum(map(Fraction, huge)) * 2**_HUGE
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def _ask_terms(grouping: Grouping, label: str, terms: Terms) -> Summed:
    """Ask for the sum of these numbers per group, as partials."""

    def ask(name: str, columns: Sequence[Floats]) -> list[str]:
        labels = [f"{label}:{name}{i}" for i in range(len(columns))]
        pairs = zip(labels, columns, strict=True)
        return [grouping.ask(each, pa.array(column), "sum") for each, column in pairs]

    tickets = ask("plain", split_up(terms.plain, grouping.largest))
    above = ask("huge", split_up(terms.huge, grouping.largest))
    odd = ask("special", [] if terms.special is None else [terms.special])

    def finish() -> pa.Array:
        parts = (tickets, above, odd)
        plain, huge, special = ([floats(grouping.answer(t)) for t in part] for part in parts)
        return encoded(Terms(plain, huge, special[0] if special else None))

    return finish


def ask_floats(grouping: Grouping, label: str, values: Column) -> Summed:
    """Ask for the exact sum of doubles per group; null where a group has none."""
    terms = grouping.shared.get(f"{label}:terms")
    if terms is None:
        filled = values.fill_null(0.0) if values.null_count else values
        terms = grouping.shared[f"{label}:terms"] = of_doubles(floats(filled))
    return _or_null(grouping, label, values, _ask_terms(grouping, label, terms))


def ask_partials(grouping: Grouping, label: str, column: Column) -> Summed:
    """Ask for the sum of partials per group; null where all are."""
    return _or_null(grouping, label, column, _ask_terms(grouping, label, decoded(column)))


def _or_null(grouping: Grouping, label: str, values: Column, total: Summed) -> Summed:
    if not values.null_count:
        return total
    present = array(valid(values).astype(np.int64), pa.int64())
    ticket = grouping.ask(f"{label}:there", present, "sum")

    def finish() -> pa.Array:
        some = pc.greater(flat(grouping.answer(ticket)), 0)
        return pc.if_else(some, total(), pa.scalar(None, TERMS))

    return finish


def singles(values: Column) -> pa.Array:
    """Each double as a partial of its own."""
    filled = values.fill_null(0.0) if values.null_count else values
    return encoded(of_doubles(floats(filled)), valid(values) if values.null_count else None)


@np.errstate(invalid="ignore")
def combined(column: Column, present: Mask | None, span: Span) -> pa.Array:
    """The sum of the partials of each stretch."""
    terms = decoded(column)
    plain, huge = (_sums(columns, span) for columns in (terms.plain, terms.huge))
    special = None if terms.special is None else span.reduce(ADD, [terms.special])[0]
    return encoded(Terms(plain, huge, special), present)


def _sums(columns: Sequence[Floats], span: Span) -> list[Floats]:
    if isinstance(span, RunningSpan):
        return [span.differences(digit) for digit in split_up(columns, span.rows)]
    return [span.reduce(ADD, [digit])[0] for digit in split_up(columns, span.widest)]
