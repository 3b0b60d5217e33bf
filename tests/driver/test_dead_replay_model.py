"""Replays of dead letters under drawn rows, mends and crashes, against a few lines of plain Python.

The program has two branches and a shuffle, and a program of each round fails on other values. The
model knows nothing of letters, offsets or epochs: it has records, what fails, and what was asked.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver import dead_replay
from headrace.driver.dead_replay import letters_of
from headrace.state import faults
from headrace.state.epochs import EpochLog
from headrace.testing import Driver
from tests.driver.test_dead_replay import out, read, topic

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "4"))
STEPS = ("one", "two", "three")
Failing = dict[str, set[int]]  # the values of `v` on which each step fails


class Crash(Exception):
    pass


def build(place: Path, failing: Failing) -> hr.Job:
    def fails(step: str, row: Any) -> None:
        if row.v in failing[step]:
            raise ValueError(f"{step}: {row.v}")

    def one(row: Any) -> dict[str, Any]:
        fails("one", row)
        return {"id": row.id, "v": row.v}

    def three(row: Any) -> bool:
        fails("three", row)
        return bool(row.v % 2)

    class Two(hr.KeyedProcess):
        seen = hr.value("bigint", 0)

        def on_row(self, row: Any, ctx: Any) -> dict[str, int]:
            fails("two", row)
            self.seen += 1
            return {"id": row.id}

    job = hr.Job("model")
    rows = read(place, job, "id bigint, v bigint")
    ones = rows.map(one, schema="id bigint, v bigint", name="one")
    ones.select("id").write("collect:", name="ones")
    twos = ones.key_by("v").process(Two(), output="id bigint", name="two", unbounded=True)
    twos.write("collect:", name="twos")
    rows.filter(three, name="three").select("id").write("collect:", name="threes")
    return job


class Model:
    def __init__(self) -> None:
        self.values: list[int] = []  # of each record, by its id
        self.read = 0
        self.dead: Counter[tuple[str, int]] = Counter()  # step and id of the letters
        self.out = {name: Counter[int]() for name in ("ones", "twos", "threes")}
        self.counts: Counter[str] = Counter()

    def run(self, failing: Failing, asked: list[list[tuple[str, int]]]) -> None:
        """The new records, and the letters of each request."""
        fresh = range(self.read, len(self.values))
        self.read = len(self.values)
        for entering in [[(s, i) for i in fresh for s in ("one", "three")], *asked]:
            dying: set[int] = set()
            used: set[int] = set()
            for step, id in entering:
                self._enter(step, id, failing, dying, used)
            ids = {id for _, id in entering}
            self.counts["read"] += len(ids)
            self.counts["dead"] += len(dying)
            self.counts["used"] += len(used - dying)
            self.counts["filtered"] += len(ids - used - dying)

    def _enter(self, step: str, id: int, failing: Failing, dying: set[int], used: set[int]) -> None:
        value = self.values[id]
        if value in failing[step]:
            self.dead[step, id] += 1
            dying.add(id)
        elif step == "one":
            self.out["ones"][id] += 1
            used.add(id)
            self._enter("two", id, failing, dying, used)
        elif step == "two":
            self.out["twos"][id] += 1
            used.add(id)
        elif value % 2:
            self.out["threes"][id] += 1
            used.add(id)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_replays_are_exactly_once_whatever_fails_and_crashes(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, model = random.Random(seed), Model()
    at_once = draw.choice([1, 3, 10_000])  # letters of one request
    monkeypatch.setattr(dead_replay, "AT_ONCE", at_once)
    topic(tmp_path, [])
    for _ in range(6):
        failing = {step: {v for v in range(8) if draw.random() < 0.3} for step in STEPS}
        fresh = [draw.randrange(8) for _ in range(draw.choice([0, 5, 30]))]
        asked = []
        for _ in range(draw.choice([0, 1, 2])):
            letters = _ask(tmp_path, draw)
            model.dead.subtract(letters)
            asked += [letters[i : i + at_once] for i in range(0, len(letters), at_once)]
        topic(tmp_path, [{"id": len(model.values) + i, "v": v} for i, v in enumerate(fresh)])
        model.values += fresh
        driver = _run(tmp_path, failing, draw)
        model.run(failing, asked)
        for name, ids in model.out.items():
            assert Counter(id for (id,) in out(driver, name)) == ids, name
        assert Counter(_open(tmp_path).values()) == +model.dead
        if driver.manifest is not None:
            counts = dict(driver.manifest.counts.get("rows", {}))
            assert counts == {"late": 0, **{f: model.counts[f] for f in counts if f != "late"}}
        driver.close()
    assert sum(model.out["twos"].values()) > 0


def _open(place: Path) -> dict[int, tuple[str, int]]:
    """By its number the step and the id of each letter, as its record says it."""
    if not (place / "job" / "job.json").exists():
        return {}
    rows = letters_of(EpochLog(place / "job")).open()
    columns = (rows.column(name).to_pylist() for name in ("number", "step", "record"))
    return {n: (step, json.loads(record)["id"]) for n, step, record in zip(*columns, strict=True)}


def _ask(place: Path, draw: random.Random) -> list[tuple[str, int]]:
    """Ask for some of the letters; those of an earlier request are no longer free."""
    letters = _open(place)
    if not letters:
        return []
    found = letters_of(EpochLog(place / "job"))
    pairs = zip(*(found.open()[name].to_pylist() for name in ("number", "id")), strict=True)
    chosen = [n for n, id in pairs if id not in found.asked and draw.random() < 0.6]
    if chosen:
        assert hr.replay_dead(place / "job", numbers=chosen).asked == len(chosen)
    return [letters[n] for n in chosen]


def _run(place: Path, failing: Failing, draw: random.Random) -> Driver:
    """Until there is nothing to do; it is killed on the way, perhaps more than once."""
    for _ in range(draw.choice([0, 1, 1, 2])):
        left = draw.randrange(60)

        def hook(name: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash(name)

        with faults.hooked(hook), suppress(Crash):
            Driver(build(place, failing), place / "job", until=None, max_batch=9).drain()
    driver = Driver(build(place, failing), place / "job", until=None, max_batch=9)
    driver.drain()
    return driver
