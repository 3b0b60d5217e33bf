"""Simulated sensors of 20 areas: temperatures and smoke, sent to topics as JSON.

Readings come up to 1.5 s out of order, a few three minutes too late; some sensors are faulty,
some records are broken. Fires are set on purpose, so it is known what the alarm should find,
and every record says what was done to it. Everything follows from a seed.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from headrace import Producer

AREAS = [f"area-{i:02d}" for i in range(1, 21)]
TOPICS = ("temperature", "smoke")
MINUTES = 24.0
SPEED = 40.0  # seconds of event time per second
SEED = 7


@dataclass(frozen=True)
class Fire:
    area: str
    start: float  # seconds after the beginning
    end: float


FIRES = [Fire("area-04", 300, 640), Fire("area-11", 520, 900), Fire("area-17", 840, 1180)]


class Sent(NamedTuple):
    """A record on its way to its topic, and what was done to it."""

    topic: str
    record: bytes
    what: str = "good"  # "stuck" (3 minutes late), "faulty", "cut" off, "ahead" (a day)


def heat(area: str, second: float) -> float:
    """How far a fire has heated an area: up within a minute and a half, down again after."""
    for fire in FIRES:
        if fire.area == area and second >= fire.start:
            rising = min(1.0, (second - fire.start) / 90)
            falling = max(0.0, 1 - max(0.0, second - fire.end) / 120)
            return rising * falling
    return 0.0


def records(rng: random.Random, begin: float, second: float) -> Iterator[Sent]:
    """What all sensors send in one second of event time."""
    for i, area in enumerate(AREAS):
        yield from _area(rng, begin, second, area, 20 + 3 * (i % 5) / 5)
    if rng.random() < 0.01:
        yield Sent("temperature", b'{"area": "area-0', "cut")
    if rng.random() < 0.004:
        tomorrow = _iso(begin + second + 86_400)
        yield Sent("temperature", _json(area=AREAS[0], celsius=21.0, at=tomorrow), "ahead")


def _area(
    rng: random.Random, begin: float, second: float, area: str, usual: float
) -> Iterator[Sent]:
    hot, at, what = heat(area, second), begin + second - rng.uniform(0, 1.5), "good"
    celsius = usual + 55 * hot + rng.gauss(0, 1)
    if rng.random() < 0.002:
        at, what = at - 180, "stuck"
    elif rng.random() < 0.004:
        celsius, what = rng.choice([-273.0, 999.0]), "faulty"
    reading = _json(area=area, celsius=round(celsius, 2), at=_iso(at))
    yield Sent("temperature", reading, what)
    if rng.random() < 0.25:
        density = max(0.0, round(0.9 * hot + abs(rng.gauss(0, 0.03)), 3))
        yield Sent("smoke", _json(area=area, density=density, at=_iso(at)))


def _json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def send(producer: Producer, sent: list[Sent]) -> None:
    """Send records to their topics, in this order."""
    for topic in TOPICS:
        values = [s.record for s in sent if s.topic == topic]
        if values:
            producer.send_all(topic, values, partition=0)
    producer.flush()


def play(producer: Producer, begin: float, minutes: float, speed: float) -> None:
    """Send everything at `speed`, a quarter of a real second at a time."""
    rng, started, second = random.Random(SEED), time.monotonic(), 0
    while second < minutes * 60:
        due = min((time.monotonic() - started) * speed, minutes * 60 - 1)
        fresh = range(second, int(due) + 1)
        send(producer, [s for at in fresh for s in records(rng, begin, at)])
        second += len(fresh)
        time.sleep(0.25)


if __name__ == "__main__":
    place, *numbers = sys.argv[1:]
    with Producer(place) as producer:
        play(producer, *map(float, numbers))
