"""Tables of lakes as inputs under test, written by their libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.sinks.lake_cases import loaded, sqlite_catalog

from headrace.sources import open_source

Rows = list[dict[str, Any]]


def cases(
    case: Callable[..., Any], schema: pa.Schema, rows: Rows
) -> dict[str, Callable[[Path], Iterator[Any]]]:
    def delta(followed: bool) -> Callable[[Path], Iterator[Any]]:
        def make(tmp: Path) -> Iterator[Any]:
            from deltalake import write_deltalake

            place, job = str(tmp / "table"), str(tmp / "job")

            def put(first: int, last: int) -> None:
                table = pa.Table.from_pylist(rows[first:last], schema)
                write_deltalake(place, table, mode="append")

            def opened() -> Any:
                return open_source(f"delta:{place}", schema, folder=job, name="in", until="end")

            put(0, 1_000 if followed else len(rows))
            if followed:
                opened().discover()  # the job begins here
                for first in range(1_000, len(rows), 500):
                    put(first, first + 500)
            yield case(opened)

        return make

    def iceberg(followed: bool) -> Callable[[Path], Iterator[Any]]:
        def make(tmp: Path) -> Iterator[Any]:
            catalog, job = sqlite_catalog(tmp), str(tmp / "job")
            library = loaded(tmp)
            library.create_namespace("lake")
            table = library.create_table("lake.t", schema=schema)
            options = {"catalog": catalog}

            def put(first: int, last: int) -> None:
                table.append(pa.Table.from_pylist(rows[first:last], schema))

            def opened() -> Any:
                return open_source(
                    "iceberg:lake.t", schema, options=options, folder=job, name="in", until="end"
                )

            put(0, 1_000 if followed else len(rows))
            if followed:
                opened().discover()  # the job begins here
                for first in range(1_000, len(rows), 500):
                    put(first, first + 500)
            yield case(opened)
            library.close()

        return make

    found = {"iceberg": iceberg(followed=False), "iceberg by commits": iceberg(followed=True)}
    return found | {"delta": delta(followed=False), "delta by commits": delta(followed=True)}
