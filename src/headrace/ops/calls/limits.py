"""What keeps calls in bounds: a rate, a breaker, and answers that are known already.

Each belongs to one step in one process, and lives on from chunk to chunk. Time is the event
loop's own, which never goes back.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

Now = Callable[[], float]


class BrokenError(Exception):
    """A call that was not made: too many before it failed."""


class Rate:
    """Calls begin at least 1/rate seconds apart."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1 / per_second
        self._next = 0.0

    async def turn(self) -> None:
        now = asyncio.get_running_loop().time()
        at = max(now, self._next)
        self._next = at + self._gap
        if at > now:
            await asyncio.sleep(at - now)


class Breaker:
    """After `most` failures in a row calls fail at once, for `pause` seconds; then one is tried."""

    def __init__(self, most: int, pause: float, now: Now | None = None) -> None:
        self._most, self._pause, self._now = most, pause, now
        self._failures, self._until, self._trying = 0, 0.0, False

    def check(self) -> None:
        if self._failures < self._most:
            return
        if self._trying or self._time() < self._until:
            raise BrokenError(f"not called: {self._failures} calls in a row have failed")
        self._trying = True

    def worked(self) -> None:
        self._failures, self._trying = 0, False

    def failed(self) -> None:
        self._failures, self._trying = self._failures + 1, False
        self._until = self._time() + self._pause

    def _time(self) -> float:
        return self._now() if self._now else asyncio.get_running_loop().time()


class Answers:
    """Known answers by what was asked, the last `size` of them, each for `ttl` seconds."""

    def __init__(self, ttl: float, size: int) -> None:
        self._ttl, self._size = ttl, size
        self._known: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, asked: Hashable, now: float) -> tuple[bool, Any]:
        """Whether the answer is known, and the answer."""
        until, answer = self._known.get(asked, (now, None))
        if until <= now:
            return False, None
        self._known.move_to_end(asked)
        return True, answer

    def put(self, asked: Hashable, answer: Any, now: float) -> None:
        self._known[asked] = (now + self._ttl, answer)
        self._known.move_to_end(asked)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
