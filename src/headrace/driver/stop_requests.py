"""Requests to a running job: files in its folder that its planner looks for.

`stop` asks it to start no further batch; `drain` asks it to read what is there now, close
every window and end.
"""

from __future__ import annotations

from pathlib import Path

_STOP, _DRAIN = "stop", "drain"


def request_stop(folder: str | Path) -> None:
    (Path(folder) / _STOP).touch()


def request_drain(folder: str | Path) -> None:
    (Path(folder) / _DRAIN).touch()


def clear_requests(folder: str | Path) -> None:
    for flag in (_STOP, _DRAIN):
        (Path(folder) / flag).unlink(missing_ok=True)


def stop_requested(folder: str | Path) -> bool:
    return (Path(folder) / _STOP).exists()


def drain_requested(folder: str | Path) -> bool:
    return (Path(folder) / _DRAIN).exists()
