"""`headrace run --restart`: a job in a process of its own, which is started again when it fails.

What came of a process decides (`restarts.py`). The child has a process group of its own, so that
Ctrl-C in a terminal reaches it once, from here; it is asked to stop if this process is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from headrace.engine.interrupts import acting
from headrace.restarts import FAILURES, FIRST_START_ONLY, ending_of, is_final, pause_after


class Supervisor:
    """Runs a command again and again; `epoch` says how far its job is."""

    def __init__(
        self, name: str, command: Sequence[str], epoch: Callable[[], int], pace: float = 1.0
    ) -> None:
        self._name, self._command, self._epoch = name, list(command), epoch
        self._pace = pace  # a factor of all pauses
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()

    def run(self) -> int:
        """The exit code: 0, or that of the last process; 128 and the signal if it was killed."""
        failures, code = 0, 0
        with acting(self._stop):
            while not self._stopping.is_set():
                before = self._epoch()
                code = self._once()
                if is_final(code) or self._stopping.is_set():
                    break
                if self._epoch() > before:
                    failures = 0
                    self._command = [a for a in self._command if a not in FIRST_START_ONLY]
                failures += 1
                if failures >= FAILURES:
                    self._say(f"gave up after {failures} failures in a row without a new batch")
                    break
                self._pause(code, failures)
        if code < 0:
            return 0 if self._stopping.is_set() else 128 - code
        return code

    def _once(self) -> int:
        self._child = subprocess.Popen(self._command, process_group=0)
        if self._stopping.is_set():  # it was asked before there was anybody to pass that on to
            self._signal(signal.SIGTERM)
        while True:
            with suppress(subprocess.TimeoutExpired):
                return self._child.wait(1.0)

    def _pause(self, code: int, failures: int) -> None:
        pause = pause_after(code, failures)
        self._say(
            f"{ending_of(code)}; starting again in {pause:g} s (failure {failures} of at most "
            f"{FAILURES} in a row without a new batch)"
        )
        self._stopping.wait(pause * self._pace)

    def _stop(self, number: int) -> None:
        self._stopping.set()
        self._signal(number)

    def _signal(self, number: int) -> None:
        child = self._child
        if child is not None and child.poll() is None:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    def _say(self, what: str) -> None:
        with suppress(OSError):
            os.write(2, f"{self._name}: {what}\n".encode())
