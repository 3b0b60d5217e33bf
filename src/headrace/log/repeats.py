"""Whether an append that was made before is repeated with the same records.

A sequence stands for one append. Whoever uses it again with other records is not repeating: two
producers share a name, and of one of them records would be missing. What is stored is compared
with what is appended now, in order; only if that differs, as when records would go to other
partitions now, or NaN is among them, row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa

from headrace.errors import LogError
from headrace.log.draft import Append, Piece
from headrace.log.records import table_of
from headrace.log.topic import Topic


def check_repeated(topic: Topic, append: Append, stored: Mapping[int, pa.Table]) -> None:
    """Raise LogError unless `stored`, what was appended first, is what is appended now."""
    now = {p: _table(topic, piece) for p, piece in append.parts.items()}
    if now.keys() == stored.keys() and all(now[p].equals(stored[p]) for p in now):
        return
    if _rows(now.values()) != _rows(stored.values()):
        raise LogError(
            "HR-LOG-020",
            f"producer {append.producer!r} has appended other records to topic '{topic.name}' as "
            f"sequence {append.sequence}",
            "Nothing was appended. Give every append a number of its own; repeat one only "
            "with the same records.",
        )


def _table(topic: Topic, piece: Piece) -> pa.Table:
    return table_of(topic, piece) if isinstance(piece, list) else piece


def _rows(tables: Iterable[pa.Table]) -> Counter[str]:
    return Counter(repr(row) for table in tables for row in table.to_pylist())
