"""Results as a count and a checksum that does not depend on the order of rows.

Floating point numbers are rounded first: two engines may add in another order. DuckDB reads
the Parquet files of either contender; it computes nothing that the contenders did.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

PLACES = 6  # decimals that must agree


@dataclass(frozen=True, slots=True)
class Digest:
    rows: int
    checksum: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def digest(place: Path, *groups: list[str], where: str = "true") -> Digest:
    """Of the rows in PLACE/out for which `where` holds.

    A group is a list of SQL expressions that must agree together in every row.
    """
    files = str(place / "out" / "*.parquet")
    hashed = " + ".join(f"hash({', '.join(columns)})::HUGEINT" for columns in groups)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows, total = connection.execute(
            f"SELECT count(*), coalesce(sum({hashed}), 0) FROM read_parquet(?) WHERE {where}",
            [files],
        ).fetchone() or (0, 0)
    return Digest(int(rows), str(total))


def rounded(column: str) -> str:
    """An SQL expression: the column as a whole number of millionths."""
    return f"round({column} * 1e{PLACES})::BIGINT"
