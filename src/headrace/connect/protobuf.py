"""The door to protobuf and grpcio-tools: messages of schemas that are known only as text.

The text is compiled by the compiler that grpcio-tools carries, once per process; no `protoc` has to
be installed. A message becomes a dictionary of the columns that are wanted, and a dictionary a
message: `protobuf_values.py` says which value a field is. In front of a message stands its path:
which message of its schema it is.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from headrace.connect.extras import needed
from headrace.connect.protobuf_values import field_getters, field_putters
from headrace.connect.schema_registry import RegisteredSchema

COMPILING = 60  # seconds
_MAIN = "headrace_registered_schema.proto"


def index_path(content: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of its schema a record holds, and where the message begins; ValueError."""
    count, at = _varint(content, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= len(content):
        raise ValueError("there is no path to a message in front of it")
    path = []
    for _ in range(count):
        index, at = _varint(content, at)
        path.append(index)
    return tuple(path), at


def index_bytes(path: Sequence[int]) -> bytes:
    """The same, as it is written."""
    if tuple(path) == (0,):
        return b"\0"
    return b"".join(_zigzag(n) for n in (len(path), *path))


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content) and shift < 35:
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError("there is no path to a message in front of it")


def _zigzag(number: int) -> bytes:
    value, out = number << 1, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message_reader(
    schema: RegisteredSchema, path: tuple[int, ...], columns: pa.Schema
) -> Callable[[bytes], dict[str, Any]]:
    """A function that decodes one message; it raises ValueError for bytes that are none.

    ValueError, too, if the schema is none, or a field cannot fill its column.
    """
    descriptor = _at(_compiled(schema), path)
    kind = _message_class(descriptor)
    getters = field_getters(descriptor, columns)

    def decode(record: bytes) -> dict[str, Any]:
        try:
            message = kind.FromString(record)
        except Exception as cause:
            raise ValueError(f"not a message {descriptor.full_name}: {cause}") from cause
        if not message.IsInitialized():
            raise ValueError(f"a required field of message {descriptor.full_name} is missing")
        return {name: get(message) for name, get in getters.items()}

    return decode


def message_writer(
    schema: RegisteredSchema, path: tuple[int, ...], columns: pa.Schema
) -> Callable[[Mapping[str, Any]], bytes]:
    """A function that encodes one row; ValueError for one that the message cannot hold.

    ValueError, too, if the schema is none, or a column has no field.
    """
    descriptor = _at(_compiled(schema), path)
    kind = _message_class(descriptor)
    putters = field_putters(descriptor, columns)
    head = index_bytes(path)

    def encode(row: Mapping[str, Any]) -> bytes:
        message = kind()
        try:
            for name, put in putters.items():
                put(message, row[name])
            content: bytes = message.SerializeToString(deterministic=True)
        except Exception as cause:
            raise ValueError(f"not a message {descriptor.full_name}: {cause}") from cause
        return head + content

    return encode


def path_of(schema: RegisteredSchema, name: str | None) -> tuple[int, ...]:
    """Where the schema has the message of this name, the first one if there is none."""
    file = _compiled(schema)
    found = {d.full_name: path for path, d in _messages(list(_in_order(file)), ())}
    plain = {n.removeprefix(f"{file.package}."): path for n, path in found.items()}
    if not found or (name is not None and name not in {**found, **plain}):
        raise ValueError(f"there is no message {name or ''!r}; it has: {', '.join(plain)}")
    return (0,) if name is None else {**plain, **found}[name]


def message_of(schema: RegisteredSchema, name: str | None) -> Any:
    """The description of this message."""
    return _at(_compiled(schema), path_of(schema, name))


def _messages(some: Sequence[Any], path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
    for i, one in enumerate(some):
        yield (*path, i), one
        yield from _messages(one.nested_types, (*path, i))


def _in_order(file: Any) -> Sequence[Any]:
    return list(file.message_types_by_name.values())


def _at(file: Any, path: tuple[int, ...]) -> Any:
    some, found = _in_order(file), None
    for index in path:
        named = _numbered(some, index)
        if not named:
            raise ValueError(f"its schema has no message at the path {list(path)}")
        if len(named) > 1:
            one, other = (d.full_name for d in named)
            raise ValueError(
                f"the path {list(path)} may mean {one} or {other}: clients number the messages "
                "within a message that has a map in different ways"
            )
        found, some = named[0], named[0].nested_types
    assert found is not None
    return found


def _numbered(some: Sequence[Any], index: int) -> list[Any]:
    """The messages that have this number: a map is a message of its own, which some clients count
    (those of Python, Go, .NET) and others do not (Java)."""
    if index < 0:
        return []
    plain = [one for one in some if not one.GetOptions().map_entry]
    counted = [one for one in some[index : index + 1] if one in plain]
    return counted + [one for one in plain[index : index + 1] if one not in counted]


def _message_class(descriptor: Any) -> Any:
    return needed("google.protobuf.message_factory", "protobuf", "Protobuf").GetMessageClass(
        descriptor
    )


@lru_cache(maxsize=256)
def _compiled(schema: RegisteredSchema) -> Any:
    """The descriptor of the file with the schema."""
    needed("grpc_tools", "protobuf", "Protobuf")
    descriptors = needed("google.protobuf.descriptor_pb2", "protobuf", "Protobuf")
    pools = needed("google.protobuf.descriptor_pool", "protobuf", "Protobuf")
    with tempfile.TemporaryDirectory(prefix="headrace-proto-") as place:
        folder, made = Path(place) / "in", Path(place) / "out"
        for name, other in {**schema.everything(), _MAIN: schema}.items():
            _write(folder, name, other.text)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports",
                 f"--descriptor_set_out={made}", _MAIN],
                capture_output=True, text=True, check=False, timeout=COMPILING,
            )  # fmt: skip
        except subprocess.TimeoutExpired as cause:
            raise ValueError("not a Protobuf schema: it takes too long to compile") from cause
        if done.returncode:
            said = done.stderr.strip().replace(f"{folder}/", "").replace(f"{_MAIN}:", "line ")
            raise ValueError(f"not a Protobuf schema: {said[:300] or 'it does not compile'}")
        files = descriptors.FileDescriptorSet.FromString(made.read_bytes())
    pool = pools.DescriptorPool()
    try:
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
        return pool.FindFileByName(_MAIN)
    except Exception as cause:
        raise ValueError(f"not a Protobuf schema: {cause}") from cause


def _write(folder: Path, name: str, text: str) -> None:
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts or not name or "\0" in name:
        raise ValueError(f"not a Protobuf schema: it imports {name!r}")
    try:
        (folder / inside).parent.mkdir(parents=True, exist_ok=True)
        (folder / inside).write_text(text, encoding="utf-8")
    except OSError as cause:
        raise ValueError(f"not a Protobuf schema: {name[:80]!r} cannot be a file") from cause
