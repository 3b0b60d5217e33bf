"""When the process of a job is started again after it has ended, and how the command is begun.

What came of a process decides:

    0         it has ended, or was stopped as asked: nothing is left to do
    1, 2      the program, its data, its folder or the command line must be changed first
    75        something around it failed that may pass by itself: a broker, a database, a disk
    a signal  it was killed, for want of memory perhaps

After the last two it is started again, later each time, until a batch is committed; so many
failures in a row without one are the end. `headrace run --restart` and the server do the same.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

MAY_PASS = 75  # EX_TEMPFAIL
FAILURES = 10  # in a row, without a batch that was committed between two of them
LONGEST_PAUSE = 60.0
FIRST_START_ONLY = ("--take-over", "--go-back")  # they are for the state that was met
_FIRST_PAUSE = {"killed": 1.0, "failed": 5.0}  # seconds
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


def is_final(code: int) -> bool:
    """Whether a process that ended so is not to be started again; negative: by that signal."""
    return code in (0, 1, 2)


def pause_after(code: int, failures: int) -> float:
    """Seconds to wait after so many failures in a row, this one included."""
    first = _FIRST_PAUSE["killed" if code < 0 else "failed"]
    return float(min(first * 2 ** (failures - 1), LONGEST_PAUSE))


def ending_of(code: int) -> str:
    """How a process has ended, in words."""
    if code >= 0:
        return f"failed, with {code}"
    named = {int(known): known.name for known in signal.Signals}
    return f"killed by {named.get(-code, f'the signal {-code}')}"
