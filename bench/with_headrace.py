"""Running a Headrace job as a contender, and what it says about its batches."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def drain(job: Any, place: Path, max_batch: int, cores: int) -> dict[str, Any]:
    """Run the job to the end of its input."""
    import headrace as hr

    seen: list[Any] = []
    asked = time.time()
    run = hr.run(
        job, folder=str(place / "job"), until="end", master=f"local[{cores}]",
        max_batch=max_batch, on_progress=seen.append, debug=True,
    )  # fmt: skip
    run.wait()
    return {**figures(seen), "start": (seen[0].clock / 1_000 - asked) if seen else None}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a job's input: its files, their rows in all, and how many to read at a time."""

    folder: str
    rows: int
    batch: int


def grown(make: Callable[[], Any], place: Path, parts: Sequence[Part], cores: int) -> list[Any]:
    """Run the job in one folder over parts that come one after the other; the last's batches.

    It reads PLACE/in and is started anew for each part, so that batches may be of another size.
    """
    seen, read = [], 0
    for number, part in enumerate(parts):
        (place / "in").mkdir(exist_ok=True)
        for file in sorted(Path(part.folder).iterdir()):
            shutil.copy2(file, place / "in" / f"{number}-{file.name}")
        read += part.rows
        seen = until_read(make(), place, read, part.batch, cores)
    return seen


def until_read(job: Any, place: Path, rows: int, max_batch: int, cores: int) -> list[Any]:
    """Run the job until it has read so many rows in all its life; its batches."""
    import headrace as hr

    seen: list[Any] = []
    run = hr.run(
        job, folder=str(place / "job"), master=f"local[{cores}]",
        max_batch=max_batch, on_progress=seen.append, debug=True,
    )  # fmt: skip
    while not seen or seen[-1].total["read"] < rows:
        if run.wait(timeout=0.05).state != "running":
            break
    run.stop()
    return seen


def figures(seen: list[Any]) -> dict[str, Any]:
    return {
        "batches": [[p.read, p.clock, p.committed] for p in seen],
        "timing": [dict(p.timing) for p in seen],
    }
