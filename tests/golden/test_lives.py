"""A job that goes on for years: from a folder that a release left, through five other programs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.testing import Driver
from tests.golden.feeding import BASE, PAUSE, send
from tests.golden.lives import FIRST, LIVES, VERSIONS, Life
from tests.golden.programs.base import orders, readings
from tests.golden.reading import unpack
from tests.golden.write import FOLDERS


@pytest.mark.parametrize("name", LIVES)
def test_a_program_lives_through_five_changes(name: str, home: Path) -> None:
    life = LIVES[name]
    unpack(FOLDERS / "0.1.0" / f"{life.folder}.zip", home)
    found, clock = Counter[tuple[Any, ...]](), ManualClock(BASE + PAUSE * FIRST)
    for version in range(1, VERSIONS + 1):
        send(home, ("readings", "orders")[: 2 if life.folder == "near" else 1], FIRST + version - 1)
        until = "end" if version == VERSIONS else None
        program = made(life, version, home)
        driver = Driver(program, home / "job", until=until, clock=clock, drop=True)
        driver.drain()
        driver.close()
        clock.advance(PAUSE)
        rows = hr.collected(str(home / "job"), f"life {version}").to_pylist()
        found.update(tuple(row.values()) for row in rows)
    assert found == life.model()
    assert found.total() > 20


def made(life: Life, version: int, root: Path) -> Any:
    """A version of the program, on the inputs of the folder; those that are not read are gone."""
    if life.topology:
        topology = hr.Topology(life.folder, slots=4)
        life.build(version, topology, readings(root, topology))
        return topology
    job = hr.Job(life.folder, slots=4)
    streams = [readings(root, job)]
    if life.folder == "near":
        streams.append(orders(root, job))
    life.build(version, *streams).write("collect:", name=f"life {version}")
    return job
