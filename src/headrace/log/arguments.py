"""What users pass besides records, checked by name. Pure: no files here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from headrace.clock import Clock, Duration, SystemClock, millis
from headrace.errors import LogError
from headrace.uris import remote_scheme

_MOST = 2**63 - 1
_LONGEST_NAME = 10_000  # bytes


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def folder_of(root: Any) -> Path:
    try:
        path = os.fsencode(root)
        if b"\0" in path:
            raise ValueError("a null in a path")
    except (TypeError, ValueError) as error:
        raise _unusable(f"the log's folder {root!r}", "Give the path of a folder.") from error
    if elsewhere := remote_scheme(os.fsdecode(path)):
        hint = f"{elsewhere} is not a folder of this machine: give the path of one."
        raise _unusable(f"the log's folder {root!r}", hint)
    return Path(os.fsdecode(path)).absolute()


def patience_of(patience: Duration) -> float:
    """Seconds to wait for a lock."""
    return millis(patience) / 1_000


def clock_of(clock: Any) -> Clock:
    if clock is None:
        return SystemClock()
    if isinstance(clock, type) or not callable(getattr(clock, "now", None)):
        raise _no_clock(clock)
    return clock  # type: ignore[no-any-return]


def moment_of(clock: Clock) -> int:
    """What the clock says, checked."""
    now: Any = clock.now()
    if not is_whole(now):
        raise _no_clock(clock)
    return int(now)


def _no_clock(clock: Any) -> LogError:
    return _unusable(
        f"the clock {clock!r}",
        "Give an object whose now() is the time in whole milliseconds "
        "since 1970, as headrace.clock.SystemClock() is, or none.",
    )


def check_limit(max_rows: Any) -> None:
    if max_rows is not None and (not is_whole(max_rows) or max_rows < 0):
        raise _unusable(f"max_rows={max_rows!r}", "Give a whole number of records, or none.")


def check_moment(ms: Any) -> None:
    if not is_whole(ms):
        raise _unusable(f"the moment {ms!r}", "Give whole milliseconds since 1970.")


def check_offset(offset: Any) -> None:
    if not is_whole(offset):
        raise LogError(
            "HR-LOG-007",
            f"{offset!r} is no offset",
            "An offset is a whole number: the records of a partition are counted from 0.",
        )


def check_retry(producer: Any, sequence: Any) -> None:
    if producer is None and sequence is None:
        return
    if not _is_text(producer) or not is_whole(sequence) or not 0 <= sequence < _MOST:
        raise LogError(
            "HR-LOG-013",
            f"an append has producer {producer!r} and sequence {sequence!r}",
            "Give a name and a whole number that grows, to make a retry safe, or neither.",
        )


def _is_text(name: Any) -> bool:
    """Whether it is a text that can be stored: one with half of a character cannot."""
    try:
        return isinstance(name, str) and 0 < len(name.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


def _unusable(what: str, hint: str) -> LogError:
    return LogError("HR-LOG-019", f"cannot use {what}", hint)
