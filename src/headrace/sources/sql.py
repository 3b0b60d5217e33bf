"""A database as an input: a table or a query, once, or followed by a column that grows.

    job.read("sql:postgresql://host/db", table="orders")                 a snapshot, which ends
    job.read("sql:postgresql://host/db", table="orders", growing="id")   new rows as they come

A database cannot be asked again for what it said before, so rows are stored in the job's folder
first, and read from there: a snapshot is offered once all of it is stored. Rows that grow are asked
for up to a value that has settled: nobody who may still add a row before it is at work.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
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
    quoted,
)
from headrace.errors import HeadraceError, InputError
from headrace.schema import ddl_type
from headrace.sources.columns import conform, fit, missing_column
from headrace.sources.contract import (
    BEGINNING,
    Chunk,
    InputRequest,
    Range,
    Source,
    even_cuts,
    refuse_shorter,
)
from headrace.sources.stored_rows import StoredInput
from headrace.state.faults import point
from headrace.state.sealed import create_sealed, read_sealed

T = TypeVar("T")
SPLIT = "rows"
LEAST = 16_384  # rows: fewer are not worth a task of their own
MOST_AT_ONCE = 100_000  # rows that are asked for at a time
MOST_AHEAD = 1_000_000  # rows that are stored and not yet committed
LOOKED_BACK = 1_000  # rows before the position that are looked at again
POLL = 1_000  # ms between two looks
_SNAPSHOT, _KIND = "snapshot.json", "input snapshot"  # at rest
_HOLDERS = """
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND pid IS DISTINCT FROM pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND """

# a table with its partitions and the tables that inherit from it
_FAMILY = """
WITH RECURSIVE family(id) AS (SELECT to_regclass('{name}')::oid UNION
  SELECT inhrelid FROM pg_inherits JOIN family ON inhparent = id) SELECT id FROM family"""


class StoredSource(Source):
    """What inputs share whose rows are stored first."""

    raw = False

    def __init__(self, schema: pa.Schema, home: Path | None, what: str) -> None:
        self.schema, self._home, self.what = schema, home, what
        self._opened: StoredInput | None = None
        self._committed = 0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def rows_stored(self) -> StoredInput:
        if self._home is None:
            raise InputError(
                "HR-INPUT-013",
                f"{self.what} needs a job's folder, to store what is read",
                "Read it in a job.",
            )
        if self._opened is None:
            self._opened = StoredInput(self._home)
        return self._opened

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        start, end = self._bounds()
        at = offsets.get(SPLIT, start)
        refuse_shorter(self.in_words(SPLIT), at, end)
        if at < start:
            raise InputError(
                "HR-INPUT-011",
                f"the first {start} rows of {self.what} were read and forgotten",
                "Go on from a later epoch, or start with a new job folder.",
            )

    def _bounds(self) -> tuple[int, int]:
        return self.rows_stored.bounds() if self._home is not None else (0, 0)

    def has_more(self, split: str, offset: int) -> bool:
        return self._bounds()[1] != offset

    def splits(self) -> list[str]:
        return [SPLIT]

    def start(self, split: str) -> int:
        return self._bounds()[0]

    def latest(self, split: str) -> int:
        return self._bounds()[1]

    def cut(self, split: str, start: int, end: int, pieces: int) -> list[Range]:
        refuse_shorter(self.in_words(split), start, end)
        bounds = even_cuts(start, end, pieces, LEAST)
        return [Range(split, a, b) for a, b in pairwise(bounds)]

    def read(self, range: Range) -> Iterator[Chunk]:
        for table, offsets in self.rows_stored.read(range.start, range.end):
            yield conform(table, self.schema), offsets

    def where(self, split: str, offset: int) -> str:
        return f"{self.what} row {offset + 1}"

    def commit(self, offsets: Mapping[str, int]) -> None:
        if SPLIT in offsets:
            self._committed = offsets[SPLIT]
            self.rows_stored.forget(offsets[SPLIT])

    def close(self) -> None:
        if self._opened is not None:
            self._opened.unlock()


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
            fit(self.what, stored, self.schema)
        else:
            fit(self.what, self._look(self._described), self.schema)

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
        try:
            with connected(self._database) as connection:
                return ask(connection)
        except (SqlFailure, UnmappedError) as cause:
            raise self._failed(cause) from cause

    def _patiently(self, ask: Callable[[Connection], T]) -> T:
        try:
            return patiently(self._database, ask, self._gave_up)
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


class GrowingSource(SqlSource):
    """New rows of a table or query, by a column whose values grow."""

    def __init__(self, o: InputRequest, database: Database) -> None:
        self._growing: str = o.options["growing"]
        self._settle = millis(o.options["settle"]) if "settle" in o.options else 0
        self._poll = millis(o.options["poll"]) if "poll" in o.options else POLL
        super().__init__(o, database)
        self.bounded = o.bounded
        self._pending: tuple[Any, frozenset[str], int] | None = None
        self._last: Any = None  # the last value that is stored
        # the last values that are stored, in order; of each, one for every row that has it
        self._recent: list[Any] | None = None
        self._until: Any = None  # of a bounded input: the last value it reads
        self._done = False
        self._next = 0

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_recent": None}

    @property
    def complete(self) -> bool:
        return True  # what is stored may be read

    def _bounds(self) -> tuple[int, int]:
        return StoredSource._bounds(self)

    @property
    def _wanted(self) -> list[str]:
        return [*super()._wanted, *({self._growing} - {*super()._wanted})]

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        StoredSource.check(self, offsets)
        schema = self._look(self._described)
        fit(self.what, schema, self.schema)
        self._check_growing(schema)

    def _check_growing(self, schema: pa.Schema) -> None:
        if self._growing not in schema.names:
            raise InputError(
                "HR-SQL-011",
                f"{self.what} has no column {self._growing!r}, by which it is to grow",
                f"It has: {', '.join(schema.names)}.",
            )
        kind = schema.field(self._growing).type
        is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
        if not pa.types.is_integer(kind) and not (is_time and self._database.dialect != "sqlite"):
            raise InputError(
                "HR-SQL-011",
                f"column {self._growing!r} of {self.what} is {ddl_type(kind)}",
                "Follow a column of whole numbers, such as an id; or of times (not in SQLite).",
            )
        if is_time and not self._settle:
            raise InputError(
                "HR-SQL-013",
                f"column {self._growing!r} of {self.what} is a time, and rows of an earlier time "
                "may appear later",
                'Say how long a row may take to appear after its time: settle="10s".',
            )

    def has_more(self, split: str, offset: int) -> bool:
        if super().has_more(split, offset):
            return True
        last = self.rows_stored.last(1)
        query = self._query
        if last is not None:
            value = _literal(last.column(self._growing)[0].as_py())
            query = f"SELECT * FROM ({query}) AS q WHERE {self._column} > {value}"
        some = f"SELECT count(*) FROM (SELECT 1 FROM ({query}) AS q LIMIT 1) AS s"
        return bool(self._look(lambda c: c.run(some))[0][0])

    def ended(self, split: str, offset: int) -> bool:
        return self.bounded and self._done and offset >= self.latest(split)

    def discover(self) -> None:
        now = self._clock.now()
        if self._done or (not self.bounded and now < self._next) or not self.rows_stored.lock():
            return
        if self.latest(SPLIT) - max(self._committed, self.start(SPLIT)) > MOST_AHEAD:
            return
        self._next = now + self._poll
        try:
            with connected(self._database) as connection:
                self._follow(connection, now)
        except SqlFailure as failure:
            if not failure.transient:
                raise self._failed(failure) from failure
            self._pending = None
            LOG.warning("%s: %s; trying again", self._database.place, failure)
        except UnmappedError as cause:
            raise self._failed(cause) from cause

    def _follow(self, c: Connection, now: int) -> None:
        if self._recent is None:
            self._check_growing(schema := self._described(c))
            self.rows_stored.begin(schema)
            self._recent = self._look_back(c)
        if self._pending is None:
            self._refuse_late(c)
            ((newest,),) = c.run(f"SELECT max({self._column}) FROM ({self._after()}) AS q")
            newest = self._value(newest)
            if self.bounded and self._until is None:
                self._until = newest
            if newest is None or (self.bounded and self._last == self._until):
                self._done = self.bounded
                return
            # in this order: whoever has taken a smaller value is at work now, or has finished
            self._pending = self._until if self.bounded else newest, self._writers(c), now
        newest, writers, since = self._pending
        if now - since < self._settle or (writers and writers & self._writers(c)):
            return
        if self._take(c, newest):
            self._pending = None
            self._done = self.bounded

    def _take(self, c: Connection, newest: Any) -> bool:
        """Store the next rows up to `newest`, all rows of a value at once; whether that is all.

        The newest row itself may be gone by now.
        """
        assert self._recent is not None
        bound, until = f"{self._column} <= {_literal(newest)}", newest
        some = c.run(
            f"SELECT {self._column} FROM ({self._after()}) AS q WHERE {bound} "
            f"ORDER BY 1 LIMIT 1 OFFSET {MOST_AT_ONCE - 1}"
        )
        if some:
            until = self._value(some[0][0])
            bound = f"{self._column} <= {_literal(until)}"
        schema = self.rows_stored.schema
        assert schema is not None
        query = f"SELECT * FROM ({self._after()}) AS q WHERE {bound}"
        tables = list(c.fetch(query, schema))
        rows = pa.concat_tables([schema.empty_table(), *tables]).sort_by(self._growing)
        self.rows_stored.add(rows)
        point("source.growing.added")
        recent = [*self._recent, *rows.column(self._growing).to_pylist()]
        if recent:
            self._last = recent[-1]
            cut = bisect_left(recent, recent[max(0, len(recent) - LOOKED_BACK)])
            self._recent = recent[cut:]
        return bool(until == newest)

    def _look_back(self, c: Connection) -> list[Any]:
        """The values before the position, as after the last run."""
        rows, (_, end) = LOOKED_BACK, self.rows_stored.bounds()
        while (last := self.rows_stored.last(rows)) is not None:
            values: list[Any] = last.column(self._growing).to_pylist()
            self._last = values[-1]
            if len(values) == end:
                return values
            if later := values[bisect_right(values, values[0]) :]:
                return later  # without the first value, of which there may have been more rows
            if len(values) < rows:  # the others are forgotten: as many as there are now
                bound = f"{self._column} = {_literal(self._last)}"
                ((now,),) = c.run(f"SELECT count(*) FROM ({self._query}) AS q WHERE {bound}")
                return [self._last] * int(now)
            rows *= 2
        return []

    def _refuse_late(self, c: Connection) -> None:
        """Raise InputError if a row has appeared before the position, or has no value."""
        assert self._recent is not None
        ((blank,),) = c.run(
            f"SELECT count(*) FROM (SELECT 1 FROM ({self._query}) AS q "
            f"WHERE {self._column} IS NULL LIMIT 1) AS s"
        )
        if blank:
            raise InputError(
                "HR-SQL-011",
                f"a row of {self.what} has no value in {self._growing!r}: it would never be read",
                "Leave such rows out in a query, or give the column a value.",
            )
        if not self._recent:
            return
        first, last, stored = self._recent[0], self._recent[-1], len(self._recent)
        bound = f"{self._column} <= {_literal(last)}"
        if stored < self.latest(SPLIT):  # there were more before
            bound += f" AND {self._column} >= {_literal(first)}"
        ((found,),) = c.run(f"SELECT count(*) FROM ({self._query}) AS q WHERE {bound}")
        if found > stored:
            raise InputError(
                "HR-SQL-012",
                f"{found - stored} rows of {self.what} appeared with a {self._growing!r} up to "
                f"{last}, after the rows up to there were read",
                "They would be missing. Make the column grow in the order of commits, or wait for "
                'such rows: settle="10s"; then start with a new job folder.',
            )

    @property
    def _column(self) -> str:
        """The column of a query that is named q: SQLite takes a bare name that is gone as text."""
        return f"q.{quoted(self._growing)}"

    def _after(self) -> str:
        if self._last is None:
            return self._query
        return f"SELECT * FROM ({self._query}) AS q WHERE {self._column} > {_literal(self._last)}"

    def _value(self, value: Any) -> Any:
        if isinstance(value, dt.datetime):
            return value.replace(tzinfo=value.tzinfo or dt.UTC)
        return value

    def _writers(self, c: Connection) -> frozenset[str]:
        """The transactions that may have added rows which nobody sees yet."""
        if c.dialect != "postgresql":
            return frozenset()
        tables = "relation >= 16384"  # of users
        if self._table is not None:
            name = self._table.sql.replace("'", "''")
            ((kind,),) = c.run(
                f"SELECT relkind::text FROM pg_class WHERE oid = to_regclass('{name}')"
            )
            if kind in ("r", "p"):
                tables = f"relation IN ({_FAMILY.format(name=name)})"
        return frozenset(str(v) for (v,) in c.run(_HOLDERS + tables))


def _literal(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return f"TIMESTAMPTZ '{value.isoformat()}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return str(int(value))
