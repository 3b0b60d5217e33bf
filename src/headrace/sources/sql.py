"""A database as an input: a table or a query, once; and what is needed to follow one.

    job.read("sql:postgresql://host/db", table="orders")                 a snapshot, which ends
    job.read("sql:postgresql://host/db", table="orders", growing="id")   new rows as they come

A database cannot be asked again for what it said before, so rows are stored in the job's folder
first, and read from there: a snapshot is offered once all of it is stored. What the two ways to
follow a table have in common is here, too; they are in `sql_growing.py` and `sql_changes.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from headrace.clock import millis
from headrace.connect.sql import (
    LOG,
    Connection,
    Database,
    SqlFailure,
    TableName,
    UnmappedError,
    connected,
    listed,
    patiently,
)
from headrace.errors import HeadraceError, InputError
from headrace.schema import ddl_of
from headrace.sources.columns import fit, missing_column
from headrace.sources.contract import BEGINNING, InputRequest, refuse_shorter
from headrace.sources.stored_source import SPLIT, StoredSource
from headrace.state.faults import point
from headrace.state.sealed import create_sealed, read_sealed

T = TypeVar("T")
MOST_AHEAD = 1_000_000  # rows that are stored and not yet committed
POLL = 1_000  # ms between two looks
_SNAPSHOT, _KIND = "snapshot.json", "input snapshot"  # at rest


class SqlSource(StoredSource):
    """A table or a query, once."""

    bounded = True

    def __init__(self, o: InputRequest, database: Database) -> None:
        table, query = o.options.get("table"), o.options.get("query")
        self._table = TableName.of(table) if table else None
        self._query = (
            f"SELECT * FROM {self._table.sql}" if self._table else str(query).strip("; \n")
        )
        self._text = table or self._query
        self._database, self._clock = database, o.clock
        what = f"table {table!r} of {database.place}" if table else f"a query of {database.place}"
        super().__init__(pa.schema([]), o.home, what)
        self._declared = o.schema
        self.schema = o.schema if o.schema is not None else self._look(self._described)

    def identity(self) -> dict[str, str]:
        return {"kind": "sql", "place": f"{self._database.place} {self._text}", "thing": ""}

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        super().check(offsets)
        stored = self.rows_stored.schema
        if stored is not None and self.complete:
            self._fit_stored(stored)
        else:
            fit(self.what, self._look(self._described), self.schema)

    def _fit_stored(self, stored: pa.Schema) -> None:
        """Raise InputError unless the columns of the program are stored."""
        new = [name for name in self.schema.names if name not in stored.names]
        if new:
            raise InputError(
                "HR-INPUT-005",
                f"column {new[0]!r} of {self.what} was not there when the job began to store rows",
                f'Go on with the columns that are stored: schema="{ddl_of(stored)}"; or start with '
                "a new job folder, which reads all of them.",
            )
        fit(self.what, stored, self.schema)

    @property
    def complete(self) -> bool:
        return self._home is not None and (self._home / _SNAPSHOT).exists()

    def _bounds(self) -> tuple[int, int]:
        """A snapshot is offered as a whole."""
        if not self.complete:
            return 0, 0
        assert self._home is not None
        start, end = super()._bounds()
        stored = int(read_sealed(self._home / _SNAPSHOT, _KIND)["rows"])
        refuse_shorter(self.in_words(SPLIT), stored, end)
        return start, end

    def ended(self, split: str, offset: int) -> bool:
        return self.complete and offset >= self.latest(split)

    def discover(self) -> None:
        if not self.complete and self.rows_stored.lock():
            self._patiently(self._store)

    def _store(self, c: Connection) -> None:
        schema = self._described(c)
        self.rows_stored.restart(schema)
        rows = 0
        for table in c.fetch(self._query, schema):
            self.rows_stored.add(table)
            rows += table.num_rows
            point("source.snapshot.added")
        self.note_complete({"rows": rows})

    def note_complete(self, content: dict[str, Any]) -> None:
        assert self._home is not None
        create_sealed(self._home / _SNAPSHOT, _KIND, content)
        point("source.snapshot.complete")

    # asking

    def _described(self, c: Connection) -> pa.Schema:
        """The columns of the table or query that are read."""
        query = self._query
        if self._table is not None and c.columns(c.resolve(self._table)) is None:
            raise InputError(
                "HR-SQL-004",
                f"there is no {self.what}",
                "Check the name; a table of another schema is written schema.table.",
            )
        if self._declared is not None:
            names = listed(self._wanted)
            query = f"SELECT {names} FROM ({query}) AS q" if c.dialect != "sqlite" else query
        found = c.describe(query, self._declared)
        for field in self._declared or ():
            if field.name not in found.names:
                raise missing_column(self.what, field.name, c.names(query))
        return found

    @property
    def _wanted(self) -> list[str]:
        """The columns that are asked for, where the program declares them."""
        return list(self._declared.names) if self._declared is not None else []

    def _look(self, ask: Callable[[Connection], T]) -> T:
        """What `ask` returns, at a start."""
        return self._patiently(ask, starting=True)

    def _patiently(self, ask: Callable[[Connection], T], *, starting: bool = False) -> T:
        try:
            return patiently(self._database, ask, self._gave_up, starting=starting)
        except (SqlFailure, UnmappedError) as cause:
            raise self._failed(cause) from cause

    def _gave_up(self, why: str) -> HeadraceError:
        return InputError(
            "HR-SQL-010",
            f"{self._database.place} did not come back: {why}",
            "Nothing is lost: start the job again when it is there.",
        )

    def _failed(self, cause: SqlFailure | UnmappedError) -> InputError:
        if isinstance(cause, UnmappedError):
            column = f"column {cause.column!r} of {self.what}" if cause.column else self.what
            return InputError(
                "HR-SQL-003",
                f"{column} is {cause.declared}, which has no exact type here",
                cause.hint,
            )
        if cause.refused:
            return InputError(
                "HR-SQL-002",
                f"cannot connect to {self._database.place}: {cause}",
                "Check the address, the user and the password (in the URI, PGPASSWORD or "
                "PGPASSFILE), and that the server runs.",
            )
        return InputError(
            "HR-SQL-004",
            f"the database refused to read {self.what}: {cause}",
            "Correct the table's name, the query or the permissions.",
        )


class FollowingSource(SqlSource):
    """A table or query at which the job looks again and again; what is new is stored each time."""

    def __init__(self, o: InputRequest, database: Database) -> None:
        self._poll = millis(o.options["poll"]) if "poll" in o.options else POLL
        super().__init__(o, database)
        self.bounded = o.bounded
        self._next, self._done = 0, False  # the next look; whether there will be none
        self._gathered = False  # whether all is stored that was there at the first look

    @abstractmethod
    def _follow(self, c: Connection, now: int) -> None:
        """Store what is new; `_finish` when that is all of what was there at the first look."""

    def gather(self) -> None:
        self._next, self._gathered = 0, False

    def gathering(self, split: str) -> bool:
        return not self._gathered

    def _finish(self) -> None:
        """All is stored that was there at the first look."""
        self._gathered, self._done = True, self.bounded

    def _begin(self) -> None:
        """What comes before the first look."""

    def _broken_off(self) -> None:
        """A look failed, and will be tried again."""

    def ended(self, split: str, offset: int) -> bool:
        return self.bounded and self._done and offset >= self.latest(split)

    def discover(self) -> None:
        now = self._clock.now()
        if self._done or (not self.bounded and now < self._next) or not self.rows_stored.lock():
            return
        if self.latest(SPLIT) - max(self._committed, self.start(SPLIT)) > MOST_AHEAD:
            return
        self._next = now + self._poll
        self._begin()
        try:
            with connected(self._database) as connection:
                self._follow(connection, now)
        except SqlFailure as failure:
            if not failure.transient:
                raise self._failed(failure) from failure
            self._broken_off()
            LOG.warning("%s: %s; trying again", self._database.place, failure)
        except UnmappedError as cause:
            raise self._failed(cause) from cause
