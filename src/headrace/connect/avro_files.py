"""Avro object container files: where their blocks are, rows in and out.

A file is a head (the schema, the codec, a marker of 16 bytes) and blocks: how many records, how
many bytes, the bytes, the marker. So rows are counted, and any block is read, without the ones
before it; a file that ends within a block is noticed, one that ends after a block is complete.
The library is in `avro.py`, and columns and their values are in `avro_columns.py`.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.connect.avro import container_writer, read_container
from headrace.connect.avro_codecs import CODECS, unpacker
from headrace.connect.avro_columns import (
    UnsupportedFile,
    arrow_fields,
    avro_schema,
    column,
    dicts,
    known,
    stored_type,
)
from headrace.connect.avro_times import as_stored

MAGIC = b"Obj\x01"
SYNC = 16  # bytes of the marker
GROUP = 65_536  # rows that are decoded at once
FILES = 1_024  # of which the blocks are remembered


class Unfinished(ValueError):
    """The file ends where it should go on."""


@dataclass(frozen=True)
class Container:
    """A file whose blocks are known."""

    path: str
    meta: dict[str, bytes]
    sync: bytes
    places: npt.NDArray[np.int64]  # where each block begins, and where the last one ends
    rows: npt.NDArray[np.int64]  # how many rows are before each block, and in all

    @property
    def codec(self) -> str:
        return self.meta.get("avro.codec", b"null").decode()

    @property
    def avro(self) -> Any:
        """The schema the rows were written with."""
        return json.loads(self.meta["avro.schema"])

    @property
    def count(self) -> int:
        return int(self.rows[-1])

    def fields(self) -> dict[str, pa.Field | str]:
        """The columns; a text says why one has no type here."""
        return arrow_fields(self.avro)

    def read(self, start: int, end: int, names: list[str]) -> Iterator[tuple[int, pa.Table]]:
        """Rows `start` up to `end`, these columns, some blocks at a time: the number of the first
        row, and the rows. ValueError if they are not what the file says."""
        fields = self.fields()
        schema = pa.schema([known(fields, name) for name in names])
        block = int(np.searchsorted(self.rows, start, side="right")) - 1
        while block < len(self.places) - 1 and self.rows[block] < end:
            goal = self.rows[block] + GROUP
            after = max(block + 1, int(np.searchsorted(self.rows, goal, side="right")) - 1)
            first = int(self.rows[block])
            table = self._table(block, after, schema)
            lo, hi = max(start, first), min(end, int(self.rows[after]))
            if lo < hi:
                yield lo, table.slice(lo - first, hi - lo)
            block = after

    def _table(self, block: int, after: int, schema: pa.Schema) -> pa.Table:
        with open(self.path, "rb") as file:
            file.seek(int(self.places[block]))
            data = file.read(int(self.places[after] - self.places[block]))
        if (unpack := unpacker(self.codec)) is not None:
            data = b"".join(self._unpacked(data, unpack))
        rows = read_container(_head(self._plain_meta(), self.sync) + data)
        if len(rows) != self.rows[after] - self.rows[block]:
            raise ValueError(f"a block has {len(rows)} rows, and says otherwise")
        columns = [column(rows, f) for f in schema]
        return pa.Table.from_arrays(columns, schema=schema)

    def _plain_meta(self) -> dict[str, bytes]:
        plain = json.dumps(as_stored(self.avro)).encode()
        codec = "null" if unpacker(self.codec) is not None else self.codec
        return {"avro.schema": plain, "avro.codec": codec.encode()}

    def _unpacked(self, data: bytes, unpack: Callable[[bytes], bytes]) -> Iterator[bytes]:
        """The blocks as they would be without a codec."""
        at = 0
        while at < len(data):
            count, at = _long(data, at)
            length, at = _long(data, at)
            block = unpack(data[at : at + length])
            yield _spelt(count) + _spelt(len(block)) + block + self.sync
            at += length + SYNC


def container(path: str) -> Container:
    """The file's head, and its blocks. ValueError if it is none; Unfinished if it goes on."""
    s = os.stat(path)
    return _container(path, s.st_size, s.st_mtime_ns)


@lru_cache(maxsize=FILES)
def _container(path: str, size: int, mtime: int) -> Container:
    with _mapped(path) as data:
        if len(data) < len(MAGIC) and MAGIC.startswith(data[:]):
            raise Unfinished("it ends within its head")
        if data[: len(MAGIC)] != MAGIC:
            raise ValueError("it does not begin as Avro files do")
        meta, at = _read_meta(data, len(MAGIC))
        sync, at = _take(data, at, SYNC)
        places, rows = [at], [0]
        while at < len(data):
            count, at = _long(data, at)
            length, at = _long(data, at)
            if count < 0 or length < 0:
                raise ValueError(f"block {len(rows)} has {count} rows in {length} bytes")
            at += length
            marker, at = _take(data, at, SYNC)
            if marker != sync:
                raise ValueError(f"the marker after block {len(rows)} is not the file's")
            places.append(at)
            rows.append(rows[-1] + count)
    if "avro.schema" not in meta:
        raise ValueError("its head has no schema")
    if (codec := meta.get("avro.codec", b"null").decode("utf-8", "replace")) not in CODECS:
        hint = f"Write it with another codec: {', '.join(sorted(CODECS))}."
        raise UnsupportedFile(f"its blocks are compressed with {codec!r}", hint)
    return Container(path, meta, sync, np.array(places, np.int64), np.array(rows, np.int64))


@contextmanager
def _mapped(path: str) -> Iterator[Any]:
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _read_meta(data: Any, at: int) -> tuple[dict[str, bytes], int]:
    meta: dict[str, bytes] = {}
    while True:
        count, at = _long(data, at)
        if not count:
            return meta, at
        if count < 0:
            count, (_, at) = -count, _long(data, at)
        for _ in range(count):
            length, at = _long(data, at)
            key, at = _take(data, at, length)
            length, at = _long(data, at)
            meta[key.decode("utf-8", "replace")], at = _take(data, at, length)


def _take(data: Any, at: int, length: int) -> tuple[bytes, int]:
    if length < 0:
        raise ValueError("its head is not one of an Avro file")
    if at + length > len(data):
        raise Unfinished("it ends within a block, or within its head")
    return bytes(data[at : at + length]), at + length


def _long(data: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise Unfinished("it ends within a block, or within its head")
        octet, at = data[at], at + 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number in it is too large")


def _spelt(number: int) -> bytes:
    value, octets = (number << 1) ^ (number >> 63), bytearray()
    while value > 0x7F:
        octets.append((value & 0x7F) | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def _head(meta: dict[str, bytes], sync: bytes) -> bytes:
    entries = b"".join(
        _spelt(len(k.encode())) + k.encode() + _spelt(len(v)) + v for k, v in meta.items()
    )
    return MAGIC + _spelt(len(meta)) + entries + _spelt(0) + sync


class ContainerWriter:
    """Writes tables of one set of columns."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, codec: str) -> None:
        self._schema = pa.schema([(f.name, stored_type(f.type)) for f in schema])
        self._maps = {f.name: c for f in self._schema if (c := dicts(f.type))}
        self._write, self.close = container_writer(file, avro_schema(schema), codec)

    def write_table(self, table: pa.Table) -> None:
        rows = table.cast(self._schema).to_pylist()
        for name, convert in self._maps.items():
            for row in rows:
                row[name] = convert(row[name])
        self._write(rows)


def join_blocks(file: IO[bytes], containers: list[Container]) -> None:
    """Write the blocks of files of the same schema and codec as one file; none is decoded."""
    first = containers[0]
    file.write(_head(first.meta, first.sync))
    for one in containers:
        with open(one.path, "rb") as source:
            for at, end in zip(one.places[:-1].tolist(), one.places[1:].tolist(), strict=True):
                source.seek(at)
                file.write(source.read(end - at - SYNC) + first.sync)
