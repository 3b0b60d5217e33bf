"""Inputs that wait for a server: reported once, then at intervals, and when they go on.

The processes that read say so in the job's folder; this is how a run finds out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from headrace.sources import Source

EVERY = 60.0  # seconds between two reports of the same


class WaitingInputs:
    def __init__(self, sources: Mapping[str, Source], say: Callable[[str], None]) -> None:
        self._sources, self._say = sources, say
        self._reported: dict[str, float] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What each input waits for now."""
        found = ((name, source.waiting) for name, source in self._sources.items())
        return tuple(f"input {name!r} waits: {text}" for name, text in found if text)

    def report(self) -> None:
        """Say what is new about it."""
        now = time.monotonic()
        for name, source in self._sources.items():
            text, last = source.waiting, self._reported.get(name)
            if text is None and last is not None:
                del self._reported[name]
                self._say(f"input {name!r} goes on")
            elif text is not None and (last is None or now - last >= EVERY):
                self._reported[name] = now
                self._say(f"WARNING: input {name!r} waits: {text}")
