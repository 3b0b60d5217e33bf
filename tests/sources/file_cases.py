"""Avro and compressed files, for the suite of inputs."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

Rows = Sequence[dict[str, Any]]
AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "name", "type": ["null", "string"]},
        {"name": "n", "type": "long"},
        {"name": "more", "type": "double", "default": 0.5},
    ],
}


def compressed(codec: str, data: bytes) -> bytes:
    """By the library of each kind, where Python has one."""
    if codec in ("gz", "bz2"):
        return {"gz": gzip.compress, "bz2": bz2.compress}[codec](data)
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, {"zst": "zstd", "lz4": "lz4"}[codec]) as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


def put_avro(rows: Rows, folder: Path) -> None:
    for name, part, codec in (("a", rows[:2_000], "deflate"), ("b", rows[2_000:], "null")):
        with (folder / f"{name}.avro").open("wb") as file:
            fastavro.writer(file, AVRO, part, codec=codec, sync_interval=2_000)


def spoil_avro(folder: Path) -> None:
    fields = [{"name": "name", "type": "string"}, {"name": "n", "type": "double"}]
    with (folder / "z.avro").open("wb") as file:
        fastavro.writer(file, AVRO | {"fields": fields}, [{"name": "a", "n": 0.5}])


def put_packed_json(rows: Rows, folder: Path) -> None:
    """Files of all kinds; one has two members, one is not compressed."""
    for k, kind in enumerate(("gz", "bz2", "zst", "lz4", "")):
        lines = [json.dumps(r) + "\n" for r in rows[k * 500 : (k + 1) * 500]]
        halves = ["".join(lines[:123]).encode(), "".join(lines[123:]).encode()]
        data = b"".join(compressed(kind, half) if kind else half for half in halves)
        (folder / (f"{k}.json.{kind}" if kind else f"{k}.json")).write_bytes(data)


def put_packed_csv(rows: Rows, folder: Path) -> None:
    for name, part in (("a", rows[:700]), ("b", rows[700:1_400]), ("c", rows[1_400:])):
        text = "\ufeffname,n\r\n" + "".join(f"{r['name']},{r['n']}\r\n" for r in part)
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))


PUT: dict[str, Callable[[Rows, Path], None]] = {
    "avro": put_avro,
    "compressed json": put_packed_json,
    "compressed csv": put_packed_csv,
}
