"""The rows of each group that are not among its best, held so that the next best is found quickly.

They lie in levels: each row of one is better than every row of the next, and the second level has
room for several times the rows of the first, and so on; the last one has no limit. When a group
needs more rows, they come from its first level; one that is empty is filled from the next, one
that is too full sends its worst rows on. So a row is moved a few times in its life, and the cost of
a batch grows with the rows that it changes, not with those that are held.

Three tables: the rows by level, the level of each row, and of each level its size and the row at
its end (`fence`), by which a new row finds its level.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, flat, integers
from headrace.chunk import HASH, TIME
from headrace.ops.contract import EpochStep
from headrace.ops.keys import KeyColumns
from headrace.ops.stream.key_groups import group_heads, key_ids, place_in_group
from headrace.ops.stream.rank_order import RankOrder
from headrace.state.table import KeyedTable, TableSpec

REST, WHERE, LEVELS = "rest", "where", "levels"
_FIRST = 64  # rows that the first level has room for, at least
_GROWTH = 8  # times as many rows in the next
_LEVEL, _SIZE, _FENCE = "level", "size", "fence"


class CandidateLevels:
    """The tables of the rows that are not among the `most` best, and what is done with them.

    `thing` are the columns that say what a row of a group is about: no two rows have the same.
    """

    def __init__(
        self, keys: KeyColumns, row: pa.Schema, thing: Sequence[str], order: RankOrder, most: int
    ) -> None:
        self.keys, self.order = keys, order
        hashed = pa.schema([(HASH, pa.uint64()), *keys.schema, *row])
        self.no_rows = hashed.empty_table()
        self.thing = [*keys.identity, *thing]
        identity = pa.schema([*keys.schema, *(row.field(n) for n in thing)])
        value = [f for f in row if f.name not in self.thing]
        level = pa.schema([*keys.schema, (_LEVEL, pa.int64())])
        fence = [row.field(n) for n in order.columns if n in row.names]
        size = [pa.field(_SIZE, pa.int64()), pa.field(_FENCE, pa.bool_())]
        self._rest = TableSpec(REST, identity, pa.schema(value), timed=True)
        self._where = TableSpec(WHERE, identity, pa.schema([(_LEVEL, pa.int64())]))
        self._levels = TableSpec(LEVELS, level, pa.schema([*size, *fence]))
        self._first = max(most, _FIRST)

    def tables(self) -> tuple[TableSpec, ...]:
        return (self._rest, self._where, self._levels)

    def room(self, level: int) -> int:
        """How many rows a level has room for."""
        return int(self._first * _GROWTH ** (level - 1))

    def of(self, groups: pa.Table, step: EpochStep) -> LevelsOfGroups:
        return LevelsOfGroups(self, groups, step)


class LevelsOfGroups:
    """The levels of some groups during an epoch; a group is its number in `groups`."""

    def __init__(self, what: CandidateLevels, groups: pa.Table, step: EpochStep) -> None:
        self._what, self._groups = what, groups
        self._rest: KeyedTable = step.tables[REST]
        self._where: KeyedTable = step.tables[WHERE]
        self._levels: KeyedTable = step.tables[LEVELS]
        stored = self._levels.match(flat(groups.column(HASH)).to_numpy())
        self._stored, ids = members(groups, stored)
        levels = integers(self._stored.column(_LEVEL))
        count = int(levels.max(initial=0)) + 2
        self._sizes = np.zeros((groups.num_rows, count), np.int64)
        self._fences = np.full((groups.num_rows, count), -1)  # rows of the pool
        self._sizes[ids, levels] = integers(self._stored.column(_SIZE))
        has = flat(self._stored.column(_FENCE)).to_numpy(zero_copy_only=False).astype(np.bool_)
        self._fences[ids[has], levels[has]] = np.flatnonzero(has)
        self._pool = [self._ordered(self._stored)]

    @property
    def total(self) -> Index:
        """How many rows each group has here."""
        total: Index = self._sizes.sum(axis=1)
        return total

    def forget(self, rows: pa.Table, ids: Index) -> None:
        """Delete the rows about the same things, where there are any."""
        levels, present = self._level_of(rows)
        self._remove(rows.filter(pa.array(present)), ids[present], levels[present])
        self._where.delete(rows.filter(pa.array(present)).select(self._what.thing))
        self._fences[self.total == 0] = -1

    def place(self, rows: pa.Table, ids: Index, ends: pa.Table, end_ids: Index) -> Index:
        """The level that each row belongs to; 0 if it is better than the `ends` of its group.

        Groups that have no row here have no end.
        """
        group, level = np.nonzero(self._fences >= 0)
        fences = pa.concat_tables(self._pool).take(pa.array(self._fences[group, level]))
        parts = [self._ordered(rows), self._ordered(ends), fences]
        every, owner = pa.concat_tables(parts), np.concatenate([ids, end_ids, group])
        order = self._what.order.sort([owner], every)
        is_fence = (order >= len(ids)).astype(np.int64)
        passed = np.cumsum(is_fence)
        heads = np.flatnonzero(group_heads(owner[order]))
        before = (passed - is_fence)[heads]
        sizes = np.diff(heads, append=len(order))
        levels = np.empty(len(order), np.int64)
        levels[order] = passed - np.repeat(before, sizes)
        return levels[: len(ids)]

    def put(self, rows: pa.Table, ids: Index, levels: Index) -> None:
        """Add rows, each to its level."""
        if not rows.num_rows:
            return
        self._widen(int(levels.max()))
        self._rest.put(rows.append_column(TIME, pa.array(levels)))
        self._where.put(rows.select(self._what.thing).append_column(_LEVEL, pa.array(levels)))
        np.add.at(self._sizes, (ids, levels), 1)

    def take_best(self, need: Index) -> tuple[pa.Table, Index]:
        """Take out so many of the best rows of each group; better ones come first."""
        need, parts, owners = need.copy(), [self._what.no_rows], [np.zeros(0, np.int64)]
        while (short := np.flatnonzero((need > 0) & (self.total > 0))).size:
            lowest = np.argmax(self._sizes > 0, axis=1)
            rows, ids, place = self._read(short, lowest[short])
            self._spread(rows, ids, place - need[ids], lowest[ids])
            chosen = place < need[ids]
            parts.append(rows.filter(pa.array(chosen)))
            owners.append(ids[chosen])
            np.subtract.at(need, ids[chosen], 1)
        return pa.concat_tables(parts), np.concatenate(owners)

    def settle(self) -> None:
        """Send rows on from levels that are too full, and store what is known of all levels."""
        level = 1
        while level < self._sizes.shape[1]:
            if (full := np.flatnonzero(self._sizes[:, level] > 2 * self._what.room(level))).size:
                self._send_on(full, level)
            level += 1
        self._store()

    def _spread(self, rows: pa.Table, ids: Index, place: Index, old: Index) -> None:
        """Take out the rows whose place is below 0, and fill the empty levels before that of the
        rows with those that follow. All levels up to it end with a row that has been moved."""
        rooms = np.cumsum([self._what.room(level) for level in range(1, int(old.max()) + 1)])
        new = np.minimum(np.searchsorted(rooms, place, side="right") + 1, old)
        new = np.where(place < 0, 0, new)
        for end in range(1, int(old.max())):
            self._fence(rows, np.flatnonzero((new <= end) & (end < old)), ids, end)
        taken, moved = pa.array(new == 0), new != old
        self._remove(rows.filter(pa.array(moved)), ids[moved], old[moved])
        self._where.delete(rows.filter(taken).select(self._what.thing))
        stays = moved & (new > 0)
        self.put(rows.filter(pa.array(stays)), ids[stays], new[stays])

    def _send_on(self, groups: Index, level: int) -> None:
        """Move the rows that a level has no room for to the next; to further ones if all that
        follow are empty, as when many rows come at once."""
        rows, ids, place = self._read(groups, np.full(len(groups), level))
        rooms = [self._what.room(level)]
        while sum(rooms) <= place.max():
            rooms.append(self._what.room(level + len(rooms)))
        last = self._sizes[:, level + 1 :].sum(axis=1) == 0
        new = level + np.searchsorted(np.cumsum(rooms), place, side="right")
        new = np.where(last[ids], new, np.minimum(new, level + 1))
        furthest = np.zeros(self._groups.num_rows, np.int64)
        np.maximum.at(furthest, ids, new)
        for end in range(level, int(new.max())):
            self._fence(rows, np.flatnonzero((new <= end) & (end < furthest[ids])), ids, end)
        moved = new > level
        rows, ids, new = rows.filter(pa.array(moved)), ids[moved], new[moved]
        self._remove(rows, ids, np.full(len(ids), level))
        self.put(rows, ids, new)

    def _fence(self, rows: pa.Table, some: Index, ids: Index, level: int) -> None:
        """The last of these rows, in order, of each group is the end of its level."""
        last = np.full(self._groups.num_rows, -1)
        np.maximum.at(last, ids[some], some)
        group = np.flatnonzero(last >= 0)
        self._widen(level)
        self._fences[group, level] = sum(p.num_rows for p in self._pool) + np.arange(len(group))
        self._pool.append(self._ordered(rows.take(pa.array(last[group]))))

    def _remove(self, rows: pa.Table, ids: Index, levels: Index) -> None:
        things = rows.select(self._what.thing)
        self._rest.delete(things.append_column(TIME, pa.array(levels)))
        np.subtract.at(self._sizes, (ids, levels), 1)

    def _read(self, groups: Index, levels: Index) -> tuple[pa.Table, Index, Index]:
        """One level of each of these groups: rows, the best first; their groups and places."""
        hashes = flat(self._groups.column(HASH)).to_numpy()[groups]
        order = np.lexsort((hashes, levels))
        levels, hashes, groups = levels[order], hashes[order], groups[order]
        new = np.ones(len(order), np.bool_)  # two groups may have one hash
        new[1:] = (levels[1:] != levels[:-1]) | (hashes[1:] != hashes[:-1])
        found, ids = members(self._groups, self._rest.match_at(levels[new], hashes[new]))
        wanted = np.full(self._groups.num_rows, -1)
        wanted[groups] = levels
        here = integers(found.column(TIME)) == wanted[ids]
        rows, ids = found.filter(pa.array(here)).select(self._what.no_rows.column_names), ids[here]
        order = self._what.order.sort([ids], rows)
        return rows.take(pa.array(order)), ids[order], place_in_group(ids[order])

    def _level_of(self, rows: pa.Table) -> tuple[Index, Mask]:
        values, present = self._where.get(rows.select(self._what.thing))
        return flat(values.column(_LEVEL)).fill_null(0).to_numpy(), present

    def _ordered(self, rows: pa.Table) -> pa.Table:
        """What decides which row is better."""
        return rows.select(self._what.order.columns)

    def _widen(self, level: int) -> None:
        more = level + 2 - self._sizes.shape[1]
        if more > 0:
            self._sizes = np.pad(self._sizes, ((0, 0), (0, more)))
            self._fences = np.pad(self._fences, ((0, 0), (0, more)), constant_values=-1)

    def _store(self) -> None:
        self._fences[self.total == 0] = -1
        group, level = np.nonzero((self._sizes > 0) | (self._fences >= 0))
        identity = [*self._what.keys.identity, _LEVEL]
        self._levels.delete(self._stored.select(identity))
        fence = self._fences[group, level]
        values = pa.concat_tables(self._pool).take(pa.array(fence, mask=fence < 0))
        rows = self._groups.take(pa.array(group)).append_column(_LEVEL, pa.array(level))
        rows = rows.append_column(_SIZE, pa.array(self._sizes[group, level]))
        rows = rows.append_column(_FENCE, pa.array(fence >= 0))
        for name in (n for n in values.column_names if n not in rows.column_names):
            rows = rows.append_column(name, values.column(name))
        self._levels.put(rows)


def distinct_groups(rows: pa.Table) -> pa.Table:
    """Each key once; `rows` have "__h" and the key's columns."""
    _, first = np.unique(key_ids(rows), return_index=True)
    return rows.take(pa.array(first))


def members(groups: pa.Table, rows: pa.Table) -> tuple[pa.Table, Index]:
    """The rows that belong to one of the groups, and the number of its group."""
    both = pa.concat_tables([groups, rows.select(groups.column_names)])
    ids = key_ids(both)
    number = np.full(int(ids.max(initial=-1)) + 1, -1)
    number[ids[: groups.num_rows]] = np.arange(groups.num_rows)
    found = number[ids[groups.num_rows :]]
    return rows.filter(pa.array(found >= 0)), found[found >= 0]
