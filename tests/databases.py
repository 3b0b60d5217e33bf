"""Real databases for tests: one PostgreSQL for a whole test process, files for the others."""

from __future__ import annotations

import atexit
import itertools
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from headrace.connect.sql import Database, TableName, connected, database_of
from headrace.secrets import Secret
from tests.joins.postgres import PASSWORD, USER, Postgres, postgres

_count = itertools.count(1)


@cache
def server() -> Postgres:
    """A PostgreSQL that runs until the tests end; skips the test where there is none."""
    stack = ExitStack()
    running = stack.enter_context(
        postgres("-c wal_level=logical -c fsync=off -c max_replication_slots=50")
    )
    atexit.register(stack.close)
    return running


def postgres_uri(running: Postgres | None = None) -> str:
    return f"sql:{(running or server()).url}"


def encoded_database(encoding: str) -> str:
    """A database of the server whose texts are in another encoding than UTF-8: its address."""
    name = f"encoded{next(_count)}"
    run(
        postgres_database(),
        f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' "
        "LC_COLLATE 'C' LC_CTYPE 'C'",
    )
    return f"{server().url.rpartition('/')[0]}/{name}"


def postgres_database() -> Database:
    url = f"postgresql://{USER}@127.0.0.1:{server().port}/postgres"
    return Database("postgresql", url, Secret(PASSWORD))


def uri(dialect: str, folder: Path) -> str:
    return postgres_uri() if dialect == "postgresql" else f"sql:{dialect}:{folder}/rows.{dialect}"


def database(dialect: str, folder: Path) -> Database:
    if dialect == "postgresql":
        return postgres_database()
    found = database_of(uri(dialect, folder).removeprefix("sql:"), None)
    assert found is not None
    return found


def new_table(dialect: str) -> str:
    """A table that no other test has: in a schema of its own, where there are schemas."""
    if dialect != "postgresql":
        return "t"
    schema = f"s{next(_count)}"
    run(postgres_database(), f"CREATE SCHEMA {schema}")
    return f"{schema}.t"


def run(where: Database, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements one by one, as somebody else would; the rows of the last."""
    rows: list[tuple[Any, ...]] = []
    with connected(where) as connection:
        for statement in statements:
            rows = connection.run(statement)
    return rows


def selected(where: Database, table: str, held: object = None) -> list[Any]:
    """All rows, sorted; none if the table is not there. `held` only lives as long."""
    path = where.url.partition(":")[2]
    if where.dialect != "postgresql" and not Path(path).exists():
        return []
    with connected(where) as opened:
        name = TableName.of(table)
        if opened.columns(opened.resolve(name)) is None:
            return []
        return sorted(opened.run(f"SELECT * FROM {name.sql}"))
