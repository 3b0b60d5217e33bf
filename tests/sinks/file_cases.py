"""Files of every format, for the suites of outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.sinks import Reference, Sink, open_sink, read_output
from headrace.sinks.files import FilesSink
from headrace.testing.output_drivers import SCHEMA, OutputCase

TEXT = pa.schema([SCHEMA.field("text")])


def files(tmp: Path, **options: Any) -> OutputCase:
    def rows() -> list[tuple[Any, ...]]:
        found = read_output(tmp / "out").select(SCHEMA.names)
        return sorted(zip(*(c.to_pylist() for c in found.columns), strict=True))

    uri, job = f"files:{tmp}/out", str(tmp / "job")
    return OutputCase(lambda: open_sink(uri, SCHEMA, options, job, "o"), rows)


def text(tmp: Path) -> OutputCase:
    """Only the texts are written; they say what the other columns have."""

    def rows() -> list[tuple[Any, ...]]:
        texts = read_output(tmp / "out").column("text").to_pylist()
        numbers = [int(t.split('"')[1]) for t in texts]
        return sorted((n // 100, n, t) for n, t in zip(numbers, texts, strict=True))

    uri, job = f"files:{tmp}/out", str(tmp / "job")
    return OutputCase(lambda: open_sink(uri, TEXT, {"format": "text"}, job, "o"), rows)


class Derived(FilesSink):
    """Files of a job whose epochs take a minute by their clock, and whose rows have a third."""

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        thirds = [THIRDS[n % 3] for n in table.column("n").to_pylist()]
        rows = table.append_column("third", pa.array(thirds, pa.string()))
        return FilesSink.stage(self.at(epoch * 60_000), rows, epoch, unique)


THIRDS = ("a/b=%2F", None, "é .")


def thirds(tmp: Path, **options: Any) -> OutputCase:
    """Three partitions, which all epochs share."""
    case = files(tmp)
    columns = SCHEMA.append(pa.field("third", pa.string()))

    def opened() -> Sink:
        sink = open_sink(f"files:{tmp}/out", columns, options, str(tmp / "job"), "o")
        sink.__class__ = Derived
        return sink

    return OutputCase(opened, case.rows)


JSON_GZ = {"format": "json", "compression": "gzip"}
DERIVED = {
    "partitioned parquet": lambda tmp: thirds(tmp, partition_by="third"),
    "partitioned json lines": lambda tmp: thirds(tmp, **JSON_GZ, partition_by=["third"]),
    "rolling": lambda tmp: thirds(tmp, partition_by="third", roll_every="2m"),
}
CASES: dict[str, Callable[[Path], OutputCase]] = {
    "csv": lambda tmp: files(tmp, format="csv", delimiter=";"),
    "avro": lambda tmp: files(tmp, format="avro"),
    "text": text,
    "partitioned csv": lambda tmp: files(tmp, format="csv", partition_by="text"),
    "partitioned text": lambda tmp: files(tmp, format="text", partition_by=["n", "epoch"]),
    "partitioned avro": lambda tmp: files(tmp, format="avro", partition_by="epoch"),
    **DERIVED,
}
A_FOLDER_A_ROW = ("partitioned csv", "partitioned text")  # of which there may be 1,000 at once
