"""How the rows of an epoch get into a table: added; or, with a key, as one row for each.

Of an output that retracts rows only what changes in sum is written: keys to delete, and rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.sql import Column, Connection, TableName, listed, quoted
from headrace.errors import OutputError
from headrace.kernel import duckdb

CHANGE, ADDED, RETRACTED = "change", "+", "-"  # the column of streams that retract rows
_STAGED = "headrace_staged"
_NUMBER = "__number"


@dataclass(frozen=True)
class TableWriter:
    what: str  # the table in words
    rows: pa.Schema  # what the table holds
    key: tuple[str, ...]
    upserts: bool
    retracts: bool

    def reduced(self, rows: pa.Table) -> tuple[pa.Table | None, pa.Table]:
        """Of an output with a key: the keys to delete, and one row for each key to write."""
        if not self.upserts:
            return None, rows
        numbered = rows.append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
        keys = listed(self.key)
        if not self.retracts:
            last = f"SELECT max({_NUMBER}) AS n FROM {duckdb.FEED} GROUP BY {keys} ORDER BY n"
            return None, rows.take(duckdb.once(last, numbered).column(0))
        columns = listed(self.rows.names)
        net = duckdb.once(
            f"SELECT max({_NUMBER}) AS n, sum(CASE WHEN {CHANGE} = '+' THEN 1 ELSE -1 END) AS net, "
            f"{keys} FROM {duckdb.FEED} GROUP BY {columns} HAVING net <> 0 ORDER BY n",
            numbered,
        )
        puts = net.filter(pc.greater(net.column("net"), 0))
        if pc.any(pc.greater(puts.column("net"), 1)).as_py() or (
            puts.num_rows > puts.group_by(list(self.key)).aggregate([]).num_rows
        ):
            raise OutputError(
                "HR-SQL-008",
                f"the output to {self.what} has several rows with the same key "
                f"({', '.join(self.key)}) at the same time",
                "The key must identify a row of the result: add columns to key=, and to the "
                "unique index of the table.",
            )
        minus = net.filter(pc.less(net.column("net"), 0)).select(list(self.key))
        gone = minus.group_by(list(self.key)).aggregate([])
        gone = gone.join(puts.select(list(self.key)), list(self.key), join_type="left anti")
        written = rows.take(puts.column("n")).select(self.rows.names)
        return gone.cast(pa.schema([written.schema.field(k) for k in self.key])), written

    def write(
        self,
        c: Connection,
        table: TableName,
        columns: Mapping[str, Column],
        rows: pa.Table,
        gone: pa.Table | None,
    ) -> None:
        """Delete the rows with these keys, then insert, or update by key; in a transaction."""
        casts = {n: columns[n].cast for n in rows.schema.names if n in columns and columns[n].cast}
        if gone is not None and gone.num_rows:
            c.stage(f"{_STAGED}_gone", gone)
            same = " AND ".join(
                f"{table.sql}.{quoted(k)} = s.{quoted(k)}{_as(casts.get(k))}" for k in self.key
            )
            c.run(
                f"DELETE FROM {table.sql} WHERE EXISTS "
                f"(SELECT 1 FROM {quoted(f'{_STAGED}_gone')} AS s WHERE {same})"
            )
        if not rows.num_rows:
            return
        if not self.upserts and not casts:
            c.load(table, rows)
            return
        c.stage(_STAGED, rows)
        names = rows.schema.names
        values = ", ".join(f"s.{quoted(n)}{_as(casts.get(n))}" for n in names)
        others = [n for n in names if n not in self.key]
        sets = ", ".join(f"{quoted(n)} = excluded.{quoted(n)}" for n in others)
        action = f"DO UPDATE SET {sets}" if others else "DO NOTHING"
        conflict = f" ON CONFLICT ({listed(self.key)}) {action}" if self.upserts else ""
        c.run(
            f"INSERT INTO {table.sql} ({listed(names)}) SELECT {values} "
            f"FROM {quoted(_STAGED)} AS s WHERE true{conflict}"
        )


def _as(type_name: str | None) -> str:
    return f"::{type_name}" if type_name else ""
