"""Group commit: threads that append at the same time share one sync.

A thread that finds no other committing is the leader: it commits everything that is waiting. The
others get their answers from it, or lead the next group. A group that fails is committed again
item by item, so that one bad item does not fail the others.

A leader can be interrupted at any point, even while it hands over. So no thread relies on being
woken: a lock shows whether a leader is at work, and a thread that has waited for a while checks it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace.errors import LogError

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_LOOK = 0.1  # seconds after which a waiting thread checks for itself
_LEAST = 1.0  # seconds: the least patience with other threads of this process


def _locked() -> threading.Lock:
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
    woken: threading.Lock = field(default_factory=_locked)

    def wake(self) -> None:
        with suppress(RuntimeError):  # already awake
            self.woken.release()


class GroupCommit(Generic[Item, Answer]):
    """`harmless` tells of an error whether nothing was done, so that each item can be retried."""

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], Sequence[Answer]],
        harmless: Callable[[Exception], bool] = lambda _: True,
        patience: float = math.inf,
    ) -> None:
        self._commit = commit
        self._harmless = harmless
        self._patience = max(patience, _LEAST)
        self._waiting: list[_Ticket[Item, Answer]] = []
        self._queue = threading.Lock()  # held while `_waiting` changes
        self._leading = threading.Lock()  # held while a group is committed
        self._busy = False  # a hint: a thread leads, or is about to
        self._groups = 0  # committed so far
        self._last = 1  # items of the last group

    def run(self, item: Item) -> Answer:
        """The answer to `item`, committed alone or together with others."""
        ticket: _Ticket[Item, Answer] = _Ticket(item)
        try:
            with self._queue:
                self._waiting.append(ticket)
                ticket.leads = not self._busy
                self._busy = True
            if not ticket.leads:
                self._wait(ticket)
            if not ticket.done:
                ticket.leads = True
                with self._leading:
                    self._lead(ticket)
        except BaseException:  # interrupted while it waited: drop the item unless it has been begun
            with self._queue:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
            raise
        finally:
            if ticket.leads:
                self._hand_over()
        if ticket.answer is None:
            raise ticket.error or _interrupted()
        return ticket.answer

    def _wait(self, ticket: _Ticket[Item, Answer]) -> None:
        """Until the ticket is answered, or has to lead: it is its turn, or there is no leader."""
        groups, since = self._groups, time.monotonic()
        while not ticket.woken.acquire(timeout=_LOOK):
            if ticket.done or not self._leading.locked():
                return
            if groups != self._groups:
                groups, since = self._groups, time.monotonic()
            elif time.monotonic() - since > self._patience:
                with self._queue:
                    if ticket in self._waiting:
                        raise _stuck(self._patience)

    def _hand_over(self) -> None:
        with self._queue:
            self._busy = bool(self._waiting)
            if self._busy and not self._waiting[0].leads:
                self._waiting[0].leads = True
                self._waiting[0].wake()

    def _gather(self) -> list[_Ticket[Item, Answer]]:
        """All waiting tickets, after giving the threads of the last group a chance to return."""
        for _ in range(self._last - 1):
            if len(self._waiting) >= self._last:
                break
            time.sleep(0)
        with self._queue:
            tickets, self._waiting = self._waiting, []
        self._last = len(tickets)
        return tickets

    def _lead(self, own: _Ticket[Item, Answer]) -> None:
        """Commit all waiting tickets; the caller holds `_leading`."""
        if own.done:
            return
        if own not in self._waiting:  # the leader that took it was interrupted
            own.done = True
            return
        tickets = self._gather()
        try:
            self._answer(tickets)
        except BaseException:
            for ticket in tickets:
                if ticket is not own and not ticket.done:
                    ticket.error = _interrupted()
            raise
        finally:
            self._groups += 1
            for ticket in tickets:
                ticket.done = True
                if ticket is not own:
                    ticket.wake()

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
        "HR-LOG-018",
        "the thread that committed this append together with its own was interrupted",
        "It may appear as a whole, or not at all. With the same producer "
        "and sequence it can be appended again; else look for its records first.",
    )


def _stuck(patience: float) -> LogError:
    return LogError(
        "HR-LOG-016",
        f"another thread of this process has been committing for longer than {patience:g} s",
        "Nothing was appended. See what the disk does, and append again. "
        "EmbeddedLog(..., patience=...) says how long to wait.",
    )
