"""Tables of databases, as outputs under test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.databases import database, new_table, selected, uri

from headrace.kernel import duckdb
from headrace.schema import schema_of
from headrace.sinks import open_sink

SCHEMA = schema_of("epoch bigint, n bigint, text string")
DIALECTS = ("sqlite", "duckdb", "postgresql")


def output(tmp: Path, dialect: str, make: Any, schema: pa.Schema = SCHEMA, **options: Any) -> Any:
    place, table = uri(dialect, tmp), options.pop("table", None) or new_table(dialect)
    options = {"table": table, **options}
    job = str(tmp / "job")
    # a DuckDB that is open already opens faster
    held = duckdb.database(f"{tmp}/rows.duckdb") if dialect == "duckdb" else None
    return make(
        lambda: open_sink(place, schema, options, job, "o"),
        lambda: selected(database(dialect, tmp), table, held),
        options.get("mode") == "upsert",
    )


def cases(make: Any) -> dict[str, Callable[[Path], Any]]:
    def case(dialect: str, **options: Any) -> Callable[[Path], Any]:
        return lambda tmp: output(tmp, dialect, make, **options)

    return {
        "sqlite table": case("sqlite"),
        "duckdb upsert": case("duckdb", mode="upsert", key="n"),
        "postgresql table": case("postgresql"),
        "postgresql upsert": case("postgresql", mode="upsert", key="n"),
    }
