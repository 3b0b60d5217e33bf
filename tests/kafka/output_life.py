"""One life of a driver that writes to two topics, as a process: killed where HEADRACE_CRASH says.

python -m tests.kafka.output_life FOLDER TOPIC TOPIC
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from headrace.sinks import Sink, open_sink
from headrace.testing.output_drivers import ALONE, SCHEMA, made, stage

EPOCHS = 4


def life(folder: Path, sinks: list[Sink]) -> None:
    """Publish the last epoch again that a manifest names, and go on to the end."""
    log = folder / "manifests"
    known = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    for epoch in range(max(0, len(known) - 1), EPOCHS):
        if epoch == len(known):
            known.append([stage(sink, epoch, attempt=str(os.getpid())) for sink in sinks])
            with log.open("a") as file:
                file.write(json.dumps(known[-1]) + "\n")
        sinks[0].publish_group(epoch, list(zip(sinks, known[epoch], strict=True)), ALONE)


def sinks_of(folder: Path, broker: str, topics: list[str]) -> list[Sink]:
    options = {"partitions": 2}
    places = [(f"kafka://{broker}/{topic}", topic) for topic in topics]
    return [made(open_sink(u, SCHEMA, options, str(folder / "job"), n)) for u, n in places]


if __name__ == "__main__":
    place, broker, *topics = sys.argv[1:]
    life(Path(place), sinks_of(Path(place), broker, topics))
