"""What inputs do that users should know: wait for a server, or listen for clients.

The processes that read say so in the job's folder; this is how a run finds out. Waiting is
reported once, then at intervals, and when an input goes on; an address once.
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
        self._before = {name: source.listens_at for name, source in sources.items()}
        self._listening: dict[str, str] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What each input waits for now."""
        found = ((name, source.waiting) for name, source in self._sources.items())
        return tuple(f"input {name!r} waits: {text}" for name, text in found if text)

    @property
    def addresses(self) -> dict[str, str]:
        """By input: where it listens, since this run began."""
        found = {name: source.listens_at for name, source in self._sources.items()}
        return {n: at[0] for n, at in found.items() if at is not None and at != self._before[n]}

    def report(self) -> None:
        """Say what is new about it."""
        for name, at in self.addresses.items():
            if self._listening.get(name) != at:
                self._listening[name] = at
                self._say(f"input {name!r} listens on {at}")
        now = time.monotonic()
        for name, source in self._sources.items():
            text, last = source.waiting, self._reported.get(name)
            if text is None and last is not None:
                del self._reported[name]
                self._say(f"input {name!r} goes on")
            elif text is not None and (last is None or now - last >= EVERY):
                self._reported[name] = now
                self._say(f"WARNING: input {name!r} waits: {text}")
