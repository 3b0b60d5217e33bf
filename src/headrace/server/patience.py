"""Connections that do not ask: closed after a while, the longest silent ones first when many wait.

uvicorn waits for ever for the lines before a body. Who opens connections and says nothing, or a
letter a minute, would take the places of all others, without a token.
"""

from __future__ import annotations

import asyncio

from headrace.server.refusals import missing

try:
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as cause:
    raise missing("uvicorn") from cause

CONNECTIONS = 512
HEAD_SECONDS = 10.0  # for the lines of a request to arrive
_FULL = CONNECTIONS * 3 // 4  # connections, from which on those that wait longest make room


class BoundedProtocol(H11Protocol):
    """A connection with a limit of time for each request to arrive."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > _FULL:
            waiting = [one for one in self.connections if isinstance(one, BoundedProtocol)]
            waiting = [one for one in waiting if one is not self and one._asks_nothing]
            if waiting:
                min(waiting, key=lambda one: one._late.when() if one._late else 0.0).give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    @property
    def _asks_nothing(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = self.loop.call_later(HEAD_SECONDS, self._is_late)

    def _is_late(self) -> None:
        if self._asks_nothing:
            self.give_up()

    def give_up(self) -> None:
        """Close it: nothing has been asked."""
        if not self.transport.is_closing():
            self.transport.abort()
