"""The examples do what they say: here, in process, over everything their generators send."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from examples.demo.sensors import FIRES, SEED, TOPICS, Sent, records, send

import headrace as hr
from headrace.cli.loading import load_job
from headrace.clock import ManualClock
from headrace.inspect.progress import Progress
from headrace.testing import Driver, Harness

FIRE_ALARM = Path(__file__).resolve().parents[1] / "examples" / "fire_alarm.py"
BEGIN = 1_700_000_000  # seconds
MINUTES = 23
STEP = 60  # seconds of event time that arrive together
DELAY, SIZE, SLIDE = 2_000, 60_000, 5_000  # as the program has them


@cache
def batches() -> list[list[Sent]]:
    """What the sensors send, a minute at a time."""
    rng = random.Random(SEED)
    return [
        [s for second in range(first, first + STEP) for s in records(rng, BEGIN, second)]
        for first in range(0, MINUTES * 60, STEP)
    ]


@cache
def judged() -> list[tuple[str, Sent]]:
    """A model of what becomes of each temperature, from the generator's own notes."""
    found, watermark = [], None
    for batch in batches():
        sent = [s for s in batch if s.topic == "temperature"]
        found += [(_fate(s, watermark), s) for s in sent]
        newest = max(_reading(s)[1] for s in sent if s.what not in ("cut", "ahead"))
        watermark = max(watermark or 0, newest - DELAY)
    return found


def _fate(sent: Sent, watermark: int | None) -> str:
    if sent.what in ("cut", "ahead"):
        return "dead"
    if sent.what == "faulty":
        return "filtered"
    last_end = _reading(sent)[1] // SLIDE * SLIDE + SIZE
    return "late" if watermark is not None and last_end <= watermark else "used"


def _reading(sent: Sent) -> tuple[str, int, float]:
    """Area, milliseconds, degrees."""
    fields = json.loads(sent.record)
    at = datetime.fromisoformat(fields["at"]) - datetime.fromtimestamp(0, UTC)
    return fields["area"], at // timedelta(milliseconds=1), fields["celsius"]


def averages() -> dict[tuple[str, int], tuple[float, int]]:
    """(area, end of window) -> mean and count of the readings that were used."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for fate, sent in judged():
        if fate == "used":
            area, at, celsius = _reading(sent)
            first = at // SLIDE * SLIDE + SLIDE
            for end in range(first, first + SIZE, SLIDE):
                found[area, end].append(celsius)
    return {key: (fmean(values), len(values)) for key, values in found.items()}


class Played:
    """The fire alarm after everything was sent, and all windows were closed."""

    def __init__(self, place: Path) -> None:
        self.log = hr.EmbeddedLog()
        for topic in TOPICS:
            self.log.create(topic)
        clock = ManualClock(BEGIN * 1_000)
        job, folder = load_job(FIRE_ALARM), place / "job"
        driver = Driver(job, folder, until=None, max_batch=100_000, clock=clock)
        producer = hr.Producer(self.log)
        for batch in batches():
            send(producer, batch)
            clock.advance(STEP * 1_000)
            driver.epoch()
        driver.close()
        self.last: Progress | None = Driver(job, folder, clock=clock).drain()
        self.dead = hr.read_output(folder / "dead").to_pylist()
        self.averages = hr.read_output(".headrace/fire-alarm/averages").to_pylist()
        self.late = hr.read_output(".headrace/fire-alarm/late").to_pylist()
        chunks = self.log.read("alarms", 0, 0)
        self.alarms: list[dict[str, Any]] = [r for _, rows in chunks for r in rows.to_pylist()]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    place = tmp_path_factory.mktemp("fire-alarm")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("HEADRACE_LOG", str(place / "log"))
        yield Played(place)


def test_the_fire_alarm_is_a_program_of_at_most_sixty_lines() -> None:
    assert len(FIRE_ALARM.read_text().splitlines()) <= 60


def test_it_builds_and_explains_itself() -> None:
    explanation = load_job(FIRE_ALARM).explain()
    assert explanation.json["depth"] == 2
    assert "=> temperature.window: partial aggregates" in explanation.text
    assert [step["step"] for step in explanation.json["python"]] == ["temperature.window.process"]


def test_it_finds_exactly_the_fires_that_were_set(played: Played) -> None:
    seconds = [(a["area"], a["alarm"], a["at"].timestamp() - BEGIN) for a in played.alarms]
    raised = {area: at for area, alarm, at in seconds if alarm}
    cleared = {area: at for area, alarm, at in seconds if not alarm}
    assert len(seconds) == 2 * len(FIRES)
    assert set(raised) == set(cleared) == {fire.area for fire in FIRES}
    for fire in FIRES:
        assert fire.start < raised[fire.area] < fire.start + 120
        assert fire.end < cleared[fire.area] < fire.end + 180


@pytest.mark.parametrize(("celsius", "burns"), [(40.0, False), (40.01, True)])
def test_it_burns_above_40_degrees_and_with_smoke(celsius: float, burns: bool) -> None:
    with Harness(load_job(FIRE_ALARM)) as test:
        at = datetime(1970, 1, 1, 0, 10, tzinfo=UTC)
        test.send("smoke", [{"area": "a", "density": 0.31, "at": at}])
        test.send("temperature", [{"area": "a", "celsius": celsius, "at": at}])
        test.end()
        assert [row["alarm"] for row in test.output("alarms.write")] == ([True] if burns else [])


def test_every_record_is_accounted_for_as_the_generator_made_it(played: Played) -> None:
    assert played.last is not None and played.last.ended
    fates = Counter(fate for fate, _ in judged())
    assert set(fates) == {"used", "filtered", "late", "dead"}  # else this shows little
    assert played.last.counts["temperature"] == {"read": fates.total(), **fates}
    smoke = sum(s.topic == "smoke" for batch in batches() for s in batch)
    assert played.last.counts["smoke"]["read"] == played.last.counts["smoke"]["used"] == smoke


def test_late_readings_and_dead_letters_are_kept_whole(played: Played) -> None:
    late = Counter(_reading(s)[2] for fate, s in judged() if fate == "late")
    assert Counter(row["celsius"] for row in played.late) == late
    cut = [d for d in played.dead if "max_skew" not in d["error"]]
    assert [d["record"] for d in cut] == [s.record for _, s in judged() if s.what == "cut"]
    assert len(played.dead) - len(cut) == sum(s.what == "ahead" for _, s in judged())
    assert {(d["input"], d["step"]) for d in played.dead} == {("temperature", "temperature")}


def test_the_averages_are_those_of_a_plain_model(played: Played) -> None:
    found = {
        (a["area"], int(a["window_end"].timestamp() * 1_000)): (a["celsius"], a["n"])
        for a in played.averages
    }
    expected = averages()
    assert len(played.averages) == len(expected) and found.keys() == expected.keys()
    assert all(found[key] == pytest.approx(expected[key]) for key in expected)
