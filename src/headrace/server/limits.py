"""How much one client may ask: requests in a second, and wrong tokens.

A client is an address, as the connection has it. Numbers of clients are bounded: the one that was
silent longest is forgotten. Times are those of a clock that is passed in, and never goes back.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server allows; the page of a job asks for about five things in a second."""

    body: int = 1 << 20  # bytes
    rate: float = 200.0  # requests in a second, over time ...
    burst: int = 1_000  # ... and at once
    guesses: int = 5  # wrong tokens, each counted once, before the client has to wait
    longest_wait: float = 60.0  # seconds
    forgive: float = 900.0  # seconds without a wrong token after which they are forgotten
    clients: int = 10_000
    body_seconds: float = 30.0  # for a body to arrive


@dataclass(slots=True)
class _Visits:
    left: float
    seen: float
    wrong: set[bytes] = field(default_factory=set)
    until: float = 0.0  # before that no token is looked at
    waits: int = 0
    guessed: float = 0.0


class Clients:
    """What each client has asked lately."""

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits, self._now = limits, now
        self._clients: OrderedDict[str, _Visits] = OrderedDict()
        self._lock = threading.Lock()

    def request(self, address: str) -> float:
        """Count a request; how many seconds too early it is, 0 if it is allowed."""
        with self._lock:
            client, now = self._client(address), self._now()
            earned = (now - client.seen) * self._limits.rate
            client.left, client.seen = min(float(self._limits.burst), client.left + earned), now
            if client.left < 1:
                return (1 - client.left) / self._limits.rate
            client.left -= 1
            return 0.0

    def waits(self, address: str) -> float:
        """For how many seconds no token of this client is looked at, whatever it is."""
        with self._lock:
            return max(0.0, self._client(address).until - self._now())

    def wrong(self, address: str, token: str) -> None:
        """Count a wrong token. One that is sent again and again, as by a program that nobody has
        told of a new token, counts once: it is no guess, and should lock nobody out."""
        with self._lock:
            client, now = self._client(address), self._now()
            if now - client.guessed > self._limits.forgive:
                client.wrong, client.waits = set(), 0
            mark = hashlib.sha256(token.encode("utf-8", "backslashreplace")).digest()
            if mark in client.wrong:
                return
            client.guessed = now
            if len(client.wrong) < self._limits.guesses:
                client.wrong.add(mark)
            if len(client.wrong) == self._limits.guesses:
                wait = min(2.0**client.waits, self._limits.longest_wait)
                client.until, client.waits = now + wait, min(client.waits + 1, 30)

    def _client(self, address: str) -> _Visits:
        client = self._clients.get(address)
        if client is None:
            while len(self._clients) >= self._limits.clients:
                self._clients.popitem(last=False)
            client = _Visits(float(self._limits.burst), self._now())
            self._clients[address] = client
        self._clients.move_to_end(address)
        return client
