"""Tables of lakes as outputs under test, read by their libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.sinks import open_sink

NAMES = ["epoch", "n", "text"]


def delta_rows(place: Path) -> pa.Table:
    """What a reader of a Delta table sees; by the library, without us."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(place)):
        return pa.table({n: [] for n in NAMES})
    return DeltaTable(str(place)).to_pyarrow_table()


def sqlite_catalog(tmp: Path) -> dict[str, str]:
    """The properties of a catalog in a file; its database must be there to be looked at."""
    place = Path(f"{tmp}-iceberg")
    if not place.exists():
        place.mkdir()
        loaded(tmp)
    database = f"sqlite:///{place}/catalog.db"
    return {"type": "sql", "uri": database, "warehouse": f"file://{tmp}/warehouse"}


def loaded(tmp: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **sqlite_catalog(tmp))


def iceberg_rows(tmp: Path, table: str = "lake.t") -> pa.Table:
    """What a reader of an Iceberg table sees; by the library, without us."""
    catalog = loaded(tmp)
    try:
        if not catalog.table_exists(table):
            return pa.table({n: [] for n in NAMES})
        return catalog.load_table(table).scan().to_arrow()
    finally:
        catalog.close()


def _sorted(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(rows.column(n).to_pylist() for n in NAMES), strict=True))


def exact(output: Callable[..., Any], schema: pa.Schema) -> dict[str, Callable[[Path], Any]]:
    def delta(tmp: Path, **options: Any) -> Any:
        uri, job = f"delta:{tmp}/table", str(tmp / "job")
        return output(
            lambda: open_sink(uri, schema, options, job, "o"),
            lambda: _sorted(delta_rows(tmp / "table")),
            options.get("mode") == "upsert",
        )

    def iceberg(tmp: Path, **options: Any) -> Any:
        options["catalog"] = sqlite_catalog(tmp)
        job = str(tmp / "job")
        return output(
            lambda: open_sink("iceberg:lake.t", schema, options, job, "o"),
            lambda: _sorted(iceberg_rows(tmp)),
        )

    return {
        "iceberg": iceberg,
        "delta": delta,
        "delta upsert": lambda tmp: delta(tmp, mode="upsert", key=["n", "text"]),
    }
