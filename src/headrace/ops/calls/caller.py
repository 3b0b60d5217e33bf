"""Calls of a user's function for each row, many at once: from chunk to chunk.

The outcome of a row is its answer, or the error of the last try. Where answers are cached, rows
with the same question share one call. Only the event loop's thread runs the calls.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import hidden_columns, visible
from headrace.clock import pretty
from headrace.isolate import rows_of_calls
from headrace.ops.calls.resource import wait_for, watch
from headrace.ops.contract import ChunkSpec
from headrace.ops.tables import side_by_side
from headrace.rows import own_copy, rows_of

_LONGEST_WAIT = 60.0  # seconds between two tries
_ONE = (str, bytes, Mapping, set, frozenset)  # iterable, but not an answer for each row, in order


@dataclass(frozen=True)
class CallOptions:
    """How calls are made; times in milliseconds."""

    concurrency: int = 16
    timeout: int | None = None
    retries: int = 0
    backoff: int = 100
    batch_size: int | None = None
    cache_ttl: int | None = None
    cache_on: tuple[str, ...] = ()
    cache_size: int = 10_000
    rate: float | None = None
    breaker: tuple[int, int] | None = None
    ordered: bool = True

    def __str__(self) -> str:
        words = [f"{self.concurrency} at a time"]
        words += [f"{self.batch_size} rows a call"] if self.batch_size else []
        words += [f"within {pretty(self.timeout)}"] if self.timeout else []
        words += [f"{self.retries} more tries"] if self.retries else []
        words += [f"at most {self.rate:g} a second"] if self.rate else []
        if self.breaker:
            words += [f"after {self.breaker[0]} failures none for {pretty(self.breaker[1])}"]
        words += [f"answers kept {pretty(self.cache_ttl)}"] if self.cache_ttl else []
        words += [] if self.ordered else ["in the order of the answers"]
        return ", ".join(words)


@dataclass(slots=True)
class Outcome:
    """The outcome of one row."""

    answer: Any = None
    error: BaseException | None = None
    turn: int = 0  # its place in the order in which calls ended


class Caller:
    """The calls of one step in one process."""

    def __init__(self, fn: Callable[..., Any], options: CallOptions) -> None:
        self._fn, self._options = fn, options
        self._rate = Rate(options.rate) if options.rate else None
        limit = options.breaker
        self._breaker = Breaker(limit[0], limit[1] / 1_000) if limit else None
        ttl = options.cache_ttl
        self._answers = AnswerCache(ttl / 1_000, options.cache_size) if ttl else None
        self._threads = None if _is_async(fn) else ThreadPoolExecutor(options.concurrency)

    async def ask(self, rows: Sequence[Any]) -> list[Outcome]:
        """The outcome of each row, in the order of the rows."""
        outcomes = [Outcome() for _ in rows]
        questions, leaders = self._cached(rows, outcomes)
        size = self._options.batch_size or 1
        units = iter([leaders[i : i + size] for i in range(0, len(leaders), size)])
        done = 0

        async def work() -> None:
            nonlocal done
            for unit in units:
                await self._unit([rows[i] for i in unit], [outcomes[i] for i in unit])
                for i in unit:
                    outcomes[i].turn = done = done + 1

        count = min(self._options.concurrency, -(-len(leaders) // size))
        await asyncio.gather(*(work() for _ in range(count)))
        if self._answers is not None:
            self._learn(questions, outcomes, leaders)
        return outcomes

    # cached answers

    def _cached(
        self, rows: Sequence[Any], outcomes: list[Outcome]
    ) -> tuple[list[Hashable], list[int]]:
        """The question of each row, and the first row of each question that must be asked."""
        if self._answers is None:
            return [], list(range(len(rows)))
        now = asyncio.get_running_loop().time()
        questions = [self._question(row) for row in rows]
        first: dict[Hashable, int] = {}
        for i, question in enumerate(questions):
            hit, answer = self._answers.get(question, now)
            if hit:
                outcomes[i].answer = answer
            else:
                first.setdefault(question, i)
        return questions, list(first.values())

    def _question(self, row: Any) -> Hashable:
        values = tuple(getattr(row, c) for c in self._options.cache_on) or tuple(row)
        try:
            hash(values)
        except TypeError:  # lists and dicts
            return repr(values)
        return values

    def _learn(
        self, questions: list[Hashable], outcomes: list[Outcome], leaders: list[int]
    ) -> None:
        assert self._answers is not None
        now = asyncio.get_running_loop().time()
        fresh = {questions[i]: outcomes[i] for i in leaders}
        for question, outcome in fresh.items():
            if outcome.error is None:
                self._answers.put(question, outcome.answer, now)
        for question, outcome in zip(questions, outcomes, strict=True):
            leader = fresh.get(question)
            if leader is not None and leader is not outcome:
                outcome.answer, outcome.error = leader.answer, leader.error
                outcome.turn = leader.turn

    # calls

    async def _unit(self, rows: list[Any], outcomes: list[Outcome]) -> None:
        try:
            answers = await self._tried(rows)
        except Exception as error:
            for outcome in outcomes:
                outcome.error = error
            return
        for outcome, answer in zip(outcomes, answers, strict=True):
            outcome.answer = own_copy(answer)  # the client may change it, and return it again

    async def _tried(self, rows: list[Any]) -> Sequence[Any]:
        for attempt in range(self._options.retries + 1):
            if attempt:
                wait = self._options.backoff / 1_000 * 2 ** (attempt - 1)
                await asyncio.sleep(min(wait, _LONGEST_WAIT))
            try:
                return await self._once(rows)
            except BrokenError:
                raise
            except Exception as error:
                last = error
        raise last

    async def _once(self, rows: list[Any]) -> Sequence[Any]:
        if self._breaker is not None:
            self._breaker.check()
        try:
            if self._rate is not None:
                await self._rate.turn()
            answers = await self._timed(rows)
        except BaseException:
            if self._breaker is not None:
                self._breaker.failed()
            raise
        if self._breaker is not None:
            self._breaker.worked()
        return answers

    async def _timed(self, rows: list[Any]) -> Sequence[Any]:
        limit = self._options.timeout
        if limit is None:
            return await self._called(rows)
        try:
            async with asyncio.timeout(limit / 1_000) as waiting:
                return await self._called(rows)
        except TimeoutError as error:
            if not waiting.expired():
                raise
            raise TimeoutError(f"no answer within {pretty(limit)}") from error

    async def _called(self, rows: list[Any]) -> Sequence[Any]:
        argument = list(rows) if self._options.batch_size else rows[0]  # the list is the function's
        if self._threads is not None:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._threads, self._fn, argument)
        else:
            answer = await self._fn(argument)
        if inspect.isawaitable(answer):  # of a lambda around an async function
            answer = await answer
        if not self._options.batch_size:
            return [answer]
        if not isinstance(answer, Iterable) or isinstance(answer, _ONE):
            kind = type(answer).__name__
            raise TypeError(f"{len(rows)} rows were asked for a list of answers, and {kind} came")
        answers = list(answer)
        if len(answers) != len(rows):
            raise ValueError(f"{len(rows)} rows were asked, and {len(answers)} answers came")
        return answers


def _is_async(fn: Any) -> bool:
    """Whether a function, a partial of one, or an object that can be called is async."""
    inner = getattr(fn, "func", fn)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(fn).__call__)


# Limits of calls: a rate, a circuit breaker, and a cache of answers.
#
# Each belongs to one step in one process, and lives on from chunk to chunk. Time is the event
# loop's own, which never goes back.


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


class AnswerCache:
    """Answers by question, the last `size` of them, each for `ttl` seconds."""

    def __init__(self, ttl: float, size: int) -> None:
        self._ttl, self._size = ttl, size
        self._answers: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, question: Hashable, now: float) -> tuple[bool, Any]:
        """Whether there is an answer, and the answer."""
        until, answer = self._answers.get(question, (now, None))
        if until <= now:
            return False, None
        self._answers.move_to_end(question)
        return True, answer

    def put(self, question: Hashable, answer: Any, now: float) -> None:
        self._answers[question] = (now + self._ttl, answer)
        self._answers.move_to_end(question)
        while len(self._answers) > self._size:
            self._answers.popitem(last=False)


# The step itself. Its threads, cached answers and failure counts belong to the process; they are
# found by the step's own id, because a program is unpickled anew in each worker.


Lost = list[tuple[int, BaseException]]
_callers: dict[tuple[int, str], Caller] = {}


@dataclass(frozen=True, eq=False)
class AsyncCalls(ChunkSpec):
    fn: Callable[..., Any]
    options: CallOptions
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    kind = "map_async"

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.fn,)

    def __str__(self) -> str:
        return str(self.options)

    def run(self, chunk: pa.Table, schema: pa.Schema) -> tuple[pa.Table, Lost]:
        """The answers as rows; the rows that failed with the error of their last try."""
        watch()
        rows = rows_of(visible(chunk))
        outcomes = wait_for(self._caller().ask(rows)) if rows else []
        lost: Lost = [(i, o.error) for i, o in enumerate(outcomes) if o.error is not None]
        returned = [i for i, o in enumerate(outcomes) if o.error is None]
        if not self.options.ordered:
            returned.sort(key=lambda i: outcomes[i].turn)
        values, of = rows_of_calls(
            returned,
            lambda i: [outcomes[i].answer],
            schema,
            lambda number, error: lost.append((returned[number], error)),
        )
        answered = np.array(returned, np.int64)[of]
        hidden = chunk.select(hidden_columns(chunk)).take(pa.array(answered))
        return side_by_side(values, hidden), sorted(lost, key=lambda pair: pair[0])

    def _caller(self) -> Caller:
        place = (os.getpid(), self.id)
        if place not in _callers:
            _callers[place] = Caller(self.fn, self.options)
        return _callers[place]
