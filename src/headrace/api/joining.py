"""Rows that meet rows of others: what streams with a key and without have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from headrace.api import connected, join_keys, joins, lookups, tables
from headrace.clock import Duration
from headrace.schema import SchemaLike

if TYPE_CHECKING:
    from headrace.api import stream


class Joining:
    """Streams whose rows can be joined, looked up, or taken for the changes of a table."""

    def join(
        self,
        other: connected.AnyStream | tables.Table,
        *,
        on: join_keys.On = None,
        how: str = "inner",
        within: Any = None,
        window: Any = None,
        time: str = "event",
        suffix: str = "_right",
        lateness: Duration = 0,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.JoinResult:
        """Rows of this stream with rows of another that agree on the columns `on`, or on the key.

        `within` is how far their times may be apart: "5m", or (earliest, latest) as in
        ("-1m", "5m"), from this row to the other; `window` joins rows of the same window. A
        table gives the latest row at this row's time, at most `within` old, or with
        time="processing" the latest that has come. `how` is inner, left, right, full, semi or
        anti: rows of an outer side that met nobody come out alone, when it is sure that they do
        not. `lateness`: how long to wait for late rows.
        """
        return joins.join(
            _any(self), other, on, how, within, window, time, suffix, lateness, name, was
        )

    def table(
        self, *keys: str, delete: Any = None, unbounded: bool = False, name: str | None = None
    ) -> tables.Table:
        """The latest row of each key; rows for which `delete` is true end their key."""
        return tables.table(_any(self), keys, delete, unbounded, name)

    def lookup(
        self,
        table: Any,
        *,
        on: join_keys.On = None,
        refresh: Duration | None = None,
        on_missing: str = "null",
        patience: Duration | None = None,
        schema: SchemaLike | None = None,
        suffix: str = "_right",
        name: str | None = None,
        was: str | None = None,
    ) -> stream.Stream:
        """Each row completed from a table outside: `hr.table_file`, `hr.sql_table`,
        `hr.spark_table`, a function that gives an Arrow or pandas table, or such a table.

        It is loaded again every `refresh`. A row that is not there gets nulls, becomes a "dead"
        letter, or will "wait" until it is there or its `patience` is over.
        """
        return lookups.lookup(
            _any(self), table, on, refresh, on_missing, patience, schema, suffix, name, was
        )

    def cogroup(
        self,
        other: connected.AnyStream,
        fn: Callable[[Any, list[Any], list[Any]], Any],
        *,
        window: Any = None,
        on: join_keys.On = None,
        schema: SchemaLike | None = None,
        lateness: Duration = 0,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.JoinResult:
        """fn(key, rows, other_rows) for each key and window that has rows on either side."""
        return joins.cogroup(_any(self), other, fn, on, window, schema, lateness, name, was)


def _any(self: Joining) -> connected.AnyStream:
    """Who has these methods is a stream."""
    return cast("connected.AnyStream", self)
