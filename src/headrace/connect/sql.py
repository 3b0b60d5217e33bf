"""SQL databases: what inputs and outputs ask of one, whichever it is.

    postgresql://user@host/db   connect/sql_postgres.py, by ADBC: Arrow in and out, by COPY
    sqlite:path                 connect/sql_sqlite.py, by Python's own library
    duckdb:path                 connect/sql_duckdb.py, by the door of the kernel

A connection speaks Arrow and plain SQL with names in double quotes, which all three understand.
What a library raises becomes a `SqlFailure`, which says whether to try again may help.
"""

from __future__ import annotations

import logging
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.secrets import Secret

T = TypeVar("T")
LOG = logging.getLogger("headrace.sql")
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 10.0  # seconds between two attempts
PATIENCE = 600.0  # seconds for which a database may be gone
LOCKED = 10.0  # seconds for which one may be locked when a job starts
_SCHEME = re.compile(r"(postgres(?:ql)?)://[^/?#]*(?:/[^?#]*)?(?:\?[^#]*)?|(sqlite|duckdb):[^/:].*|"
                     r"(sqlite|duckdb):/[^/].*")  # fmt: skip
_DOORS = {
    "postgresql": "headrace.connect.sql_postgres",
    "sqlite": "headrace.connect.sql_sqlite",
    "duckdb": "headrace.connect.sql_duckdb",
}


class SqlFailure(Exception):
    """What a database or its library raised."""

    def __init__(
        self, message: str, *, transient: bool = False, refused: bool = False, state: str = ""
    ) -> None:
        super().__init__(message)
        self.transient = transient  # the same may succeed later
        self.refused = refused  # no connection: the server is not there, or does not let us in
        self.state = state  # the SQLSTATE, where there is one


@dataclass(frozen=True, slots=True)
class Database:
    """Which database; the password apart."""

    dialect: str
    url: str  # without a password; a path is absolute
    secret: Secret | None = None

    @property
    def place(self) -> str:
        """Where it is, without the settings of the connection."""
        return self.url.partition("?")[0]


@dataclass(frozen=True, slots=True)
class TableName:
    schema: str  # empty: the database's own choice
    name: str

    @staticmethod
    def of(text: str) -> TableName:
        schema, _, name = text.rpartition(".")
        return TableName(schema, name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}" if self.schema else quoted(self.name)

    def beside(self, name: str) -> TableName:
        return TableName(self.schema, name)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, for writing."""

    name: str
    declared: str  # its type, as the database says it
    kind: pa.DataType | None  # as Arrow; None if it cannot be written exactly
    required: bool  # it takes no null
    filled: bool  # it has a default
    computed: bool = False  # by the database alone
    longest: int | None = None  # characters
    cast: str = ""  # the type to cast to, where rows cannot be loaded as they are


def collated(keys: Iterable[tuple[Iterable[str], Iterable[str]]]) -> dict[frozenset[str], str]:
    """Keys, each with the first collation that it has; of the same columns one that has any."""
    found: dict[frozenset[str], str] = {}
    for names, collations in keys:
        key = frozenset(names)
        found[key] = next(filter(None, collations), found.get(key, ""))
    return found


class Connection(ABC):
    dialect: ClassVar[str]

    @abstractmethod
    def __init__(self, database: Database) -> None: ...

    pooled: ClassVar[bool] = False  # worth keeping open between two uses

    # writing

    @abstractmethod
    def columns(self, table: TableName) -> list[Column] | None:
        """The columns of a table; None if there is no such table."""

    @abstractmethod
    def keys(self, table: TableName) -> dict[frozenset[str], str]:
        """The sets of columns that are unique; of each the collation by which texts that differ
        are the same, or nothing."""

    def is_view(self, table: TableName) -> bool:
        """Whether it is a view without a trigger that writes to it."""
        return False

    @classmethod
    @abstractmethod
    def type_for(cls, kind: pa.DataType) -> str | None:
        """The type of a column that holds every value exactly; None if there is none."""

    @abstractmethod
    def load(self, table: TableName, rows: pa.Table, *, temporary: bool = False) -> None:
        """Insert rows in bulk, columns by name."""

    @abstractmethod
    def stage(self, name: str, rows: pa.Table) -> None:
        """A temporary table with these rows, gone after the transaction."""

    # reading

    @abstractmethod
    def describe(self, query: str, declared: pa.Schema | None) -> pa.Schema:
        """The columns of a query, as Headrace holds them; `Unmapped` if one has no exact type."""

    def names(self, query: str) -> list[str]:
        """The names of the columns of a query."""
        return list(self.describe(query, None).names)

    @abstractmethod
    def fetch(self, query: str, schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows of a query, in these columns."""

    # both

    @abstractmethod
    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """A statement with $1, $2 ... for values; its rows, if it has any."""

    def begin(self) -> None:
        self.run("BEGIN")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        with suppress(SqlFailure):
            self.run("ROLLBACK")

    @abstractmethod
    def close(self) -> None: ...

    def resolve(self, table: TableName) -> TableName:
        """The table with its schema, where the database has them."""
        return table

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()


class UnmappedError(Exception):
    """A column whose type Headrace cannot hold exactly."""

    def __init__(self, column: str, declared: str, hint: str) -> None:
        super().__init__(column, declared, hint)
        self.column, self.declared, self.hint = column, declared, hint


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


def database_of(rest: str, secret: Secret | None) -> Database | None:
    """The database that the text after "sql:" names; None if it names none."""
    match = _SCHEME.fullmatch(rest)
    if match is None:
        return None
    if match[1]:
        return Database("postgresql", "postgresql" + rest[len(match[1]) :], secret)
    dialect, _, path = rest.partition(":")
    return Database(dialect, f"{dialect}:{os.path.abspath(os.path.expanduser(path))}")


# Connections, as many as are used at a time.

_idle: dict[tuple[int, Database], list[Connection]] = {}  # a fork has its own


@contextmanager
def connected(database: Database) -> Iterator[Connection]:
    """A connection; where to connect takes long, it is used again, unless it has failed."""
    place = os.getpid(), database
    connection = _waiting(_idle.get(place, [])) or connect(database)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    if connection.pooled:
        _idle.setdefault(place, []).append(connection)
    else:
        connection.close()


def _waiting(idle: list[Connection]) -> Connection | None:
    """One that nobody uses; the server may have ended it, or been restarted, meanwhile."""
    while idle:
        connection = idle.pop()
        try:
            connection.run("SELECT 1")
            return connection
        except SqlFailure:
            connection.close()
    return None


def connect(database: Database) -> Connection:
    return door_to(database)(database)


def door_to(database: Database) -> type[Connection]:
    door: type[Connection] = import_module(_DOORS[database.dialect]).DOOR
    return door


def close_idle() -> None:
    """Close the connections of this process that nobody uses."""
    for place in [p for p in _idle if p[0] == os.getpid()]:
        for connection in _idle.pop(place):
            connection.close()


def patiently(
    database: Database,
    attempt: Callable[[Connection], T],
    gave_up: Callable[[str], HeadraceError],
    *,
    starting: bool = False,
) -> T:
    """What `attempt` returns; tried again, on a new connection, while a failure may pass.

    A start waits for locks, and not long; that there is no server is an error at once.
    """
    began, pause, said = time.monotonic(), SHORTEST_PAUSE, False
    while True:
        try:
            with connected(database) as connection:
                result = attempt(connection)
        except SqlFailure as failure:
            if not failure.transient or (starting and failure.refused):
                raise
            waited = time.monotonic() - began
            if waited >= (min(LOCKED, PATIENCE) if starting else PATIENCE):
                raise gave_up(str(failure)) from failure
            if (not said and waited > 1) or (failure.refused and not said):
                LOG.warning("%s: %s; trying again", database.place, str(failure).strip())
                said = True
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            close_idle()  # what else is open to it is broken, too
            continue
        if said:
            LOG.warning("%s: connected again", database.place)
        return result
