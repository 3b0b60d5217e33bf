"""`headrace run --restart`: a job in a process of its own, which is started again when it fails.

What came of a process decides:

    0         it has ended, or was stopped as asked: so ends this
    1, 2      the program, its data, its folder or the command line must be changed first
    75        something around it failed that may pass by itself: a broker, a database, a disk
    a signal  it was killed, for want of memory perhaps

After the last two it is started again, later each time, until a batch is committed; ten failures
in a row without one are the end. The child has a process group of its own, so that Ctrl-C in a
terminal reaches it once, from here; it is asked to stop if this process is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from headrace.engine.interrupts import acting

MAY_PASS = 75  # EX_TEMPFAIL
FAILURES = 10  # in a row, without a batch that was committed between two of them
FIRST_PAUSE = {"killed": 1.0, "failed": 5.0}  # seconds
LONGEST_PAUSE = 60.0
FIRST_START_ONLY = ("--take-over", "--go-back")  # they are for the state that was met
# The command, in a process that gets SIGTERM (15) when its parent dies, where that can be had.
_CHILD = """
import ctypes, sys
from headrace_command import main
system = ctypes.CDLL(None)
if hasattr(system, "prctl"):
    system.prctl(1, 15)
sys.argv[0] = "headrace"
main()
"""

# Causes that nobody has to mend in the program or its folder.
PASSING = frozenset(
    (
        *("HR-RUN-001", "HR-RUN-003", "HR-RUN-006", "HR-RUN-007", "HR-RUN-012"),
        *("HR-INPUT-015", "HR-INPUT-062", "HR-INPUT-063", "HR-SPARK-003"),
        *("HR-OUTPUT-003", "HR-OUTPUT-009", "HR-OUTPUT-062", "HR-OUTPUT-082"),
        *("HR-LOG-010", "HR-LOG-016", "HR-LOG-018", "HR-LOG-029"),
        *("HR-KAFKA-001", "HR-KAFKA-010", "HR-KAFKA-032", "HR-KAFKA-037", "HR-KAFKA-050"),
        *("HR-SQL-002", "HR-SQL-010", "HR-LAKE-001", "HR-LAKE-005", "HR-LAKE-010"),
        *("HR-MQTT-002", "HR-MQTT-003", "HR-HTTP-004", "HR-HTTP-006"),
    )
)


def command_of(arguments: Sequence[str]) -> list[str]:
    """`headrace` with these arguments."""
    return [sys.executable, "-P", "-c", _CHILD, *arguments]


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
                if code in (0, 1, 2) or self._stopping.is_set():
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
        how = "killed" if code < 0 else "failed"
        pause = min(FIRST_PAUSE[how] * 2 ** (failures - 1), LONGEST_PAUSE)
        what = f"killed by {signal.Signals(-code).name}" if code < 0 else f"failed, with {code}"
        self._say(
            f"{what}; starting again in {pause:g} s (failure {failures} of at most {FAILURES} "
            "in a row without a new batch)"
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
