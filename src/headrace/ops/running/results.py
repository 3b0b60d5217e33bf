"""Running aggregates: the result after each row, for all keys at once.

Every row becomes a partial of its own, the partial that a group starts from is laid before
its rows, and each aggregate runs along. State comes in and goes out as partials; where it is
kept is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.ops.agg.groups import Column, Index, flat, take
from headrace.ops.agg.named import Aggregate, columns_of, naming, part_names, singles
from headrace.ops.agg.span import Running


@np.errstate(all="ignore")  # inf and NaN are values here, not accidents
def rolling(
    rows: pa.Table,
    starts: Index,
    aggs: Mapping[str, Aggregate],
    held: pa.Table | None = None,
    known: npt.NDArray[np.bool_] | None = None,
) -> tuple[pa.Table, pa.Table]:
    """The aggregates after each row, and the partial of each group after its last.

    `rows` lie group by group from `starts` on, each group's in order. `held` has the partials
    that the groups start from, a row per group, of which only the `known` ones count.
    """
    alone = singles(rows, aggs)
    laid, at, begins = _laid(alone, starts, held, known)
    span = Running(begins, laid.num_rows)
    results: dict[str, Column] = {}
    after: dict[str, Column] = {}
    for name, agg in aggs.items():
        with naming(name, agg):
            running, final = agg.synopsis.running(columns_of(laid, name, agg), span)
        results[name] = running if at is None else take([running], at)[0]
        after.update(zip(part_names(name, agg), final, strict=True))
    return pa.table(results), pa.table(after)


def _laid(
    alone: pa.Table,
    starts: Index,
    held: pa.Table | None,
    known: npt.NDArray[np.bool_] | None,
) -> tuple[pa.Table, Index | None, Index]:
    """Each group's starting partial, where it has one, and then its rows.

    Also where the rows are now (None: where they were), and where the groups start.
    """
    if held is None or (known is not None and not known.any()):
        return alone, None, starts
    mask = np.ones(len(starts), np.bool_) if known is None else known
    before = held.select(alone.column_names).filter(pa.array(mask)).cast(alone.schema)
    extra = np.cumsum(mask)
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=alone.num_rows))
    at = np.arange(alone.num_rows) + extra[group]
    begins: Index = starts + extra - mask
    source = np.empty(alone.num_rows + before.num_rows, np.int64)
    source[begins[mask]] = np.arange(before.num_rows)
    source[at] = before.num_rows + np.arange(alone.num_rows)
    both = pa.concat_tables([before, alone])
    return pa.table(take([flat(c) for c in both.columns], source), both.column_names), at, begins
