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

from headrace.connect.pgoutput import Decoder
from headrace.connect.sql import Connection, Database, TableName, UnmappedError
from headrace.errors import InputError
from headrace.sources.captured_rows import (
    ABOUT,
    LSN,
    SNAPSHOT,
    CapturedRows,
    changed_column,
    uncaptured,
    visible,
    with_about,
)
from headrace.sources.columns import fit
from headrace.sources.contract import BEGINNING, InputRequest, write_durably
from headrace.sources.sql import FollowingSource
from headrace.sources.stored_source import StoredSource
from headrace.state.faults import point
from headrace.state.sealed import create_sealed, read_sealed

MOST_CHANGES = 50_000  # that are asked for at a time; a transaction is never cut
_SLOT, _KIND = "slot.json", "replication slot"  # at rest
_DONE, _DONE_KIND = "snapshot.json", "input snapshot"
_ADVANCED = "advanced.json"
_COLUMNS = """
SELECT attname::text, atttypid::bigint, atttypmod::bigint, attnum::bigint FROM pg_attribute
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


class ChangesSource(FollowingSource):
    bounded = False
    because = "the server keeps changes until they are stored in the job's folder"

    def __init__(self, o: InputRequest, database: Database) -> None:
        super().__init__(o, database)
        self._chosen: str | None = o.options.get("slot")
        self._rows: CapturedRows | None = None  # from the first look on
        self._until = 0

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_rows": None}

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
        except UnmappedError as cause:
            raise UnmappedError(cause.column, cause.declared, self._leaving(c, cause)) from cause
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

    def _leaving(self, c: Connection, cause: UnmappedError) -> str:
        """What to do about a column: here is no query in which it could be cast."""
        if cause.declared.startswith("numeric"):
            return "Say how many digits it has, or leave it out: schema=..."
        names = [x.name for x in c.columns(c.resolve(self._named)) or () if x.name != cause.column]
        others = ", ".join([*names, *ABOUT.names])
        return f"Leave it out: declare the others with schema=..., as far as needed: {others}."

    def _columns_declared(self) -> pa.Schema | None:
        if self._declared is None:
            return None
        return pa.schema([f for f in self._declared if f.name not in ABOUT.names])

    # before a start

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        StoredSource.check(self, offsets)
        if self.rows_stored.schema is not None:
            self._fit_stored(self.rows_stored.schema)
        else:
            fit(self.what, self._look(self._described), self.schema)
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
        self._check_numbers(c, self._done_facts())
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

    def _table_now(self, c: Connection) -> tuple[int, str]:
        """The table's number, and what names a row of it that is gone."""
        found = c.run(_TABLE, c.resolve(self._named).sql)
        if not found or found[0][1] != "r" or found[0][3]:
            fact = "is inherited by other tables" if found and found[0][3] else "is no table"
            if found and found[0][1] == "p":
                fact = "is partitioned, and rows that come or go with a partition are no changes"
            raise uncaptured(
                self.what, fact, "Read the changes of each table as an input of its own."
            )
        return int(found[0][0]), str(found[0][2])

    def _check_identity(self, c: Connection) -> None:
        """Raise InputError unless the server can say which row was updated or deleted."""
        _, identity = self._table_now(c)
        table = c.resolve(self._named).sql
        primary = {n for (n,) in c.run(_PRIMARY, table)}
        named = {n for (n,) in c.run(_NAMED_BY, table)}
        hint = f"Add a primary key, or ALTER TABLE {self._table} REPLICA IDENTITY FULL."
        if identity == "n" or (identity == "d" and not primary):
            fact = "has no primary key, or no replica identity: the server would refuse updates"
            raise uncaptured(self.what, fact, hint)
        if identity == "i" and (not named or (primary and named != primary)):
            raise uncaptured(
                self.what, "has a replica identity of other columns than its key", hint
            )
        read = [f.name for f in self._columns_declared() or ()]
        for (name,) in c.run(_GENERATED, table):
            if self._declared is None or name in read:
                raise uncaptured(
                    self.what,
                    f"computes column {name!r}, which changes do not have",
                    "Declare the columns without it: schema=..., and compute it in the program.",
                )

    def _check_published(self, c: Connection, facts: Mapping[str, Any]) -> tuple[int, int]:
        """The numbers of the table and of its place in the publication, which stay the same."""
        slot, (table, _) = self._slot(), self._table_now(c)
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

    def _check_numbers(self, c: Connection, facts: Mapping[str, Any]) -> None:
        """A column that was dropped, and one of its name added, is another: its values in rows
        that were there changed, and no change says so. So they do when names are exchanged."""
        table = c.resolve(self._named).sql
        now = {name: number for name, _, _, number in c.run(_COLUMNS, table)}
        for name, number in facts.get("numbers", {}).items():  # older folders do not have them
            if now.get(name) != number:
                fact = "is another of that name" if name in now else "is gone"
                raise changed_column(self.what, name, fact)

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

    def gather(self) -> None:
        super().gather()
        self._until = 0

    def has_more(self, split: str, offset: int) -> bool:
        if not self.complete or super().has_more(split, offset):
            return True
        slot = self._slot()
        some = (
            f"SELECT count(*) FROM pg_logical_slot_peek_binary_changes('{slot}', NULL, 1, "
            f"'proto_version', '1', 'publication_names', '{slot}')"
        )
        return bool(self._patiently(lambda c: c.run(some))[0][0])

    # storing

    def _begin(self) -> None:
        if not self.complete:
            self._patiently(self._take_snapshot)

    def _take_snapshot(self, c: Connection) -> None:
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
                self.rows_stored.add(with_about(part, schema, SNAPSHOT, 0, int(time)))
                rows += part.num_rows
            found = c.run(_COLUMNS, table.sql)
        finally:
            c.rollback()
        point("source.changes.snapshot")
        types = {n: [int(k), int(m)] for n, k, m, _ in found if n in columns.names}
        numbers = {n: int(number) for n, _, _, number in found if n in columns.names}
        facts = {
            "rows": rows, "snapshot": seen, "lsn": int(lsn), "types": types, "table": number,
            "published": published, "numbers": numbers,
        }  # fmt: skip
        create_sealed(self._place / _DONE, _DONE_KIND, facts)

    def _follow(self, c: Connection, now: int) -> None:
        if self._rows is None:
            self._check_slot(c)
            table = c.resolve(self._named)
            primary = frozenset(str(n) for (n,) in c.run(_PRIMARY, table.sql))
            self._rows = CapturedRows(self.what, self._named, self._table_now(c)[0], primary)
        slot, facts = self._slot(), self._done_facts()
        self._check_published(c, facts)
        ((flushed,),) = c.run("SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint")
        if not self._until:
            self._until = int(flushed)
        messages = c.run(
            f"SELECT data FROM pg_logical_slot_peek_binary_changes('{slot}', NULL, {MOST_CHANGES}, "
            f"'proto_version', '1', 'publication_names', '{slot}')"
        )
        self._check_numbers(c, facts)  # after the look: so they are those of all that was found
        last = self.rows_stored.last(1)
        position = int(last.column(LSN)[0].as_py()) if last is not None else 0
        end = int(flushed)
        decoder = Decoder()  # each peek describes its tables anew
        found = list(decoder.transactions(bytes(data) for (data,) in messages))
        rows = [t for t in found if t.lsn > position and not visible(t, facts)]
        schema = self.rows_stored.schema
        assert schema is not None
        self.rows_stored.add(self._rows.table(rows, schema, facts["types"]))
        point("source.changes.added")
        if found:
            end = found[-1].end
        if found or end - self._advanced() > 1 << 24:
            write_durably(self._place / _ADVANCED, json.dumps({"lsn": end}).encode())
            point("source.changes.noted")
            where = f"{end >> 32:X}/{end & 0xFFFFFFFF:X}"
            c.run(f"SELECT end_lsn::text FROM pg_replication_slot_advance('{slot}', '{where}')")
        if not found or end >= self._until:
            self._finish()
        else:
            self._next = now  # there is more
