"""The stop flag: a file in the job's folder that asks for a graceful stop."""

from __future__ import annotations

from pathlib import Path

_FLAG = "stop"


def ask_to_stop(folder: str | Path) -> None:
    (Path(folder) / _FLAG).touch()


def clear_stop(folder: str | Path) -> None:
    (Path(folder) / _FLAG).unlink(missing_ok=True)


def stop_asked(folder: str | Path) -> bool:
    return (Path(folder) / _FLAG).exists()
