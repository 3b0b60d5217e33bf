"""Group commit: threads that append at the same time share one sync.

Whoever finds nobody committing leads, and commits everything that is waiting; the others find
their answer ready, or lead the next group. A group that fails is committed once more item by
item, so that nobody fails for another's sake.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace.errors import LogError

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def _closed() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class _Ticket(Generic[Item, Answer]):
    item: Item
    answer: Answer | None = None
    error: BaseException | None = None
    done: bool = False
    leads: bool = False
    woken: threading.Lock = field(default_factory=_closed)


class Group(Generic[Item, Answer]):
    """`harmless` says of an error that nothing was done, so that each may be tried alone."""

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], Sequence[Answer]],
        harmless: Callable[[Exception], bool] = lambda _: True,
    ) -> None:
        self._commit = commit
        self._harmless = harmless
        self._waiting: list[_Ticket[Item, Answer]] = []
        self._queue = threading.Lock()
        self._busy = False
        self._last = 1  # how many the last group had

    def run(self, item: Item) -> Answer:
        """The answer to `item`, committed alone or together with others."""
        ticket: _Ticket[Item, Answer] = _Ticket(item)
        with self._queue:
            self._waiting.append(ticket)
            ticket.leads = not self._busy
            self._busy = True
        try:
            if not ticket.leads:
                ticket.woken.acquire()
            if not ticket.done:
                self._lead(ticket)
        except BaseException:  # interrupted while it waited: what nobody has begun is dropped
            with self._queue:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
            raise
        finally:
            if ticket.leads:
                self._hand_over()
        if ticket.error is not None:
            raise ticket.error
        assert ticket.answer is not None
        return ticket.answer

    def _hand_over(self) -> None:
        with self._queue:
            self._busy = bool(self._waiting)
            if self._busy:
                self._waiting[0].leads = True
                self._waiting[0].woken.release()

    def _gather(self) -> list[_Ticket[Item, Answer]]:
        """Those who wait, once the threads of the last group had a turn to come back."""
        for _ in range(self._last - 1):
            if len(self._waiting) >= self._last:
                break
            time.sleep(0)
        with self._queue:
            tickets, self._waiting = self._waiting, []
        self._last = len(tickets)
        return tickets

    def _lead(self, own: _Ticket[Item, Answer]) -> None:
        tickets = self._gather()
        try:
            self._answer(tickets)
        except BaseException:
            for ticket in tickets:
                if ticket is not own and not ticket.done:
                    ticket.error = _interrupted()
            raise
        finally:
            for ticket in tickets:
                ticket.done = True
                if ticket is not own:
                    ticket.woken.release()

    def _answer(self, tickets: Sequence[_Ticket[Item, Answer]]) -> None:
        try:
            answers = self._commit([ticket.item for ticket in tickets])
            for ticket, answer in zip(tickets, answers, strict=True):
                ticket.answer, ticket.done = answer, True
        except Exception as error:
            alone = len(tickets) > 1 and self._harmless(error)
            for ticket in tickets:
                if alone:
                    self._answer([ticket])
                else:
                    ticket.error, ticket.done = error, True


def _interrupted() -> LogError:
    return LogError(
        "the thread that committed this append together with its own was interrupted",
        code="HR-LOG-018", hint="It may appear as a whole, or not at all. With the same producer "
        "and sequence it can be appended again; else look for its records first.",
    )  # fmt: skip
