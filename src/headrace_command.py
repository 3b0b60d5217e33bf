"""The command `headrace`, from its first moment: a signal ends it in words even while it imports.

Beside the package and not in it, because Python imports a package before any module of it.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    known = {n: signal.getsignal(n) for n in _STOPPING}
    for number in (n for n, handler in known.items() if handler is not signal.SIG_IGN):
        signal.signal(number, _leave)
    from headrace.cli.app import main as command

    if sys.argv[1:2] != ["run"]:  # which says how it was stopped, to its end
        for number, handler in known.items():
            signal.signal(number, handler)
    try:
        command()
    finally:
        for number in _STOPPING:  # it ends: what it has started ends with it, undisturbed
            signal.signal(number, signal.SIG_IGN)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, f"headrace: stopped by {signal.Signals(number).name} before it began\n".encode())
    os._exit(0)


if __name__ == "__main__":
    main()
