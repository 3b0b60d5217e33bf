"""Where producers and consumers are tested: every log that has clients, each by one line.

A place is what `hr.Producer(place)` and `hr.Consumer(..., log=place)` take; `create` makes a topic
of bytes there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.log import EmbeddedLog


@dataclass(frozen=True)
class ClientPlace:
    """A log for one test; `wait` is how long nothing may come before all is taken to be there."""

    place: Any
    create: Callable[[str, int], object]
    wait: str = "100ms"
    prefix: str = ""  # of names, where tests share a log
    transactional: Mapping[str, Any] = field(default_factory=dict)  # options of a producer

    def __call__(self, name: str) -> str:
        """A topic or a group of this test."""
        return f"{self.prefix}{name}"


def _embedded(folder: Path) -> ClientPlace:
    log = EmbeddedLog(folder / "log")
    return ClientPlace(log, log.create)


def _by_folder(folder: Path) -> ClientPlace:
    return ClientPlace(str(folder / "log"), EmbeddedLog(folder / "log").create)


def _kafka(folder: Path) -> ClientPlace:
    from tests.kafka.running import broker, new_topic

    return ClientPlace(
        f"kafka://{broker().address}",
        lambda name, partitions: new_topic(partitions, name),
        "2s",
        f"{folder.name}-",
        {"transactional_id": folder.name},
    )


PLACES: dict[str, Callable[[Path], ClientPlace]] = {
    "embedded": _embedded,
    "folder": _by_folder,
    "kafka": _kafka,
}
