"""KLL quantile sketches in NumPy, all groups at once, in the library's portable format.

A sketch holds items in levels; an item of level h stands for 2**h values. When a sketch is full,
the lowest level that is too large is sorted, and every second item of it moves up a level. Which
half moves is a coin, drawn from the items themselves: the same rows give the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Column, Index, Mask, flat
from headrace.hashing import hash_keys
from headrace.ops.agg.order import by_number, run_starts
from headrace.ops.agg.span import stretches
from headrace.ops.sketch.sizes import too_large

Doubles = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

_SERIAL, _SERIAL_OF_ONE, _FAMILY, _LEAST = 1, 2, 15, 8
_IS_EMPTY, _IS_SORTED, _IS_SINGLE = 1, 2, 4
_FIXED = 20  # bytes before the levels of a sketch of two values or more
_EDGES = 16  # the least and the largest value
_DEEPEST = 61  # levels that the format can have
_MANY = 1 << 40
_SHORT = 16  # items per group below which groups are sorted together


@cache
def _room(k: int, levels: int) -> list[int]:
    """The capacity of each level, as the library computes it."""
    room = []
    for depth in range(levels - 1, -1, -1):
        halved = depth // 2 if depth > 30 else 0
        part = _shrunk(_shrunk(k, halved), depth - halved) if halved else _shrunk(k, depth)
        room.append(max(_LEAST, part))
    return room


def _shrunk(k: int, depth: int) -> int:
    return int((((k << 1) << depth) // 3**depth + 1) >> 1)


@cache
def _rooms(k: int) -> tuple[Index, Index]:
    """By the number of levels: the capacity of each level, and of all of them."""
    each = np.zeros((_DEEPEST + 1, _DEEPEST + 1), np.int64)
    for levels in range(1, _DEEPEST + 1):
        each[levels, :levels] = _room(k, levels)
    return each, each.sum(axis=1)


def most_bytes(k: int) -> int:
    """The size of a sketch, at most: of 2**40 values, beyond which it hardly grows."""
    levels = max(1, (_MANY // k).bit_length())
    return _FIXED + 4 * levels + _EDGES + 8 * sum(_room(k, levels))


@dataclass(frozen=True)
class KllSketches:
    """The sketches of a column, where they lie in its bytes."""

    k: int
    data: Bytes
    starts: Index
    lengths: Index  # 0 for null

    def _at(self, places: Index, kind: str) -> npt.NDArray[Any]:
        width = int(kind[1:])
        view = np.ndarray(
            (max(len(self.data) - width + 1, 0),), f"<{kind}", self.data, strides=(1,)
        )
        return np.asarray(view[places])

    @cached_property
    def _single(self) -> Mask:
        return np.asarray(self.lengths == 16)

    @cached_property
    def _full(self) -> Mask:
        return np.asarray(self.lengths > 16)

    @cached_property
    def counts(self) -> Index:
        """The values of each."""
        out = self._single.astype(np.int64)
        out[self._full] = self._at(self.starts[self._full] + 8, "u8").astype(np.int64)
        return out

    @cached_property
    def levels(self) -> Index:
        """The number of levels of each."""
        out = self._single.astype(np.int64)
        out[self._full] = self.data[self.starts[self._full] + 18]
        return out

    @cached_property
    def sizes_by_level(self) -> Index:
        """The items of each sketch in each level."""
        top = int(self.levels.max(initial=1))
        out = np.zeros((len(self.starts), top), np.int64)
        out[self._single, 0] = 1
        rows = np.flatnonzero(self._full)
        levels = self.levels[rows]
        total = _rooms(self.k)[1][levels]
        for level in range(top):
            here = level < levels
            first = self._at(self.starts[rows[here]] + _FIXED + 4 * level, "u4").astype(np.int64)
            last = level + 1 == levels[here]
            next_place = np.where(last, 0, self.starts[rows[here]] + _FIXED + 4 * level + 4)
            after = np.where(last, total[here], self._at(next_place, "u4").astype(np.int64))
            out[rows[here], level] = after - first
        return out

    @cached_property
    def sizes(self) -> Index:
        return np.asarray(self.sizes_by_level.sum(axis=1))

    def edges(self) -> tuple[Doubles, Doubles]:
        """The least and the largest value of each; NaN where there is none."""
        low, high = np.full(len(self.starts), np.nan), np.full(len(self.starts), np.nan)
        low[self._single] = high[self._single] = self._at(self.starts[self._single] + 8, "f8")
        place = self.starts[self._full] + _FIXED + 4 * self.levels[self._full]
        low[self._full], high[self._full] = self._at(place, "f8"), self._at(place + 8, "f8")
        return low, high

    def items(self, rows: Index) -> tuple[Doubles, Index, Index]:
        """The items of the rows, one after the other; the level of each; its place in `rows`."""
        sizes = self.sizes[rows]
        first = self.starts[rows] + np.where(
            self._single[rows], 8, _FIXED + 4 * self.levels[rows] + _EDGES
        )
        place = np.repeat(first, sizes) + 8 * stretches(np.zeros(len(rows), np.int64), sizes)
        by_level = self.sizes_by_level[rows]
        level = np.repeat(np.tile(np.arange(by_level.shape[1]), len(rows)), by_level.reshape(-1))
        return self._at(place, "f8"), level, np.repeat(np.arange(len(rows)), sizes)


def decoded(k: int, column: Column) -> KllSketches:
    array = flat(column)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, "<i4", array.offset + len(array) + 1)[array.offset :]
    ends = ends.astype(np.int64)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    lengths = np.diff(ends)
    if array.null_count:
        lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return KllSketches(k, raw, ends[:-1], lengths)


@dataclass
class Levels:
    """The items of groups by level, group by group in each, while they are being made fewer."""

    k: int
    groups: int
    counts: Index  # the values of each group
    values: list[Doubles]
    owners: list[Index]

    def compress(self) -> None:
        """Until no group has more items than its levels have room for."""
        each, total = _rooms(self.k)
        while True:
            level, done = 0, True
            while level < len(self.values):
                depth = self.depths()
                over = self.sizes.sum(axis=1) > total[depth]
                if not over.any():
                    break
                chosen = np.flatnonzero(over & (self.sizes[:, level] >= each[depth, level]))
                if len(chosen):
                    self._compact(level, chosen)
                    done = False
                level += 1
            if done:
                return

    @cached_property
    def sizes(self) -> Index:
        """The items of each group in each level."""
        return np.stack([np.bincount(o, minlength=self.groups) for o in self.owners], axis=1)

    def depths(self) -> Index:
        """The number of levels of each group."""
        used = self.sizes > 0
        return np.where(used.any(axis=1), used.shape[1] - used[:, ::-1].argmax(axis=1), 1)

    def _compact(self, level: int, chosen: Index) -> None:
        """Move half of the level's items up, for the chosen groups."""
        values, owner = sorted_within(self.values[level], self.owners[level]), self.owners[level]
        starts, sizes = np.searchsorted(owner, chosen), self.sizes[chosen, level]
        odd, up = sizes % 2, sizes // 2
        first = starts + odd + self._coins(level, values, chosen, starts, sizes)
        moved = stretches(np.zeros(len(up), np.int64), up) * 2 + np.repeat(first, up)
        if level + 1 == len(self.values):
            self.values.append(np.zeros(0))
            self.owners.append(np.zeros(0, np.int64))
            self.sizes = np.append(self.sizes, np.zeros((self.groups, 1), np.int64), axis=1)
        rising = np.repeat(chosen, up)
        self._put(level + 1, [self.values[level + 1], values[moved]], rising)
        stays = np.ones(self.groups, np.bool_)
        stays[chosen] = False
        kept = stays[owner]
        kept[starts[odd > 0]] = True
        self.values[level], self.owners[level] = values[kept], owner[kept]
        self.sizes[chosen, level], self.sizes[chosen, level + 1] = (
            odd, self.sizes[chosen, level + 1] + up,
        )  # fmt: skip

    def _put(self, level: int, values: list[Doubles], owner: Index) -> None:
        if not len(self.owners[level]):
            self.values[level], self.owners[level] = values[1], owner
            return
        owners = np.concatenate([self.owners[level], owner])
        order = by_number(owners)
        self.values[level], self.owners[level] = np.concatenate(values)[order], owners[order]

    def _coins(
        self, level: int, values: Doubles, chosen: Index, starts: Index, sizes: Index
    ) -> Index:
        """A bit for each group: of the items that move, of the level, and of the values so far."""
        bounds = np.stack([starts, starts + sizes], axis=1).reshape(-1)
        bits = np.append(values.view(np.uint64), np.uint64(0))  # the last bound is an index, too
        total = np.add.reduceat(bits, bounds)[::2]
        parts = [total, self.counts[chosen], np.full(len(chosen), level)]
        return (hash_keys([pa.array(part) for part in parts]) >> np.uint64(63)).astype(np.int64)


def sorted_within(values: Doubles, owner: Index) -> Doubles:
    """The values of each group in order; groups stay where they are."""
    falls = np.flatnonzero((np.diff(values) < 0) & (np.diff(owner) == 0))
    if not len(falls):
        return values
    starts = run_starts(owner)
    if len(starts) * _SHORT > len(values):
        return values[np.lexsort((values, owner))]
    out, ends = values.copy(), np.append(starts[1:], len(values))
    for number in np.unique(np.searchsorted(starts, falls, side="right") - 1):
        out[starts[number] : ends[number]].sort()
    return out


def of_items(
    k: int, values: Doubles, level: Index, owner: Index, groups: int, counts: Index
) -> Levels:
    """The items of groups, `owner` rising, by level."""
    top = int(level.max(initial=0)) + 1
    masks = [level == h for h in range(top)] if top > 1 else [np.ones(len(level), np.bool_)]
    return Levels(k, groups, counts, [values[m] for m in masks], [owner[m] for m in masks])


def encoded(items: Levels, low: Doubles, high: Doubles) -> pa.Array:
    """The bytes of the sketch of each group, of which `low` and `high` are the extreme values."""
    sizes, depth, counts = items.sizes, items.depths(), items.counts
    retained = sizes.sum(axis=1)
    full = counts > 1
    length = np.where(full, _FIXED + 4 * depth + _EDGES + 8 * retained, 8 + 8 * counts)
    ends = np.append(0, np.cumsum(length))
    if ends[-1] > np.iinfo(np.int32).max:
        raise too_large()
    out, starts = np.zeros(int(ends[-1]) + 8, np.uint8), ends[:-1]
    views = {
        kind: np.ndarray((len(out) - int(kind[1:]) + 1,), f"<{kind}", out, strides=(1,))
        for kind in ("u2", "u4", "u8", "f8")
    }
    head: list[Any] = [
        np.where(full, 5, 2), np.where(counts == 1, _SERIAL_OF_ONE, _SERIAL), _FAMILY,
        np.where(full, _IS_SORTED, np.where(counts == 1, _IS_SINGLE, _IS_EMPTY)),
        items.k & 0xFF, items.k >> 8, _LEAST,
    ]  # fmt: skip
    for place, byte in enumerate(head):
        out[starts + place] = byte
    whole = starts[full]
    views["u8"][whole + 8] = counts[full]
    views["u2"][whole + 16] = items.k
    out[whole + 18] = depth[full]
    after = whole + _FIXED + 4 * depth[full]
    views["f8"][after], views["f8"][after + 8] = low[full], high[full]
    first = _rooms(items.k)[1][depth] - retained
    item = np.where(full, starts + _FIXED + 4 * depth + _EDGES, starts + 8)
    for level, (values, owner) in enumerate(zip(items.values, items.owners, strict=True)):
        here = full & (level < depth)
        views["u4"][starts[here] + _FIXED + 4 * level] = first[here]
        begins = np.cumsum(sizes[:, level]) - sizes[:, level]
        place = item[owner] + 8 * (np.arange(len(owner)) - begins[owner])
        views["f8"][place] = sorted_within(values, owner)
        first, item = first + sizes[:, level], item + 8 * sizes[:, level]
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(counts), buffers)
