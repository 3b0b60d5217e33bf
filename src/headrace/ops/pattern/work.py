"""An epoch's work for patterns: due rows by key in order, and which of them matter.

Everything here is by column. A row matters to a pattern if one of its conditions may hold, or,
where rows must follow directly, if it comes after such a row; and then only if the key has a
partial match or the row comes after one that can begin one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH
from headrace.ops.agg.groups import Index, Mask
from headrace.ops.pattern.conditions import BAD, WORD, Bits
from headrace.ops.pattern.rules import Rule
from headrace.ops.pattern.store import Store, times_of
from headrace.ops.row_windows.store import ordered


@dataclass(frozen=True, slots=True)
class Due:
    """Rows that are due, key by key, and the keys: those with rows first."""

    rows: pa.Table
    codes: Index  # of each row: the number of its key
    times: Index
    keys: pa.Table


def arranged(rows: pa.Table, key: pa.Schema, others: Sequence[pa.Table], store: Store) -> Due:
    """Due rows and further keys that have something to do."""
    identity = pa.schema([pa.field(HASH, pa.uint64()), *key])
    if rows.num_rows:
        found = ordered(rows, key)
        rows, keys = rows.take(pa.array(found.order)), found.keys
        codes = np.repeat(np.arange(keys.num_rows), found.sizes)
    else:
        keys, codes = identity.empty_table(), np.zeros(0, np.int64)
    for more in others:
        new = store.among(keys, more) < 0
        if new.any():
            added = more.filter(pa.array(new)).cast(identity)
            keys = pa.concat_tables([keys, added]).combine_chunks()
    return Due(rows, codes, times_of(rows), keys)


def relevant(rule: Rule, due: Due, words: Sequence[Bits], there: Mask) -> Index:
    """The rows that may do something; `there`: which keys have partial matches."""
    some: Mask = np.zeros(len(due.codes), np.bool_)
    for word in words:
        some |= word != 0
    keep = _in_sight(rule, due, some)
    begins = _begins(rule, words) & keep
    seen = np.cumsum(begins)
    first = np.flatnonzero(np.diff(due.codes, prepend=-1))
    before: Index = (seen - begins)[first]  # how many came before each key's first row
    sizes = np.diff(first, append=len(seen))
    keep &= there[due.codes] | (seen > np.repeat(before, sizes))
    for word in words:
        keep &= word != BAD
    return np.flatnonzero(keep)


def _in_sight(rule: Rule, due: Due, some: Mask) -> Mask:
    automaton = rule.automaton
    if automaton.blind:
        keep = some.copy()
    elif any(place.always for place in (automaton.start, *automaton.places)):
        keep = np.ones(len(some), np.bool_)
    else:  # a row without any condition ends what waits for the next row
        new = np.diff(due.codes, prepend=-1) != 0
        keep = some | new | np.append(False, some[:-1])[: len(some)]
    keep &= (due.times >= rule.since) & (due.times < rule.until)
    return keep


def _begins(rule: Rule, words: Sequence[Bits]) -> Mask:
    start = rule.automaton.start
    found: Mask = np.full(len(words[0]), start.always)
    for place, word in enumerate(words):
        mask = start.watch >> (WORD * place) & ((1 << WORD) - 1)
        found |= (word & mask) != 0
    return found
