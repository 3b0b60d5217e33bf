"""How many small appends a second: `python -m stress.appends`.

One record an append, by 1 and 8 appenders, as threads and as processes, on the disk and in
memory. Every append has its own acknowledgement; at the end the log is read and all of them
must be there. Says how many appends shared a sync and what an append costs in processor time,
which depends less on what else the machine does.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headrace.log import EmbeddedLog
from headrace.state import faults

FORK = multiprocessing.get_context("fork")
MEMORY = Path("/dev/shm")


class Found(NamedTuple):
    appends: int
    seconds: float
    syncs: int
    cpu: float  # seconds, of all appenders

    def __str__(self) -> str:
        rate, share = self.appends / self.seconds, self.appends / max(1, self.syncs)
        cost = self.cpu / self.appends * 1e6
        return f"{rate:>8,.0f} appends/s  {share:>5.1f} per sync  {cost:>4.0f} us of processor each"


def append(log: EmbeddedLog, seconds: float, name: int) -> int:
    """Append one record after the other; the number made."""
    until, n = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        log.append("t", [b"%d-%d" % (name, n)])
        n += 1
    return n


def threads(root: Path, seconds: float, appenders: int) -> Found:
    log, made = EmbeddedLog(root), Counter[int]()
    log.create("t")
    _warm(root)
    passed: Counter[str] = Counter()

    def work(name: int) -> None:
        made[name] = append(log, seconds, name)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(appenders)]
    began, cpu = time.monotonic(), time.process_time()
    with faults.hooked(lambda point: passed.update((point,)) if point == "log.sync" else None):
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    took, used = time.monotonic() - began, time.process_time() - cpu
    _check(root, made)
    return Found(made.total(), took, passed["log.sync"], used)


def processes(root: Path, seconds: float, appenders: int) -> Found:
    EmbeddedLog(root).create("t")
    _warm(root)
    answers = FORK.SimpleQueue()

    def work(name: int) -> None:
        passed: Counter[str] = Counter()
        log, cpu = EmbeddedLog(root), time.process_time()
        with faults.hooked(lambda point: passed.update((point,)) if point == "log.sync" else None):
            n = append(log, seconds, name)
        answers.put((name, n, passed["log.sync"], time.process_time() - cpu))

    workers = [FORK.Process(target=work, args=(i,)) for i in range(appenders)]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = time.monotonic() - began
    assert not any(worker.exitcode for worker in workers), "an appender failed"
    found = [answers.get() for _ in workers]
    _check(root, Counter({name: n for name, n, _, _ in found}))
    syncs, cpu = sum(f[2] for f in found), sum(f[3] for f in found)
    return Found(sum(f[1] for f in found), took, syncs, cpu)


def _warm(root: Path) -> None:
    """The first append imports what all need."""
    log = EmbeddedLog(root)
    log.create("warm")
    log.append("warm", [b"x"])


def _check(root: Path, made: Counter[int]) -> None:
    """All that was acknowledged is there, once, each appender's in its order."""
    values = [v for _, t in EmbeddedLog(root).read("t", 0, 0) for v in t["value"].to_pylist()]
    found: Counter[int] = Counter()
    for name, n in (map(int, value.split(b"-")) for value in values):
        assert found[name] == n, f"appender {name}: record {n} follows {found[name] - 1}"
        found[name] += 1
    assert found == +made, "acknowledged appends are missing"


KINDS: dict[str, Callable[[Path, float, int], Found]] = {
    "threads": threads, "processes": processes,
}  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=2.0, help="for each of the figures")
    options.add_argument("--disk", type=Path, default=Path.cwd(), help="a folder on the disk")
    asked = options.parse_args()
    places = {"disk": asked.disk} | ({"memory": MEMORY} if MEMORY.is_dir() else {})
    for place, folder in places.items():
        for kind, run in KINDS.items():
            for appenders in (1, 8):
                with tempfile.TemporaryDirectory(dir=folder) as name:
                    found = run(Path(name), asked.seconds, appenders)
                print(f"{place:7} {appenders} {kind:10} {found}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
