"""Leaves word in the job's folder of how a run is doing: a thread, about once a second.

Spark may not answer, so what it is asked for has a thread's whole patience and no more: the run
does not wait for it, and nothing that fails here is the run's failure.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headrace.clock import SystemClock
from headrace.engine.processes import descendants, process_start, proportional, resident
from headrace.inspect.live import RUN, Live, write_live

_EVERY = 1.0  # seconds
_SELDOM = 5  # notes: what costs more is looked at as seldom


@dataclass(frozen=True, slots=True)
class Said:
    """What the run itself has to say."""

    state: str
    epoch: int
    warnings: tuple[str, ...]
    stalled: str | None


class LiveNotes:
    def __init__(
        self, folder: str, spark: Any, ask: Callable[[], Said], query: Callable[[], Any]
    ) -> None:
        self._folder, self._spark, self._ask, self._query = folder, spark, ask, query
        self._pid, self._over = os.getpid(), threading.Event()
        self._started = process_start(self._pid)
        self._jvm: int | None = None  # its pid
        self._memory: Mapping[str, int | None] = {}
        self._gc: int | None = None
        self._writing = threading.Lock()

    def begin(self) -> None:
        threading.Thread(target=self._work, name="headrace-live", daemon=True).start()

    def close(self, state: str) -> None:
        """The last note; none follows."""
        self._over.set()
        with suppress(Exception), self._writing:
            self._write({}, state)

    def _work(self) -> None:
        turn = 0
        while not self._over.is_set():
            with suppress(Exception):  # Spark may be gone, and the run says so itself
                if turn % _SELDOM == 0:
                    self._look()
                phases = self._phases()
                with self._writing:
                    if not self._over.is_set():
                        self._write(phases)
            turn += 1
            self._over.wait(_EVERY)

    def _write(self, phases: Mapping[str, float], state: str | None = None) -> None:
        said = self._ask()
        live = Live(
            time=SystemClock().now(),
            pid=self._pid,
            started=self._started,
            state=state or said.state,
            epoch=said.epoch,
            warnings=said.warnings,
            stalled=said.stalled,
            phases=phases,
            memory=self._memory,
            gc_ms=self._gc,
            run=os.environ.get(RUN),
        )
        write_live(self._folder, live)

    def _phases(self) -> Mapping[str, float]:
        progress = self._query().lastProgress
        return dict(progress["durationMs"]) if progress else {}

    def _look(self) -> None:
        """At memory and at what the JVM has collected."""
        java = self._spark.sparkContext._jvm.java
        if self._jvm is None:
            self._jvm = int(java.lang.ProcessHandle.current().pid())
        beans = java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
        self._gc = sum(int(beans.get(i).getCollectionTime()) for i in range(beans.size()))
        runtime = java.lang.Runtime.getRuntime()
        workers = [proportional(p) for p in descendants(self._pid) if p != self._jvm]
        known = [size for size in workers if size is not None]
        driver = resident(self._pid)
        self._memory = {
            "driver": driver,
            "jvm": resident(self._jvm),
            "jvm_heap": int(runtime.totalMemory()) - int(runtime.freeMemory()),
            "workers": None if driver is None else sum(known),
        }
