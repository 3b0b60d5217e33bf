"""Group commit: threads that append at the same time share one sync.

Whoever comes first leads and commits everything that is waiting; the others find their
answer ready, or lead the next group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(slots=True, eq=False)
class _Ticket(Generic[Item, Answer]):
    item: Item
    answer: Answer | None = None
    error: BaseException | None = None
    done: bool = False


class Group(Generic[Item, Answer]):
    def __init__(self, commit: Callable[[Sequence[Item]], Sequence[Answer]]) -> None:
        self._commit = commit
        self._waiting: list[_Ticket[Item, Answer]] = []
        self._queue = threading.Lock()
        self.leading = threading.Lock()  # held by whoever commits

    def run(self, item: Item) -> Answer:
        """The answer to `item`, committed alone or together with others."""
        ticket: _Ticket[Item, Answer] = _Ticket(item)
        with self._queue:
            self._waiting.append(ticket)
        with self.leading:
            if not ticket.done:
                self._lead(ticket)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.answer is not None
        return ticket.answer

    def _lead(self, own: _Ticket[Item, Answer]) -> None:
        with self._queue:
            tickets, self._waiting = self._waiting, []
        try:
            answers = self._commit([ticket.item for ticket in tickets])
            for ticket, answer in zip(tickets, answers, strict=True):
                ticket.answer = answer
        except BaseException as error:
            for ticket in tickets:  # an interrupt is for the leader alone
                passed = ticket is own or isinstance(error, Exception)
                ticket.error = error if passed else RuntimeError("the group was interrupted")
        finally:
            for ticket in tickets:
                ticket.done = True
