"""What a running job says of itself between two manifests: a note in its folder, about once a
second.

Memory, Spark's phases, warnings, that it is stalled: nobody may depend on any of it, so the note is
not made durable and is written over and over. A reader takes it for absent when it is older than
thirty seconds, or of another process than it expects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from headrace.files import replacing

NOTE = "live.json"
FORMAT = 1
RUN = "HEADRACE_RUN_FOLDER"  # in the environment: whose run it is, where a server has started it
_OLD = 30_000  # ms after which it says nothing any more


@dataclass(frozen=True, slots=True)
class Live:
    """A run as it was at `time`."""

    time: int
    pid: int
    started: int  # when the process `pid` began, in the system's ticks
    state: str = "running"
    epoch: int = 0
    warnings: tuple[str, ...] = ()
    stalled: str | None = None
    phases: Mapping[str, float] = field(default_factory=dict)  # ms of Spark's last batch, by name
    memory: Mapping[str, int | None] = field(default_factory=dict)  # bytes by kind of process
    gc_ms: int | None = None  # that the JVM has collected garbage for, since it began
    run: str | None = None  # what `RUN` says

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}


def write_live(folder: str | Path, live: Live) -> None:
    """Leave word; a folder that cannot be written to is no reason to fail."""
    with suppress(OSError), replacing(Path(folder) / NOTE) as fresh:
        fresh.write_text(json.dumps(live.to_json()), encoding="utf-8")


def read_live(folder: str | Path, now: int, process: tuple[int, int] | None = None) -> Live | None:
    """The note, if it is of now; and of `process`, a pid and when that began, if it is known."""
    live = last_note(folder)
    if live is None or abs(now - live.time) > _OLD:
        return None
    return live if process in (None, (live.pid, live.started)) else None


def last_note(folder: str | Path) -> Live | None:
    """The note, of whatever time and process."""
    try:
        content = json.loads((Path(folder) / NOTE).read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            return None
        values = {f.name: content[f.name] for f in fields(Live) if f.name in content}
        live = Live(**{**values, "warnings": tuple(values.get("warnings", ()))})
    except (OSError, ValueError, KeyError, TypeError):  # none, or of another version
        return None
    return live if isinstance(live.time, int) else None
