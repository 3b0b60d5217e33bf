"""Blocks of Avro files that Arrow unpacks: snappy, as Spark writes by default, and zstandard.

The library would need another one for each of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pyarrow as pa

_CHECKSUM = 4  # bytes after a block of snappy
_MOST = 64  # no byte of snappy stands for more


def _snappy(block: bytes) -> bytes:
    packed, checksum = block[:-_CHECKSUM], int.from_bytes(block[-_CHECKSUM:], "big")
    size = _size(packed)
    if size > _MOST * len(packed):
        raise ValueError("a block says that it is larger than it can be")
    whole: bytes = pa.Codec("snappy").decompress(packed, size, asbytes=True)
    if zlib.crc32(whole) != checksum:
        raise ValueError("a block is not what its checksum says")
    return whole


def _size(packed: bytes) -> int:
    """Of what is packed: the number before it, seven bits in a byte, the last ones first."""
    size = 0
    for i, octet in enumerate(packed[:5]):
        size |= (octet & 0x7F) << 7 * i
        if octet < 0x80:
            return size
    raise ValueError("a block does not say how large it is")


def _zstandard(block: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
        return bytes(stream.read())


_OURS: dict[str, Callable[[bytes], bytes]] = {"snappy": _snappy, "zstandard": _zstandard}
CODECS = {"null", "deflate", "bzip2", "xz", *_OURS}  # all that can be read


def unpacker(codec: str) -> Callable[[bytes], bytes] | None:
    """What unpacks a block of this codec; None if that is the library's affair."""
    unpack = _OURS.get(codec)
    if unpack is None:
        return None

    def unpacked(block: bytes) -> bytes:
        try:
            return unpack(block)
        except (OSError, pa.ArrowException) as cause:
            raise ValueError(f"a block is not {codec}: {cause}") from cause

    return unpacked
