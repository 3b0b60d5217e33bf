"""Databases, as inputs under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.databases import database, new_table, run, uri

from headrace.connect.sql import TableName, connected
from headrace.sources import Source, open_source

SPLIT = "rows"


def filled(tmp: Path, dialect: str, rows: list[dict[str, Any]], schema: pa.Schema) -> str:
    """A table with these rows."""
    table, where = new_table(dialect), database(dialect, tmp)
    run(where, f"CREATE TABLE {table} (n bigint, name text)")
    with connected(where) as connection, connection.transaction():
        connection.load(TableName.of(table), pa.Table.from_pylist(rows, schema))
    return table


def read_to_end(source: Source) -> Source:
    source.discover()
    while not source.ended(SPLIT, source.latest(SPLIT)):
        source.discover()
    return source


def cases(
    make: Any, rows: list[dict[str, Any]], schema: pa.Schema
) -> dict[str, Callable[[Path], Iterator[Any]]]:
    def case(dialect: str, **options: Any) -> Callable[[Path], Iterator[Any]]:
        def opened(tmp: Path) -> Iterator[Any]:
            table = filled(tmp, dialect, rows, schema)
            sources: list[Source] = []

            def open_one() -> Source:
                for source in sources:
                    source.close()
                chosen = {"table": table, **options}
                place, job = uri(dialect, tmp), str(tmp / "job")
                source = open_source(
                    place, schema, options=chosen, folder=job, name="in", until="end"
                )
                sources.append(source)
                return read_to_end(source)

            yield make(open_one)
            for source in sources:
                source.close()

        return opened

    return {
        "sqlite table": case("sqlite"),
        "duckdb table": case("duckdb"),
        "postgresql table": case("postgresql"),
        "sqlite growing": case("sqlite", growing="n"),
        "postgresql growing": case("postgresql", growing="n"),
    }
