"""Windows of one key that meet become one: the arithmetic of merging windows.

Two windows meet when one begins before the other ends. Only intervals and numbers of keys
are known here; what the windows hold is merged by who asks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.ops.agg.order import sorted_by
from headrace.ops.window.aligned import Times

_LIMIT = 2**62


class Joined(NamedTuple):
    """Windows in groups that meet: the group of each window, and the bounds of each group."""

    group: Times
    start: Times
    end: Times
    key: Times  # of each group


def joined(key: Times, start: Times, end: Times) -> Joined:
    """Group the windows [start, end) of each key that meet, directly or through others.

    Groups are numbered by key, then by time.
    """
    if not len(key):
        return Joined(key, start, end, key)
    order = sorted_by([key, start])
    key, start, end = key[order], start[order], end[order]
    furthest = _running_max(key, end)
    fresh = np.ones(len(key), np.bool_)
    fresh[1:] = (key[1:] != key[:-1]) | (start[1:] >= furthest[:-1])
    heads = np.flatnonzero(fresh)
    group = np.empty(len(key), np.int64)
    group[order] = np.cumsum(fresh) - 1
    last = np.append(heads[1:], len(key)) - 1
    return Joined(group, start[heads], furthest[last], key[heads])


def _running_max(key: Times, values: Times) -> Times:
    """The largest value of the key so far; keys rise."""
    low, high = int(values.min()), int(values.max())
    if (high - low + 1) * (int(key[-1]) + 1) < _LIMIT:
        return _lifted_max(key, values, low, high - low + 1)
    distinct, rank = np.unique(values, return_inverse=True)  # ranks are smaller
    return distinct[_lifted_max(key, rank, 0, len(distinct))]


def _lifted_max(key: Times, values: Times, low: int, width: int) -> Times:
    """Each key's values are lifted above those of the keys before."""
    lift = key * width - low
    largest: Times = np.maximum.accumulate(values + lift) - lift
    return largest
