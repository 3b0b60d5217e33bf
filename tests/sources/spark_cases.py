"""Rows as Spark would have stored them, without Spark: for the suite of inputs, and its tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import types

from headrace.schema import schema_of
from headrace.sources import Source, open_source
from headrace.sources.spark_frames import SparkSource, from_spark
from headrace.sources.spark_rows import RowsWriter, SparkRows
from headrace.testing import InputCase

SCHEMA = schema_of("n bigint, name string")


class Frame:
    """What an input asks a DataFrame for when a program is built."""

    _jdf = None

    def __init__(self, schema: Any, streaming: bool = False) -> None:
        self.schema, self.isStreaming = schema, streaming


def written(store: SparkRows, tables: Sequence[pa.Table]) -> list[tuple[str, int, int]]:
    """What tasks answer that have written these rows: one task for each table."""
    answers = []
    for table in tables:
        for batch in RowsWriter(str(store.rows), table.schema)(iter(table.to_batches())):
            answers += [(r["file"], r["n"], r["size"]) for r in batch.to_pylist()]
    return answers


def spark_input(rows: Sequence[dict[str, Any]], tmp: Path) -> Iterator[InputCase]:
    """Three batches of two tasks; the second is empty."""
    source = SparkSource(None, SCHEMA, streaming=False)
    job = str(tmp / "job")
    made = open_source(source, folder=job, name="in")
    assert isinstance(made, SparkSource)
    made.store.begin()
    middle = len(rows) // 3
    for number, part in enumerate((rows[:middle], [], rows[middle:])):
        table = pa.Table.from_pylist(list(part), SCHEMA)
        half = table.num_rows // 2
        made.store.add(number, written(made.store, [table.slice(0, half), table.slice(half)]))

    def open_one() -> Source:
        return open_source(source, folder=job, name="in")

    yield InputCase(open_one, rows)


def frame(ddl: str, streaming: bool = False) -> Any:
    """A DataFrame of these columns, as far as a program needs one."""
    return from_spark(Frame(_type(ddl), streaming))


def _type(ddl: str) -> Any:
    return eval(ddl, vars(types))
