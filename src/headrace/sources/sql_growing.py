"""New rows of a table or query of a database, by a column whose values grow.

Rows are asked for up to a value that has settled: nobody who may still add a row before it is at
work. A row that appears before the position all the same is an error, never left out.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.clock import millis
from headrace.connect.sql import Connection, Database, quoted
from headrace.errors import InputError
from headrace.schema import ddl_type
from headrace.sources.columns import fit
from headrace.sources.contract import BEGINNING, InputRequest
from headrace.sources.sql import POLL, FollowingSource
from headrace.sources.stored_source import SPLIT, StoredSource
from headrace.state.faults import point

MOST_AT_ONCE = 100_000  # rows that are asked for at a time
LOOKED_BACK = 1_000  # rows before the position that are looked at again
_HOLDERS = """
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND pid IS DISTINCT FROM pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND """
# a table with its partitions and the tables that inherit from it
_FAMILY = """
WITH RECURSIVE family(id) AS (SELECT to_regclass('{name}')::oid UNION
  SELECT inhrelid FROM pg_inherits JOIN family ON inhparent = id) SELECT id FROM family"""


class GrowingSource(FollowingSource):
    """New rows of a table or query, by a column whose values grow."""

    def __init__(self, o: InputRequest, database: Database) -> None:
        self._growing: str = o.options["growing"]
        self._settle = millis(o.options["settle"]) if "settle" in o.options else 0
        super().__init__(o, database)
        self._pending: tuple[Any, frozenset[str], int] | None = None
        self._last: Any = None  # the last value that is stored
        # the last values that are stored, in order; of each, one for every row that has it
        self._recent: list[Any] | None = None
        self._until: Any = None  # of a bounded input: the last value it reads

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
        return bool(self._patiently(lambda c: c.run(some))[0][0])

    def gather(self) -> None:
        super().gather()
        self._pending = None  # what it waits for was there before

    def _broken_off(self) -> None:
        self._pending = None

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Rows that a later start looks back at stay stored, and one before them."""
        if SPLIT in offsets:
            self._committed = offsets[SPLIT]
            if self._recent is not None:
                looked_at = self.latest(SPLIT) - len(self._recent) - 1
                safe = min(self._committed, max(looked_at, 0))
                self.rows_stored.forget(self.forgettable(SPLIT, safe))

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
                self._finish()
                return
            # in this order: whoever has taken a smaller value is at work now, or has finished
            self._pending = self._until if self.bounded else newest, self._writers(c), now
        newest, writers, since = self._pending
        if now - since < self._settle or (writers and writers & self._writers(c)):
            self._next = min(self._next, now + POLL)
            return
        if self._take(c, newest):
            self._pending = None
            self._finish()
        else:
            self._next = now  # there is more

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
        rows, (_, end) = LOOKED_BACK + 1, self.rows_stored.bounds()
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
