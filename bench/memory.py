"""How much memory and processor time a tree of processes takes, by looking now and then.

Resident memory counts a page in every process that maps it; the proportional size (PSS)
shares it out, so forked workers are not counted double. Both are sums over the tree; the
peak is the largest sum seen; `parts` are the proportional sizes at that moment.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

_EVERY = 0.1  # seconds between two looks at resident memory
_PROPORTIONAL = 10  # of those, how many between two looks at the proportional one


class Watch:
    """Looks at the tree under `pid` from a thread until it is closed."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._done = threading.Event()
        self._cpu: dict[tuple[int, float], float] = {}
        self.rss = 0
        self.pss = 0
        self.parts: list[tuple[str, int]] = []  # name and MB of each process at the peak
        self._busy, self._at = _busy(), time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        self.others = self._others()

    def _run(self) -> None:
        looks = 0
        while not self._done.wait(_EVERY):
            tree = [*_alive(self._root)]
            self.rss = max(self.rss, sum(self._rss(p) for p in tree))
            if looks % _PROPORTIONAL == 0:
                self._share_out(tree)
            looks += 1

    def _share_out(self, tree: list[psutil.Process]) -> None:
        held = [(_pss(p), p) for p in tree]
        total = sum(pss for pss, _ in held)
        if total > self.pss:
            self.pss = total
            self.parts = [(_name(p), pss >> 20) for pss, p in held if pss]

    def _rss(self, process: psutil.Process) -> int:
        try:
            with process.oneshot():
                times = process.cpu_times()
                self._cpu[process.pid, process.create_time()] = times.user + times.system
                return int(process.memory_info().rss)
        except psutil.Error:
            return 0

    def _others(self) -> float:
        """The cores that processes outside the tree kept busy, on average."""
        seconds = max(0.001, time.monotonic() - self._at)
        return max(0.0, (_busy() - self._busy - sum(self._cpu.values())) / seconds)


@contextlib.contextmanager
def watching(pid: int) -> Iterator[Watch]:
    watch = Watch(pid)
    try:
        yield watch
    finally:
        watch.close()


def _alive(root: psutil.Process) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        yield root
        yield from root.children(recursive=True)


def _name(process: psutil.Process) -> str:
    """What tells Spark's processes apart: the program and the module that it runs."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return "?"
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    return f"{Path(words[0]).name} {module}".strip() if words else "?"


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def _busy() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)
