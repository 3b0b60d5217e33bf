"""The changes of a PostgreSQL table as an input, by logical replication.

    job.read("sql:postgresql://host/db", table="orders", changes=True)

First a snapshot of the table, then every insert, update and delete that is not in it. A replication
slot makes the server keep changes until they are stored in the job's folder; only then is it
advanced. Asked for by SQL: peek, store, advance; so a crash in between only peeks again, and what
is stored already is told by the position of its commit.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import millis
from headrace.connect import pgoutput
from headrace.connect.pgoutput import (
    DELETE,
    INSERT,
    TRUNCATE,
    UPDATE,
    CapturedChange,
    Decoder,
    Relation,
    Transaction,
)
from headrace.connect.sql import (
    LOG,
    Connection,
    Database,
    SqlFailure,
    TableName,
    UnmappedError,
    connected,
)
from headrace.errors import InputError
from headrace.schema import TIMESTAMP, ddl_type
from headrace.sources.columns import fit
from headrace.sources.contract import BEGINNING, InputRequest, write_durably
from headrace.sources.sql import MOST_AHEAD, POLL, SPLIT, SqlSource, StoredSource
from headrace.state.faults import point
from headrace.state.sealed import create_sealed, read_sealed

OP, LSN, TIME = "change_op", "change_lsn", "change_time"
ABOUT = pa.schema([(OP, pa.string()), (LSN, pa.int64()), (TIME, TIMESTAMP)])
SNAPSHOT = "snapshot"
MOST_CHANGES = 50_000  # that are asked for at a time; a transaction is never cut
_SLOT, _KIND = "slot.json", "replication slot"  # at rest
_DONE, _DONE_KIND = "snapshot.json", "input snapshot"
_ADVANCED = "advanced.json"
_COLUMNS = """
SELECT attname::text, atttypid::bigint, atttypmod::bigint FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"""
_PRIMARY = """
SELECT a.attname::text FROM pg_index i JOIN pg_attribute a
ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = to_regclass($1) AND i.indisprimary"""

_TABLE = """
SELECT c.oid::bigint, c.relkind::text, c.relreplident::text,
  EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class h ON h.oid = i.inhrelid
          WHERE i.inhparent = c.oid AND c.relkind = 'r')
FROM pg_class c WHERE c.oid = to_regclass($1)"""
_NAMED_BY = """
SELECT a.attname::text FROM pg_index i JOIN pg_attribute a
ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = to_regclass($1) AND i.indisreplident"""
_GENERATED = """
SELECT attname::text FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped AND attgenerated <> ''"""
_PUBLISHED = """
SELECT r.oid::bigint, r.prrelid::bigint, p.pubinsert AND p.pubupdate AND p.pubdelete
  AND p.pubtruncate AND NOT p.puballtables
  AND to_jsonb(r)->>'prqual' IS NULL AND to_jsonb(r)->>'prattrs' IS NULL
FROM pg_publication p LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid WHERE p.pubname = $1"""


class ChangesSource(SqlSource):
    bounded = False

    def __init__(self, o: InputRequest, database: Database) -> None:
        super().__init__(o, database)
        self.bounded = o.bounded
        self._chosen: str | None = o.options.get("slot")
        self._poll = millis(o.options["poll"]) if "poll" in o.options else POLL
        self._decoder: Decoder | None = None
        self._primary: frozenset[str] = frozenset()
        self._alone: int | None = None  # the number of a table that has no partitions
        self._next, self._until, self._done = 0, 0, False

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_decoder": None}

    def identity(self) -> dict[str, str]:
        place = f"{self._database.place} changes of {self._text}"
        return {"kind": "sql", "place": place, "thing": ""}

    @property
    def _named(self) -> TableName:
        assert self._table is not None
        return self._table

    @property
    def _place(self) -> Path:
        return self.rows_stored.home

    def _described(self, c: Connection) -> pa.Schema:
        whole, self._declared = self._declared, self._columns_declared()
        try:
            columns = super()._described(c)
        finally:
            self._declared = whole
        for name in ABOUT.names:
            if name in columns.names:
                raise InputError(
                    "HR-SQL-026",
                    f"{self.what} has a column {name!r}, as the changes do",
                    "Rename the column of the table.",
                )
        return pa.schema([*columns, *ABOUT])

    def _columns_declared(self) -> pa.Schema | None:
        if self._declared is None:
            return None
        return pa.schema([f for f in self._declared if f.name not in ABOUT.names])

    # before a start

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        StoredSource.check(self, offsets)
        fit(self.what, self.rows_stored.schema or self._look(self._described), self.schema)
        self._look(self._check_slot)

    def _check_slot(self, c: Connection) -> None:
        ((level,),) = c.run("SELECT current_setting('wal_level')")
        if level != "logical":
            raise InputError(
                "HR-SQL-020",
                f"{self._database.place} has wal_level {level!r}: it does not record changes",
                "ALTER SYSTEM SET wal_level = 'logical', and restart the server.",
            )
        self._check_identity(c)
        if not self.complete:
            return
        self._check_published(c, self._done_facts())
        slot = self._slot()
        found = c.run(
            "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint, coalesce(wal_status, '') "
            "FROM pg_replication_slots WHERE slot_name = $1",
            slot,
        )
        if not found or found[0][1] == "lost":
            raise InputError(
                "HR-SQL-021",
                f"the replication slot {slot!r} of {self._database.place} is "
                + ("lost: the server has removed what it was to keep" if found else "gone"),
                "Changes since the last batch cannot be had any more: start with a new job folder, "
                "which reads the table anew.",
            )
        if int(found[0][0]) > self._advanced():
            raise InputError(
                "HR-SQL-022",
                f"the replication slot {slot!r} was advanced by somebody else, beyond what the "
                "job has stored",
                "Changes in between are lost to the job: start with a new job folder, and a slot "
                "of its own.",
            )

    def _table_now(self, c: Connection) -> tuple[int, str, str]:
        """The table's number, its kind, and what names a row of it that is gone."""
        found = c.run(_TABLE, c.resolve(self._named).sql)
        if not found or found[0][1] not in ("r", "p") or found[0][3]:
            fact = "is inherited by other tables" if found and found[0][3] else "is no table"
            raise self._uncaptured(fact, "Read the changes of each table as an input of its own.")
        return int(found[0][0]), str(found[0][1]), str(found[0][2])

    def _check_identity(self, c: Connection) -> None:
        """Raise InputError unless the server can say which row was updated or deleted."""
        _, _, identity = self._table_now(c)
        table = c.resolve(self._named).sql
        primary = {n for (n,) in c.run(_PRIMARY, table)}
        named = {n for (n,) in c.run(_NAMED_BY, table)}
        hint = f"Add a primary key, or ALTER TABLE {self._table} REPLICA IDENTITY FULL."
        if identity == "n" or (identity == "d" and not primary):
            fact = "has no primary key, or no replica identity: the server would refuse updates"
            raise self._uncaptured(fact, hint)
        if identity == "i" and (not named or (primary and named != primary)):
            raise self._uncaptured("has a replica identity of other columns than its key", hint)
        read = [f.name for f in self._columns_declared() or ()]
        for (name,) in c.run(_GENERATED, table):
            if self._declared is None or name in read:
                raise self._uncaptured(
                    f"computes column {name!r}, which changes do not have",
                    "Declare the columns without it: schema=..., and compute it in the program.",
                )

    def _uncaptured(self, fact: str, hint: str) -> InputError:
        return InputError("HR-SQL-028", f"changes cannot be captured: {self.what} {fact}", hint)

    def _check_published(self, c: Connection, facts: Mapping[str, Any]) -> tuple[int, int]:
        """The numbers of the table and of its place in the publication, which stay the same."""
        slot, (table, _, _) = self._slot(), self._table_now(c)
        found = c.run(_PUBLISHED, slot)
        why = ""
        if facts.get("table", table) != table:
            why = f"{self.what} is another table of that name than the one that was read"
        elif [(r[1], r[2]) for r in found] != [(table, True)]:
            why = f"the publication {slot!r} is not that of all changes of {self.what} alone"
        elif facts.get("published", found[0][0]) != found[0][0]:
            why = f"the publication {slot!r} was changed: {self.what} was not in it for a time"
        if why:
            raise InputError(
                "HR-SQL-027",
                why,
                "Changes may be missing: start with a new job folder, which reads the table anew, "
                "and a slot of its own.",
            )
        return table, int(found[0][0])

    def _slot(self) -> str:
        return str(read_sealed(self._place / _SLOT, _KIND)["slot"])

    def _done_facts(self) -> dict[str, Any]:
        return read_sealed(self._place / _DONE, _DONE_KIND)

    def _advanced(self) -> int:
        """How far the job itself may have advanced the slot."""
        path = self._place / _ADVANCED
        own = int(json.loads(path.read_bytes())["lsn"]) if path.exists() else 0
        return max(own, int(self._done_facts()["lsn"]))

    def _bounds(self) -> tuple[int, int]:
        return StoredSource._bounds(self) if self.complete else (0, 0)

    def has_more(self, split: str, offset: int) -> bool:
        if not self.complete or super().has_more(split, offset):
            return True
        slot = self._slot()
        some = (
            f"SELECT count(*) FROM pg_logical_slot_peek_binary_changes('{slot}', NULL, 1, "
            f"'proto_version', '1', 'publication_names', '{slot}')"
        )
        return bool(self._look(lambda c: c.run(some))[0][0])

    def ended(self, split: str, offset: int) -> bool:
        return self.bounded and self._done and offset >= self.latest(split)

    # storing

    def discover(self) -> None:
        now = self._clock.now()
        if self._done or (not self.bounded and now < self._next) or not self.rows_stored.lock():
            return
        if self.latest(SPLIT) - max(self._committed, self.start(SPLIT)) > MOST_AHEAD:
            return
        self._next = now + self._poll
        if not self.complete:
            self._patiently(self._begin)
        try:
            with connected(self._database) as connection:
                self._follow(connection)
        except SqlFailure as failure:
            if not failure.transient:
                raise self._failed(failure) from failure
            LOG.warning("%s: %s; trying again", self._database.place, failure)
        except UnmappedError as cause:
            raise self._failed(cause) from cause

    def _begin(self, c: Connection) -> None:
        """The slot, then a snapshot that is later: what it has is skipped in the changes."""
        self._check_slot(c)
        table = c.resolve(self._named)
        if not (self._place / _SLOT).exists():
            name = self._chosen or f"headrace_{uuid.uuid4().hex[:16]}"
            create_sealed(self._place / _SLOT, _KIND, {"slot": name})
        slot = self._slot()
        if not c.run("SELECT 1 FROM pg_publication WHERE pubname = $1", slot):
            c.run(f'CREATE PUBLICATION "{slot}" FOR TABLE {table.sql}')
        if not c.run("SELECT 1 FROM pg_replication_slots WHERE slot_name = $1", slot):
            c.run(
                "SELECT slot_name::text FROM pg_create_logical_replication_slot($1, 'pgoutput')",
                slot,
            )
        number, published = self._check_published(c, {})
        point("source.changes.slot")
        schema = self._described(c)
        self.rows_stored.restart(schema)
        rows = 0
        c.run("BEGIN ISOLATION LEVEL REPEATABLE READ")
        try:
            ((seen, lsn, time),) = c.run(
                "SELECT pg_current_snapshot()::text, "
                "(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, "
                "(extract(epoch FROM now()) * 1000000)::bigint"
            )
            columns = pa.schema([f for f in schema if f.name not in ABOUT.names])
            for part in c.fetch(self._query, columns):
                self.rows_stored.add(_about(part, schema, SNAPSHOT, 0, int(time)))
                rows += part.num_rows
            types = {n: [int(k), int(m)] for n, k, m in c.run(_COLUMNS, table.sql)}
        finally:
            c.rollback()
        point("source.changes.snapshot")
        types = {n: t for n, t in types.items() if n in columns.names}
        facts = {
            "rows": rows, "snapshot": seen, "lsn": int(lsn), "types": types, "table": number,
            "published": published,
        }  # fmt: skip
        create_sealed(self._place / _DONE, _DONE_KIND, facts)

    def _follow(self, c: Connection) -> None:
        if self._decoder is None:
            self._check_slot(c)
            table = c.resolve(self._named)
            self._primary = frozenset(n for (n,) in c.run(_PRIMARY, table.sql))
            number, kind, _ = self._table_now(c)
            self._alone = number if kind == "r" else None
        self._decoder = Decoder()  # each peek describes its tables anew
        slot, facts = self._slot(), self._done_facts()
        self._check_published(c, facts)
        ((now,),) = c.run("SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint")
        if self.bounded and not self._until:
            self._until = int(now)
        messages = c.run(
            f"SELECT data FROM pg_logical_slot_peek_binary_changes('{slot}', NULL, {MOST_CHANGES}, "
            f"'proto_version', '1', 'publication_names', '{slot}')"
        )
        last = self.rows_stored.last(1)
        position = int(last.column(LSN)[0].as_py()) if last is not None else 0
        end = int(now)
        found = list(self._decoder.transactions(bytes(data) for (data,) in messages))
        rows = [t for t in found if t.lsn > position and not _visible(t, facts)]
        self.rows_stored.add(self._table_of(rows, facts))
        point("source.changes.added")
        if found:
            end = found[-1].end
        if found or end - self._advanced() > 1 << 24:
            write_durably(self._place / _ADVANCED, json.dumps({"lsn": end}).encode())
            point("source.changes.noted")
            where = f"{end >> 32:X}/{end & 0xFFFFFFFF:X}"
            c.run(f"SELECT end_lsn::text FROM pg_replication_slot_advance('{slot}', '{where}')")
        if self.bounded and (not found or end >= self._until):
            self._done = True

    def _table_of(self, transactions: list[Transaction], facts: dict[str, Any]) -> pa.Table:
        """The changes as rows."""
        schema = self.rows_stored.schema
        assert schema is not None
        names = [n for n in schema.names if n not in ABOUT.names]
        values: dict[str, list[str | None]] = {name: [] for name in names}
        about: list[tuple[str, int, int]] = []
        for transaction in transactions:
            for change in transaction.changes:
                for op, row in self._rows_of(change, names, facts):
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
                raise UnmappedError(field.name, what, "Correct the value in the table.") from cause
        return pa.Table.from_arrays(arrays, schema=schema)

    def _rows_of(
        self, change: CapturedChange, names: list[str], facts: dict[str, Any]
    ) -> list[tuple[str, pgoutput.Values]]:
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
            if types.get(name) != facts["types"][name]:
                fact = "has another type" if name in types else "is gone"
                raise InputError(
                    "HR-SQL-025",
                    f"column {name!r} of {self.what} {fact}",
                    "Undo the change, or start with a new job folder, which reads the table anew.",
                )
        if change.kind == DELETE:
            return [(DELETE, change.old or {})]
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
                return [(DELETE, change.old), (INSERT, new)]  # the row has another key
        return [(change.kind, new)]

    def _check_relation(self, relation: Relation) -> None:
        if self._alone is not None and relation.id != self._alone:
            raise InputError(
                "HR-SQL-027",
                f"the changes have those of {relation.schema}.{relation.name}, which is not "
                f"{self.what} as it was read",
                "Start with a new job folder, and a slot of its own.",
            )
        if not relation.full and self._primary and relation.key != self._primary:
            fact = "had a replica identity of other columns than its key"
            hint = "Set it to the primary key or FULL, and start with a new job folder."
            raise self._uncaptured(fact, hint)


def _about(rows: pa.Table, schema: pa.Schema, op: str, lsn: int, time: int) -> pa.Table:
    count = rows.num_rows
    more = {
        OP: pa.repeat(op, count),
        LSN: pa.repeat(pa.scalar(lsn, pa.int64()), count),
        TIME: pa.repeat(pa.scalar(time, TIMESTAMP), count),
    }
    arrays = [more.get(f.name) if f.name in more else rows.column(f.name) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _visible(transaction: Transaction, facts: Mapping[str, Any]) -> bool:
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
