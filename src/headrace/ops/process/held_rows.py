"""The rows that a process function with `order=` holds until the watermark has passed them.

Each input has a table of them, by time. What is due comes out as the rows of the epoch, and is
processed as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.at_rest import described
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep, Place
from headrace.ops.row_buffer import RowBuffer
from headrace.ops.tables import plain_view
from headrace.state.table import KeyedTable, TableSpec

EVENT_TIME = "event_time"
HELD_ROWS = "held"  # in the shape of a step; never changes


def held_shape(names: Sequence[str], place: Place) -> list[Any]:
    """The columns of the rows that are held, by input; of several each under its name."""
    shown = names if len(names) > 1 else ("",)
    return [[n, described(rows)] for n, rows in zip(shown, place.inputs, strict=True)]


class HeldRows:
    def __init__(self, place: Place) -> None:
        self._keys = place.keys
        self._buffers = [
            RowBuffer(pa.schema([rows.field(n) for n in key]), rows, _table(port))
            for port, (key, rows) in enumerate(zip(place.keys, place.inputs, strict=True))
        ]

    def tables(self) -> tuple[TableSpec, ...]:
        return tuple(buffer.spec for buffer in self._buffers)

    def due(self, arrived: Sequence[pa.Table | None], step: EpochStep) -> list[pa.Table | None]:
        """Of each input the rows that the watermark has passed now; the others are held."""
        pairs = zip(self._buffers, arrived, strict=True)
        due = [buffer.advance(rows, step) for buffer, rows in pairs]
        return [rows if rows.num_rows else None for rows in due]

    def look_ahead(self, step: EpochStep) -> None:
        """At which watermark rows are due; timers have been looked at before."""
        times = [MAX_TIME if (t := b.next(step)) is None else t for b in self._buffers]
        step.next = min(step.next, *times)

    def side_views(self) -> Mapping[str, Sequence[str]]:
        return {b.spec.name: key for b, key in zip(self._buffers, self._keys, strict=True)}

    def side_view(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
        return plain_view(tables[name], MIN_TIME, MAX_TIME)


def _table(port: int) -> str:
    return "held" if port == 0 else f"held_{port + 1}"
