"""The kinds of fault: each finds the job running or starts it, harms it, and sees what it does.

What a fault leaves may be a life, or none: the next one goes on from there. Which kind comes
next is drawn by `drawn`, among those that can be done here.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from chaos.player import CLOCK, HALT, KILL, SLOW
from chaos.world import Life, World

JUMPS = (-86_400_000, -3_600_000, -5_000, 5_000, 3_600_000, 86_400_000)  # milliseconds
REST = 1.0  # seconds without an epoch: it has nothing to do
FENCED = 30.0  # seconds in which an old driver must end
LOCKING = ("log.", "sql.")  # who halts there holds a lock, and others wait for it


def killed(world: World) -> None:
    """kill -9 at any moment: of all; on Spark also of the driver, the JVM or a worker alone."""
    life = world.running()
    world.feed.send(world.draw.randrange(20, 60))
    world.pause(world.draw.uniform(0, 0.3 if not world.spark else 1.0))
    if not world.spark:
        world.count("kill")
        life.end()
        return
    who = world.draw.choice(["all", "java", "driver"])
    world.count(f"kill {who}")
    life.kill(who)
    world.until(lambda: life.code is not None)
    if world.draw.random() < 0.5:
        life.end()  # else the next start begins while they end by themselves


def worker_killed(world: World) -> None:
    """kill -9 of a Python worker on Spark: it is replaced, or the job ends by name."""
    life = world.running()
    world.feed.send(world.draw.randrange(20, 60))
    world.pause(world.draw.uniform(0, 0.5))
    workers = life.processes("workers")
    if not workers:
        return
    world.count("kill worker")
    with suppress(ProcessLookupError):
        os.kill(world.draw.choice(workers), signal.SIGKILL)
    if not world.advanced(life):
        world.wrong("after a worker was killed nothing happens")
        life.end()
    elif life.code is not None:
        world.refused(life, "a worker killed")
        life.end()


def at_a_step(world: World, point: str = "") -> None:
    """kill -9 at a durable step, each as often as the others: of one that runs, or that starts."""
    if not world.passed():
        world.running()  # the first, which passes them
    names = world.passed()
    order = f"{point or names[world.faults['kill at a step'] % len(names)]}:"
    order += str(world.draw.choice([1, 1, 1, 2, 5]))
    if world.spark or world.draw.random() < 0.5:
        world.end_life()
        victims = world.draw.choice(["1", "leader", "java"]) if world.spark else "1"
        life = world.start(order, victims=victims)
    else:
        life = world.running()
        world.give_order(order)
    if _dies(world, life):
        world.count("kill at a step")
    else:
        world.count("kill")
    life.end()


def _dies(world: World, life: Life) -> bool:
    """Whether it came to its step, as it should if it has enough to do."""
    for _ in range(2):
        world.feed.send(world.draw.randrange(20, 60))
        if _at_rest(world, life):
            break
    return life.code is not None and not (world.place / KILL).exists()


def _at_rest(world: World, life: Life, upto: int = 1 << 62) -> bool:
    """Wait until it is dead, has come to an epoch, or has had nothing to do for a while; whether it
    is dead."""
    epoch, since = world.epoch(), time.monotonic()
    patience = REST * (5 if world.spark else 1)

    def over() -> bool:
        nonlocal epoch, since
        if world.epoch() != epoch:
            epoch, since = world.epoch(), time.monotonic()
        rests = world.epoch() > life.epoch and time.monotonic() - since > patience
        return life.code is not None or rests or world.epoch() >= upto

    world.until(over)
    return life.code is not None


def while_it_recovers(world: World) -> None:
    """A crash that leaves work to the next start, which is killed at it; and the one after, too."""
    at_a_step(world, world.draw.choice(["commit.manifest", "sink.publish", "state.written"]))
    for _ in range(2):
        if world.spark:
            life = world.start()
            world.pause(world.draw.uniform(0, 1.3 * max(world.recoveries, default=10)))
        else:
            life = world.start(dies_at=world.draw.randrange(1, 40))
            world.feed.send(world.draw.randrange(20, 60))
            world.until(lambda life=life: life.code is not None, 5.0)
        world.count("kill while it recovers")
        life.end()


def zombie(world: World) -> None:
    """The driver is halted, another takes over, and the first goes on: it must end, and by name."""
    old = world.running()
    if not world.spark and world.draw.random() < 0.5:
        names = [name for name in world.passed() if not name.startswith(LOCKING)]
        (world.place / HALT).write_text(world.draw.choice(names))
        world.feed.send(world.draw.randrange(20, 60))
        world.until(lambda: _halted(old), REST)
        (world.place / HALT).unlink(missing_ok=True)
    else:
        world.feed.send(world.draw.randrange(20, 60))
        world.pause(world.draw.uniform(0, 0.2))
    old.kill("all", signal.SIGSTOP)
    world.count("zombie")
    epoch = world.epoch()
    new = world.start()
    world.feed.send(world.draw.randrange(60, 120))
    _at_rest(world, new, epoch + world.draw.choice([1, 2, 20]))
    old.kill("all", signal.SIGCONT)
    if new.code is not None:
        world.refused(new, "a takeover")  # the old one holds a lock
        new.end()
        old.end()
        world.life = None
        return
    began = time.monotonic()
    while time.monotonic() - began < FENCED and old.code is None:
        world.feed.send(10)  # it has something to do
        world.until(lambda: old.code is not None, REST)
    if old.code is None:
        world.wrong(f"an old driver lives on after {FENCED:.0f} s")
    else:
        world.refused(old, "an old driver let go")
    old.end()


def _halted(life: Life) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{life.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    return life.code is not None


def full_disk(world: World) -> None:
    """The disk of job and outputs gets full: it ends by name, or has nothing to write."""
    life = world.running()
    ballast, left = world.work / "ballast", world.draw.choice([0, 0, 4_096, 65_536])
    free = shutil.disk_usage(world.work).free
    with ballast.open("wb") as file, suppress(OSError):
        os.posix_fallocate(file.fileno(), 0, max(1, free - left))
    world.count("full disk")
    world.feed.send(world.draw.randrange(60, 120))
    if world.until(lambda: life.code is not None, 10.0 if not world.spark else 60.0):
        world.refused(life, "a full disk")
        if world.draw.random() < 0.5:
            again = world.start()
            world.until(lambda: again.code is not None, 5.0 if not world.spark else 60.0)
            if again.code is not None:
                world.refused(again, "a start on a full disk")
            again.end()
    ballast.unlink()
    life.end()


def damage(world: World) -> None:
    """A file is harmed while nobody runs: no harm comes of it, or an error names the file."""
    world.running()
    world.end_life()
    files = list(_files(world))
    kinds = sorted({kind for kind, _ in files})
    kind = world.draw.choice(kinds)
    path = world.draw.choice([path for k, path in files if k == kind])
    whole = path.read_bytes()
    harmed = _harmed(world, whole)
    world.blind = True
    world.count("damage")
    _put(path, harmed)
    world.feed.send(world.draw.randrange(20, 60))
    life = world.start()
    world.until(lambda: world.epoch() >= life.epoch + 3 or life.code is not None)
    if life.code is not None:
        named = (
            path.name if harmed is not None else path.parent.name
        )  # the place of one that is gone
        world.refused(life, f"{path.relative_to(world.work)} damaged", named)
    life.end()
    if (path.read_bytes() if path.exists() else None) == harmed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole)
    world.blind = False


def _files(world: World) -> Iterator[tuple[str, Path]]:
    """The files that Headrace writes, by their kind: those of a folder with a known name."""
    for top in (world.job, world.work / "out"):
        for path in sorted(top.rglob("*")):
            parts = path.relative_to(world.work).parts
            ours = top == world.job or "_commits" in parts or "log" in parts
            if path.is_file() and ours and path.suffix != ".db":
                yield "/".join(p for p in parts[:-1] if "=" not in p), path


_HARM = ("damaged", "removed")


def _harmed(world: World, whole: bytes) -> bytes | None:
    at = world.draw.randrange(len(whole)) if whole else 0
    flipped = whole[:at] + bytes([whole[at] ^ 1 << world.draw.randrange(8)]) + whole[at + 1 :] if (
        whole) else b"\0"  # fmt: skip
    return world.draw.choice([flipped, flipped, whole[:at], b"", None])


def _put(path: Path, content: bytes | None) -> None:
    path.unlink()
    if content is not None:
        path.write_bytes(content)


def clock_jump(world: World) -> None:
    """The machine's clock jumps, ahead or back."""
    life, file = world.running(), world.place / CLOCK
    made = world.place / "clock.made"
    made.write_text(str(world.draw.choice(JUMPS)))
    os.rename(made, file)
    world.count("clock jump")
    if not world.advanced(life):
        world.wrong("after a jump of the clock nothing happens")
        life.end()
    elif life.code is not None:
        world.wrong(f"a jump of the clock ended it: {life.words()[-800:]}")


def slow_sink(world: World) -> None:
    """The outputs are slow for an epoch; a database is locked by somebody else."""
    life = world.running()
    (world.place / SLOW).touch()
    world.count("slow output")
    databases = list((world.work / "out").glob("*.db"))
    if databases:
        _locked(world, databases[0])
    if not world.advanced(life):
        world.wrong("with a slow output nothing happens")
        life.end()
    elif life.code is not None:
        world.wrong(f"a slow output ended it: {life.words()[-800:]}")
    (world.place / SLOW).unlink()


def _locked(world: World, path: Path) -> None:
    with closing(sqlite3.connect(str(path), timeout=60, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        world.feed.send(world.draw.randrange(20, 60))
        time.sleep(world.draw.uniform(0.2, 1.0))  # how long somebody else writes
        db.execute("ROLLBACK")


Kind = Callable[[World], None]
WEIGHTS: dict[Kind, int] = {
    killed: 4, at_a_step: 10, while_it_recovers: 2, zombie: 3, full_disk: 3, damage: 4,
    clock_jump: 2, slow_sink: 1,
}  # fmt: skip
SPARK_WEIGHTS: dict[Kind, int] = {
    killed: 4, worker_killed: 8, at_a_step: 4, while_it_recovers: 2, zombie: 1, full_disk: 1,
    damage: 1,
}  # fmt: skip


def drawn(world: World) -> Kind:
    """The next kind of fault."""
    weights = dict(SPARK_WEIGHTS if world.spark else WEIGHTS)
    if not world.disk:
        weights.pop(full_disk)
    return world.draw.choices([*weights], [*weights.values()])[0]
