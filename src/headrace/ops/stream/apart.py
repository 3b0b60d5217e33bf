"""Rows of a key that are at least so far apart: which of them stay, all keys at once.

The first row of a key stays and hides those less than `gap` after it; the first that it does
not hide stays, and so on. Arrays only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.ops.agg.groups import Index

Mask = npt.NDArray[np.bool_]


def apart(numbers: Index, times: Index, first: Mask, gap: int) -> Mask:
    """Which rows stay; they lie by number, then time, and `first` begins each number."""
    if len(times) < 2 or gap > int(times.max()) - int(times.min()):
        return first
    return _reached(first, _next(numbers, times, gap))


def list_starts(numbers: Index, times: Index, first: Mask, most: int, within: int | None) -> Mask:
    """Which rows begin a list: it ends with its `most`-th row, or before one `within` later."""
    here = np.arange(len(numbers)) + most
    after = np.where(here < len(numbers), here, len(numbers))
    inside = after < len(numbers)
    inside[inside] = numbers[after[inside]] == numbers[inside]
    after = np.where(inside, after, len(numbers))
    if within is not None and len(numbers):
        after = np.minimum(after, _next(numbers, times, within))
    return _reached(first, after)


def _next(numbers: Index, times: Index, gap: int) -> Index:
    """For each row the first of its number at least `gap` later; its end where there is none.

    By the place of a time among all times, so that number and time fit into one integer.
    """
    known = np.unique(times)
    room = len(known) + 1
    here = numbers * room + np.searchsorted(known, times)
    wanted = numbers * room + np.searchsorted(known, times + gap)
    at = np.searchsorted(here, wanted)
    inside = at < len(numbers)
    inside[inside] = numbers[at[inside]] == numbers[inside]
    return np.where(inside, at, len(numbers))


def _reached(first: Mask, after: Index) -> Mask:
    """The rows that are reached from the first ones, going from each to the one after.

    Each round goes twice as far as the one before, so a long chain takes few of them.
    """
    end = len(first)
    stays = np.append(first, True)  # the end counts as seen
    jump = np.append(after, end)
    while True:
        found = jump[np.flatnonzero(stays[:end])]
        fresh = found[~stays[found]]
        if not len(fresh):
            return stays[:end]
        stays[fresh] = True
        jump = jump[jump]
