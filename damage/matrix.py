"""Every kind of file of a whole job damaged in every way: the right rows, or a named error.

A job is run to two moments of its life, at rest and crashed between a manifest and what it
promises. One file is damaged, and the job started again and run to its end. Then all outputs
are what the model says; or somewhere there was an error with a code, a hint and the place, and
with the file put back the job goes on as if nothing had been.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from damage.kinds import files_by_kind, kind_of
from damage.world import ROWS, World, expected, forget
from headrace.errors import HeadraceError
from headrace.state import faults

CRASHES = {"at rest": None, "crashed": "commit.manifest", "publishing": "sink.publish",
           "merging": "sink.merge.recorded"}  # fmt: skip
Content = bytes | Literal["a folder", "a link to itself", "a link to nothing"] | None
ALL_AT_ONCE = 1_000  # rows of an epoch after the damage


class Crash(BaseException):
    """The driver is gone."""


@dataclass(frozen=True, slots=True)
class Case:
    moment: str
    place: str  # of the file, within the world
    harm: str
    content: Content  # of the file afterwards, or what is there instead; None: it is gone

    def __str__(self) -> str:
        return f"{self.moment}: {kind_of(self.place)} {self.place} {self.harm}"


@dataclass
class Tally:
    cases: int = 0
    records: int = 0
    unchanged: int = 0
    refused: int = 0
    kinds: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)


class Moment:
    """A world in one moment of its life: every file that it has, and had earlier."""

    def __init__(self, root: Path, name: str) -> None:
        self.name, self._saved = name, root / "saved"
        (root / "world").mkdir(parents=True)
        self.world = World(root / "world")
        self._run(4)
        self.older = {p: p.read_bytes() for p in self._files()}
        self.world.send(ROWS // 2, ROWS)
        self._run(4, CRASHES[name])
        self.world.server.hold = False
        self._printed, self._now = self.world.printed, self.world.clock.now()
        shutil.copytree(self.world.root, self._saved)

    def _files(self) -> list[Path]:
        return [p for paths in files_by_kind(self.world.root).values() for p in paths]

    def _run(self, epochs: int, crash: str | None = None) -> None:
        driver = self.world.start(until=None)
        self.world.run(driver, epochs)
        if crash is not None:
            with suppress(Crash), faults.hooked(lambda name: _end(name == crash)):
                self.world.run(driver, 10)
        driver.close()

    def restore(self) -> None:
        """Everything as it was in this moment, under the same paths."""
        shutil.rmtree(self.world.root)
        shutil.copytree(self._saved, self.world.root)
        self.world.printed = self._printed
        self.world.clock.advance(self._now - self.world.clock.now())

    def cases(self, positions: int, per_kind: int | None, chance: random.Random) -> Iterator[Case]:
        """All files of each kind, or `per_kind` of them: the newest, and others drawn."""
        for paths in files_by_kind(self._saved).values():
            chosen = paths if per_kind is None else _drawn(paths, per_kind, chance)
            for path in chosen:
                place = path.relative_to(self._saved).as_posix()
                before = self.older.get(self.world.root / place)
                sibling = paths[paths.index(path) - 1]
                for harm, content in harms(path, before, sibling, positions, chance):
                    yield Case(self.name, place, harm, content)

    def close(self) -> None:
        self.world.server.close()


def _end(now: bool) -> None:
    if now:
        raise Crash


def _drawn(paths: list[Path], number: int, chance: random.Random) -> list[Path]:
    return [*chance.sample(paths[:-1], min(number, len(paths)) - 1), paths[-1]]


def harms(
    path: Path, before: bytes | None, sibling: Path, positions: int, chance: random.Random
) -> Iterator[tuple[str, Content]]:
    """What may become of a file: its content afterwards; None if it is gone."""
    content = path.read_bytes()
    yield "deleted", None
    yield "replaced by a folder", "a folder"
    yield "replaced by a link to itself", "a link to itself"
    yield "replaced by a link to nothing", "a link to nothing"
    if content:
        yield "emptied", b""
        for at in chance.sample(range(len(content)), min(positions, len(content))):
            bit = chance.randrange(8)
            flipped = bytes([content[at] ^ 1 << bit])
            yield f"bit {bit} of byte {at} flipped", content[:at] + flipped + content[at + 1 :]
            yield f"cut at {at}", content[:at]
    if before is not None and before != content:
        yield "as it was earlier", before
    if sibling != path and sibling.read_bytes() != content:
        yield f"replaced by {sibling.name}", sibling.read_bytes()


def judge(moment: Moment, case: Case, tally: Tally) -> None:
    moment.restore()
    world = moment.world
    victim = world.root / case.place
    whole = victim.read_bytes()
    put(victim, case.content)
    tally.cases += 1
    tally.kinds.add(kind_of(case.place))
    wrong = attempt(world, tally)
    if isinstance(wrong, HeadraceError):
        tally.refused += 1
        if not (wrong.code and wrong.hint):
            tally.violations.append(f"{case}: without a hint: {wrong}")
        wrong = _mended(world, victim, case.content, whole, tally)
    else:
        tally.unchanged += wrong is None
    if wrong is not None:
        tally.violations.append(f"{case}: {wrong}")


def put(path: Path, content: Content) -> None:
    """Make `content` of whatever is at `path`."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    match content:
        case bytes():
            path.write_bytes(content)
        case "a folder":
            path.mkdir()
        case "a link to itself":
            path.symlink_to(path)
        case "a link to nothing":
            path.symlink_to(path.parent / "nothing")


def found(path: Path) -> Content:
    """What is at `path`."""
    if path.is_symlink():
        itself = path.readlink() == path
        return "a link to itself" if itself else "a link to nothing"
    if path.is_dir():
        return "a folder"
    return path.read_bytes() if path.exists() else None


def attempt(world: World, tally: Tally) -> HeadraceError | str | None:
    """Start, run to the end, read: None if all is right, the error, or what is wrong."""
    try:
        driver = world.start(max_batch=ALL_AT_ONCE)
        try:
            world.run(driver)
        finally:
            driver.close()
        forget()
        found, wanted = world.outputs(), expected()
    except HeadraceError as error:
        return error
    except Exception as error:
        return f"{type(error).__name__} {error}"
    tally.records += sum(sum(rows.values()) for rows in wanted.values())
    return _difference(found, wanted)


def _difference(found: object, wanted: object) -> str | None:
    assert isinstance(found, dict) and isinstance(wanted, dict)
    wrong = [n for n in wanted if found[n] != wanted[n]]
    return "; ".join(
        f"{n} lacks {(wanted[n] - found[n]).total()}, has {(found[n] - wanted[n]).total()} too many"
        for n in wrong
    ) or None  # fmt: skip


def _mended(
    world: World, victim: Path, spoilt: Content, whole: bytes, tally: Tally
) -> HeadraceError | str | None:
    """What is wrong once the file is put back, unless the job has written it meanwhile."""
    if found(victim) != spoilt:
        return None
    victim.parent.mkdir(parents=True, exist_ok=True)
    put(victim, whole)
    wrong = attempt(world, tally)
    return None if wrong is None else f"put back: {wrong}"
