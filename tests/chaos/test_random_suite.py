"""The random suite of `make chaos` in short: every kind of fault once, and a verifier that sees."""

from __future__ import annotations

import ast
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from chaos.feed import Feed
from chaos.programs import PROGRAMS, build
from chaos.verifier import Sent, Verifier
from chaos.world import World, small_disk

from chaos import kinds, outputs, verifier
from headrace.testing import Driver, drive


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_models_agree_with_a_run_that_nobody_disturbs(tmp_path: Path, program: str) -> None:
    found = _finished(tmp_path, program)
    found.end()
    assert found.violations == [] and found.records


def _finished(place: Path, program: str = "joined") -> Verifier:
    (place / "work" / "out").mkdir(parents=True)
    feed = Feed(program, place / "in", random.Random(1))
    found = Verifier(program, place / "work", feed.sent)
    feed.send(150)
    driver = Driver(build(program, place), place / "work" / "job", until=None, max_batch=40)
    driver.drain()
    driver.close()
    found.look()
    feed.send(150)
    drive(build(program, place), place / "work" / "job", max_batch=60)
    assert feed.sent.malformed
    return found


PLANTED = {
    "lost": ("DELETE FROM pairs WHERE id = 3", ["seen, and no longer there", "lost"]),
    "there twice": (
        "INSERT INTO pairs SELECT * FROM pairs WHERE id = 299", ["more than once", "too many"],
    ),
    "half an epoch": (
        "DELETE FROM pairs WHERE id = 299 AND part = 1", ["half an epoch", "no longer", "lost"],
    ),
    "another value": (
        "UPDATE pairs SET v = v + 1 WHERE id = 299", ["no longer", "lost", "too many"],
    ),
    "invented": ("INSERT INTO pairs VALUES (0, 9999, 1, 1), (1, 9999, 1, 1)", ["too many"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sent, bytes]:
    """A job that is done: its place, what was sent, and its table before any harm."""
    place = tmp_path_factory.mktemp("joined")
    found = _finished(place)
    return place, found.sent, (place / "work" / "out" / "pairs.db").read_bytes()


@pytest.mark.parametrize("harm", PLANTED)
def test_the_verifier_finds_what_is(joined: tuple[Path, Sent, bytes], harm: str) -> None:
    place, sent, whole = joined
    file = place / "work" / "out" / "pairs.db"
    file.write_bytes(whole)
    found = Verifier("joined", place / "work", sent)
    found.look()
    statement, wanted = PLANTED[harm]
    with closing(sqlite3.connect(file)) as db, db:
        db.execute(statement)
    found.end()
    assert len(found.violations) == len(wanted)
    assert all(w in v for w, v in zip(wanted, found.violations, strict=True))


@pytest.mark.parametrize(("program", "output"), [("windows", "windows"), ("many", "collected")])
def test_the_verifier_finds_a_record_of_files_that_is_gone(
    tmp_path: Path, program: str, output: str
) -> None:
    found = _finished(tmp_path, program)
    found.look()
    reader = outputs.readers(program, tmp_path / "work")[output]
    max((reader.place / "_commits").glob("*[0-9a-f].json")).unlink()
    found.end()
    assert any("seen, and no longer there" in v for v in found.violations)
    assert any("lost" in v for v in found.violations)


def test_the_verifier_finds_a_dead_letter_that_is_lost(tmp_path: Path) -> None:
    found = _finished(tmp_path)
    max((tmp_path / "work" / "job" / "dead" / "_commits").glob("*.json")).unlink()
    found.end()
    assert len(found.violations) == 1 and "dead letters: lost" in found.violations[0]


def test_the_verifier_is_outside() -> None:
    for module in (outputs, verifier):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        names = [n.name for node in ast.walk(tree) if isinstance(node, ast.Import)
                 for n in node.names]  # fmt: skip
        names += [str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert not [n for n in names if n.startswith(("headrace", "tests"))]
        assert {n for n in names if n.startswith("chaos")} <= {"chaos.outputs"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("world")
    with small_disk(place / "work") as disk:
        made = World("windows", 1, place, spark=False, disk=disk)
        yield made
        made.close()


@pytest.mark.parametrize("kind", kinds.WEIGHTS)
def test_a_fault_of_each_kind_is_survived(world: World, kind: Callable[[World], None]) -> None:
    if kind is kinds.full_disk and not world.disk:
        pytest.skip("no disk may be mounted here")
    before = world.total
    kind(world)
    assert world.total > before and world.verifier.violations == []


def test_in_the_end_all_is_there(world: World) -> None:
    world.finish()
    assert world.verifier.violations == [] and world.verifier.records and world.recoveries
