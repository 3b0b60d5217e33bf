"""Captured changes of a table as rows: what was done, when, and the columns.

A change that does not say all that a row has, or is of another table or other columns than were
read, is an InputError; nothing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from headrace.connect import pgoutput
from headrace.connect.pgoutput import (
    DELETE,
    INSERT,
    TRUNCATE,
    UPDATE,
    CapturedChange,
    Relation,
    Transaction,
)
from headrace.connect.sql import TableName, UnmappedError
from headrace.errors import InputError
from headrace.schema import TIMESTAMP, ddl_type
from headrace.sources.change_order import RowChange, ordered_by_key

OP, LSN, TIME = "change_op", "change_lsn", "change_time"
ABOUT = pa.schema([(OP, pa.string()), (LSN, pa.int64()), (TIME, TIMESTAMP)])
SNAPSHOT = "snapshot"
_STAYS = (
    "It stays among the changes also if it is corrected now: start with a new job folder, once no "
    "row has such a value, or without the column (schema=...)."
)
Types: TypeAlias = Mapping[str, list[int]]  # of columns: PostgreSQL's type and modifier


class CapturedRows:
    """The changes of one table, by its number and its primary key."""

    def __init__(self, what: str, table: TableName, id: int, primary: frozenset[str]) -> None:
        self.what, self._table, self._id, self._primary = what, table, id, primary

    def table(self, transactions: list[Transaction], schema: pa.Schema, types: Types) -> pa.Table:
        """The changes as rows; `types` are those of the columns when the table was read."""
        names = [n for n in schema.names if n not in ABOUT.names]
        values: dict[str, list[str | None]] = {name: [] for name in names}
        about: list[tuple[str, int, int]] = []
        for transaction in transactions:
            for op, row, _ in self._changes_of(transaction, names, types):
                for name in names:
                    values[name].append(row.get(name))
                about.append((op, transaction.lsn, transaction.time))
        arrays = []
        for field in schema:
            if field.name in ABOUT.names:
                i = ABOUT.names.index(field.name)
                arrays.append(pa.array([a[i] for a in about], ABOUT.field(i).type))
                continue
            try:
                arrays.append(pgoutput.column(values[field.name], field.type))
            except (pa.ArrowException, ValueError) as cause:
                what = f"not always {ddl_type(field.type)} ({str(cause)[:120]})"
                raise UnmappedError(field.name, what, _STAYS) from cause
        return pa.Table.from_arrays(arrays, schema=schema)

    def _changes_of(
        self, transaction: Transaction, names: list[str], before: Types
    ) -> list[RowChange]:
        changes = [r for c in transaction.changes for r in self._rows_of(c, names, before)]
        return ordered_by_key(changes, self._primary) if self._primary else changes

    def _rows_of(self, change: CapturedChange, names: list[str], before: Types) -> list[RowChange]:
        self._check_relation(change.relation)
        if change.kind == TRUNCATE:
            raise InputError(
                "HR-SQL-024",
                f"{self.what} was truncated: which rows are gone, the changes do not say",
                "Use DELETE; after a TRUNCATE, start with a new job folder, which reads the "
                "table anew.",
            )
        types = {name: [kind, modifier] for name, kind, modifier in change.relation.columns}
        for name in names:
            if types.get(name) != before[name]:
                fact = "has another type" if name in types else "is gone"
                raise changed_column(self.what, name, fact)
        if change.kind == DELETE:
            return [RowChange(DELETE, change.old or {}, change.old if change.whole else None)]
        new = dict(change.new or {})
        for name in change.unchanged:
            if name not in names:
                continue
            if not change.whole or change.old is None or name not in change.old:
                raise InputError(
                    "HR-SQL-023",
                    f"an update of {self.what} does not have column {name!r}, a long value that "
                    "it left unchanged",
                    f"ALTER TABLE {self._table} REPLICA IDENTITY FULL, and start with a new job "
                    "folder; or leave the column out of the schema.",
                )
            new[name] = change.old[name]
        if change.kind == UPDATE and change.old is not None:
            key = self._primary if change.whole and self._primary else {*change.old}
            if any(change.old.get(k) != new.get(k) for k in key if k in names):
                moved = change.old if change.whole else None
                return [RowChange(DELETE, change.old, moved), RowChange(INSERT, new)]
        return [RowChange(change.kind, new, change.old if change.whole else None)]

    def _check_relation(self, relation: Relation) -> None:
        if relation.id != self._id:
            raise InputError(
                "HR-SQL-027",
                f"the changes have those of {relation.schema}.{relation.name}, which is not "
                f"{self.what} as it was read",
                "Start with a new job folder, and a slot of its own.",
            )
        if not relation.full and self._primary and relation.key != self._primary:
            fact = "had a replica identity of other columns than its key"
            hint = "Set it to the primary key or FULL, and start with a new job folder."
            raise uncaptured(self.what, fact, hint)


def uncaptured(what: str, fact: str, hint: str) -> InputError:
    return InputError("HR-SQL-028", f"changes cannot be captured: {what} {fact}", hint)


def changed_column(what: str, column: str, fact: str) -> InputError:
    return InputError(
        "HR-SQL-025",
        f"column {column!r} of {what} {fact}",
        "Undo the change, or start with a new job folder, which reads the table anew.",
    )


def with_about(rows: pa.Table, schema: pa.Schema, op: str, lsn: int, time: int) -> pa.Table:
    count = rows.num_rows
    more = {
        OP: pa.repeat(op, count),
        LSN: pa.repeat(pa.scalar(lsn, pa.int64()), count),
        TIME: pa.repeat(pa.scalar(time, TIMESTAMP), count),
    }
    arrays = [more.get(f.name) if f.name in more else rows.column(f.name) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def visible(transaction: Transaction, facts: Mapping[str, Any]) -> bool:
    """Whether the snapshot has what the transaction did."""
    if transaction.lsn >= facts["lsn"]:
        return False
    least, most, running = str(facts["snapshot"]).split(":")
    # the whole number of the transaction: near that of the snapshot, whose last 32 bits we have
    near = int(most)
    xid = near + ((transaction.xid - near + (1 << 31)) % (1 << 32)) - (1 << 31)
    if xid < int(least):
        return True
    return xid < int(most) and str(xid) not in running.split(",")
