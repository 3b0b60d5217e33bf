"""Simulated sensors of 20 areas: temperatures and smoke, written to the log as JSON.

Half an hour of event time is played in about half a minute. Readings arrive up to 1.5 s out
of order, a few far too late; some sensors are faulty, some records are broken. Fires are
set on purpose, so the demo knows what the alarm should find. Everything follows from a seed.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace import EmbeddedLog

AREAS = [f"area-{i:02d}" for i in range(1, 21)]
MINUTES = 24
SPEED = 40.0  # seconds of event time per second
SEED = 7


@dataclass(frozen=True)
class Fire:
    area: str
    start: float  # seconds after the beginning
    end: float


FIRES = [Fire("area-04", 300, 640), Fire("area-11", 520, 900), Fire("area-17", 840, 1180)]


def heat(area: str, at: float) -> float:
    """How far a fire has heated an area: up within a minute and a half, down again after."""
    for fire in FIRES:
        if fire.area == area and at >= fire.start:
            rising = min(1.0, (at - fire.start) / 90)
            falling = max(0.0, 1 - max(0.0, at - fire.end) / 120)
            return rising * falling
    return 0.0


def records(rng: random.Random, begin: float, second: float) -> list[tuple[str, bytes]]:
    """What all sensors send in one second of event time: (topic, record)."""
    sent = []
    for i, area in enumerate(AREAS):
        hot = heat(area, second)
        at = begin + second - rng.uniform(0, 1.5)
        if rng.random() < 0.002:
            at -= 180  # a reading that was stuck somewhere
        celsius = 20 + 3 * (i % 5) / 5 + 55 * hot + rng.gauss(0, 1)
        if rng.random() < 0.004:
            celsius = rng.choice([-273.0, 999.0])  # a faulty sensor
        sent.append(("temperature", _json(area=area, celsius=round(celsius, 2), at=_iso(at))))
        if rng.random() < 0.25:
            density = max(0.0, round(0.9 * hot + abs(rng.gauss(0, 0.03)), 3))
            sent.append(("smoke", _json(area=area, density=density, at=_iso(at))))
    if rng.random() < 0.01:
        sent.append(("temperature", b'{"area": "area-0'))  # a record that was cut off
    if rng.random() < 0.004:
        ahead = _iso(begin + second + 86_400)  # a clock that is a day ahead
        sent.append(("temperature", _json(area=AREAS[0], celsius=21.0, at=ahead)))
    return sent


def _json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def play(log: EmbeddedLog, begin: float, minutes: float, speed: float) -> int:
    """Send everything, a quarter of a real second at a time; how many records it was."""
    rng = random.Random(SEED)
    started, count, second = time.monotonic(), 0, 0.0
    while second < minutes * 60:
        due = (time.monotonic() - started) * speed
        batch: dict[str, list[bytes]] = {"temperature": [], "smoke": []}
        while second <= due and second < minutes * 60:
            for topic, record in records(rng, begin, second):
                batch[topic].append(record)
            second += 1
        for topic, values in batch.items():
            if values:
                count += len(values)
                log.append(topic, values, partition=0)
        time.sleep(0.25)
    return count


if __name__ == "__main__":
    root, began, length, pace = sys.argv[1], *map(float, sys.argv[2:5])
    print(play(EmbeddedLog(root), began, length, pace))
