"""Bodies of POSTs: read as HTTP has them, and the records in them.

What is not a body of HTTP beyond doubt is refused: if its length is ambiguous, the bytes after it
would be taken for another request. Everything that is refused gets an answer, since a sender
without one sends the same again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from email.message import Message
from io import BufferedIOBase
from typing import Any

import pyarrow as pa

from headrace.sources.lines import split_lines

_LONGEST_LINE = 8_192  # bytes: how long a chunk is, and what may follow that; a trailer
_MOST_TRAILERS = 100
_DIGITS = 15  # of a length; more is too long in any case
_CHUNK = re.compile(rb"[0-9a-fA-F]{1,8}")
_SPACES = re.compile(r"[ \t\r\n]*")
_BREAKS = bytes.maketrans(b"\r\n", b"  ")
_AS_WRITTEN: dict[str, Any] = {"parse_int": str, "parse_float": str}  # of any number of digits


class Refused(Exception):
    """What a POST is answered that is not stored."""

    def __init__(self, status: int, error: str, headers: dict[str, str] | None = None) -> None:
        self.status, self.error, self.headers = status, error, headers or {}


def has_body(headers: Message) -> bool:
    return "Transfer-Encoding" in headers or headers.get("Content-Length", "0").strip() != "0"


def read_body(
    headers: Message, file: BufferedIOBase, limit: int, go_on: Callable[[], None]
) -> bytes:
    """The body of a POST, of at most `limit` bytes; `go_on` is called before it is read."""
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Refused(415, "bodies are not compressed")
    lengths = {length.strip() for length in headers.get_all("Content-Length", [])}
    if "Transfer-Encoding" in headers:
        codings = ",".join(headers.get_all("Transfer-Encoding", [])).lower()
        if [c.strip() for c in codings.split(",")] != ["chunked"]:
            raise Refused(501, "a body is sent whole, or chunked and in no other way")
        if lengths:
            raise Refused(400, "a chunked body has no Content-Length")
        go_on()
        return _chunks(file, limit)
    if len(lengths) > 1:
        raise Refused(400, "a body has one Content-Length")
    length = "".join(lengths)
    if not (length.isascii() and length.isdecimal()):
        raise Refused(411, "a Content-Length is needed")
    if len(length) > _DIGITS or int(length) > limit:
        raise Refused(413, f"a body has at most {limit} bytes")
    go_on()
    return _exactly(file, int(length))


def _chunks(file: BufferedIOBase, limit: int) -> bytes:
    parts, size = list[bytes](), 0
    while True:
        line = _line(file).partition(b";")[0].strip()
        if not _CHUNK.fullmatch(line):
            raise Refused(400, "the body is not chunked as HTTP has it")
        length = int(line, 16)
        size += length
        if size > limit:
            raise Refused(413, f"a body has at most {limit} bytes")
        if length == 0:
            break
        parts.append(_exactly(file, length))
        if _line(file).strip():
            raise Refused(400, "the body is not chunked as HTTP has it")
    for _ in range(_MOST_TRAILERS):  # headers that come after the body: none matters here
        if not _line(file).strip():
            return b"".join(parts)
    raise Refused(400, f"a body has at most {_MOST_TRAILERS} trailers")


def _exactly(file: BufferedIOBase, length: int) -> bytes:
    part = file.read(length)
    if len(part) < length:
        raise ConnectionError("the sender went away")
    return part


def _line(file: BufferedIOBase) -> bytes:
    line = file.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        if len(line) < _LONGEST_LINE:
            raise ConnectionError("the sender went away")
        raise Refused(400, "the body is not chunked as HTTP has it")
    return line


# Records of a body.


def records_of(body: bytes) -> pa.Array:
    """The JSON documents of a body: of an array its elements, else one of each line, or one."""
    first = body.lstrip(b" \t\r\n\xef\xbb\xbf")[:1]
    if first == b"[":
        return pa.array(_elements(body.decode("utf-8-sig")), pa.binary())
    if first == b"{" and b"\n" in body.strip():
        document = _whole(body)
        if document is not None:
            return pa.array([document], pa.binary())
    return lines_of(body)


def _whole(body: bytes) -> bytes | None:
    """The body, if it is one document on several lines."""
    try:
        json.loads(body, **_AS_WRITTEN)
    except (ValueError, RecursionError):
        return None
    return body.translate(_BREAKS).strip()


def _elements(text: str) -> list[bytes]:
    """The elements of an array, as they are written; ValueError if it is not JSON."""
    scan, at, found = (
        json.JSONDecoder(**_AS_WRITTEN).raw_decode,
        _after(text, 1 + text.index("[")),
        list[bytes](),
    )
    while text[at : at + 1] != "]" or found:
        _, end = scan(text, at)
        found.append(text[at:end].encode().translate(_BREAKS))
        at = _after(text, end)
        if text[at : at + 1] == "]":
            break
        if text[at : at + 1] != ",":
            raise ValueError(f"Expecting ',' or ']' at character {at}")
        at = _after(text, at + 1)
    if _after(text, at + 1) != len(text):
        raise ValueError(f"Extra data at character {at + 1}")
    return found


def _after(text: str, at: int) -> int:
    match = _SPACES.match(text, at)
    return at if match is None else match.end()


def lines_of(body: bytes, blank: bool = False) -> pa.Array:
    """The lines of a body; a last one needs no line end."""
    whole = body if body.endswith(b"\n") or not body else body + b"\n"
    return split_lines(whole, keep_blank=blank)[0] if whole else pa.array([], pa.binary())
