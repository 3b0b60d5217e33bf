"""How much an epoch sheds: by the speed of the job, by what waits, and by priorities."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.driver.shedding import MOST, Speed, by_priority, joined, share_of
from headrace.ops.shedding import WHOLE
from tests.driver.test_shedding import World, check_counts


def test_only_batches_that_are_full_say_how_quick_the_job_is() -> None:
    speed = Speed()
    speed.lasted(10, 5_000, full=True)  # the first is about the start of the JVM
    speed.lasted(10, 1_000, full=False)
    assert speed.known is None
    speed.lasted(1_000, 100, full=True)
    speed.lasted(10, 1_000, full=False)
    assert speed.known == 10
    for _ in range(5):
        speed.lasted(400, 100, full=True)
    assert speed.known == 4
    speed.lasted(500, 100, full=False)
    assert speed.known == 5


def test_as_many_are_left_waiting_as_may_wait() -> None:
    draw = random.Random(7)
    for _ in range(500):
        waiting, other = draw.randrange(1, 10**7), draw.choice([0, draw.randrange(10**6)])
        budget = draw.randrange(1_000, 100_000)
        if waiting + other <= budget:
            continue
        how = draw.choice([hr.shedding.random, hr.shedding.oldest])
        lag, rows = draw.choice([(None, 5_000), ("10s", None), ("10s", 5_000)])
        speed = draw.choice([None, 0.5, 40.0])
        share = share_of(how(lag, rows=rows), waiting, waiting + other, budget, speed, ())
        own = max(1, budget * waiting // (waiting + other))
        bounds = [rows] if rows else []
        bounds += [int(speed * 10_000 * waiting / (waiting + other))] if lag and speed else []
        if share is None:
            assert not bounds or waiting - own <= min(bounds)
            continue
        left = waiting - share.skip - share.read
        assert left == min(bounds) or (left > min(bounds) and share.read == own * MOST)
        assert share.use == own <= share.read


def test_nothing_is_shed_before_the_speed_is_known() -> None:
    assert share_of(hr.shedding.random("1s"), 10**9, 10**9, 1_000, None, ()) is None
    lowest = hr.shedding.lowest("p", rows=10)
    assert share_of(lowest, 10**9, 10**9, 1_000, None, ()) is None  # nor any priority


def test_as_many_are_used_as_there_is_room_for() -> None:
    """What is expected to be used, of records with these priorities, is the share asked for."""
    draw = random.Random(7)
    for _ in range(300):
        values = sorted({draw.randrange(40) for _ in range(draw.randrange(1, 30))})
        counts: list[list[Any]] = [[v, draw.randrange(1, 500)] for v in values]
        if draw.random() < 0.3:
            counts.insert(0, [None, draw.randrange(1, 500)])
        share, estimates = draw.uniform(1 / MOST, 1), draw.random() < 0.5
        decision = by_priority(counts, share, estimates=estimates)
        assert decision is not None
        chances = []
        for value, _ in counts:
            rank = float("-inf") if value is None else value
            some = float("-inf") if decision["some"] is None else decision["some"]
            if decision["all"] is not None and rank >= decision["all"]:
                chances.append(1.0)
            else:
                chances.append(decision["keep" if rank >= some else "rest"] / WHOLE)
        assert chances == sorted(chances)
        assert not estimates or chances[0] > 0
        total = sum(n for _, n in counts)
        used = sum(n * chance for (_, n), chance in zip(counts, chances, strict=True))
        assert abs(used - share * total) < 1e-3 * total


def test_few_priorities_stand_for_all() -> None:
    draw = random.Random(7)
    seen: list[list[Any]] = []
    for _ in range(20):
        new = Counter(draw.choice([None, draw.gauss(0, 1), 0.0]) for _ in range(1_000))
        seen = joined(seen, [[v, n] for v, n in new.items()])
    values = [float("-inf") if v is None else v for v, _ in seen]
    assert values == sorted(set(values)) and len(values) < 400
    assert sum(n for _, n in seen) == 20_000
    above = sum(n for v, n in seen if v is not None and v > 0)
    assert abs(above - 20_000 / 6) < 400


def test_lag_is_what_the_job_processes_in_that_time(tmp_path: Path) -> None:
    """500 rows a batch, and a batch a second: in four seconds 2,000."""
    world = World(tmp_path, hr.shedding.random(lag="4s"), lean=True)
    driver = world.start()
    world.burst(6_000)
    lags = []
    while (progress := driver.epoch()) is not None:
        world.clock.advance(1_000)
        lags.append(progress.lag)
        assert driver.manifest is not None
        check_counts(driver.manifest)
    assert lags == [5_500, 5_000, 2_000, 1_500, 1_000, 500, 0]
    assert driver.manifest is not None
    assert 6_000 - driver.manifest.counts["rows"]["shed"] == driver.output("out").num_rows
