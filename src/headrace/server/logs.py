"""What a run has printed, read in parts: the log is bounded, and grows while it is read."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.server.launcher import parts
from headrace.server.values import LogPart

_LINE = 4_096  # bytes of a line that are shown
_READ = 1 << 20  # bytes at once


def log_of(run: Path, after: int | None, limit: int) -> LogPart:
    """Whole lines from byte `after` of all that was printed; without it, the last `limit` lines.

    What is no longer stored is skipped. A last line that is not complete yet is left for later.
    """
    there = parts(run)
    if not there:
        return LogPart(0, (), (), after or 0)
    first, end = there[0][0], there[-1][0] + there[-1][1].stat().st_size
    at = max(first, end - _READ) if after is None else max(first, after)
    content = _bytes(there, at, min(end, at + _READ))
    if at > first and after is None:  # in the middle of a line, perhaps
        begin = content.find(b"\n") + 1
        at, content = at + begin, content[begin:]
    lines, used = _lines(content)
    if after is None:
        lines = lines[-limit:]
    elif len(lines) > limit:
        used = sum(len(line) + 1 for line in lines[:limit])
        lines = lines[:limit]
    shown = tuple(line[:_LINE].decode(errors="replace").rstrip("\r") for line in lines)
    return LogPart(0, (), shown, at + used)


def _lines(content: bytes) -> tuple[list[bytes], int]:
    """The complete lines at the beginning, and how many bytes they are; a line that fills all of
    it counts as complete."""
    used = content.rfind(b"\n") + 1
    if not used and len(content) >= _READ:
        return [content], len(content)
    return content[:used].split(b"\n")[:-1] if used else [], used


def _bytes(there: list[tuple[int, Path]], begin: int, end: int) -> bytes:
    found = b""
    for start, path in there:
        if start >= end:
            break
        with path.open("rb") as file:
            file.seek(max(0, begin - start), os.SEEK_SET)
            found += file.read(end - max(begin, start))
    return found
