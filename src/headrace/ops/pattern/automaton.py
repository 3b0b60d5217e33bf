"""A pattern as an automaton: which row may follow which, and what may come between.

Loops with counts are unrolled, so the last state alone says where a partial match is. A
transition says all about one step: what the row must be and not be (`bars`), what ends the
waiting for it (`link`, `negs`, `stops`), and which other transitions of the same state forbid it
as long as they are possible (`blockers`: a greedy loop goes on). `guards` are about the first row
after the state only, so a state with guards has one more bit, `fresh`, which every row clears. An
automaton is a value; it knows no rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import refusal
from headrace.expr import Expr
from headrace.ops.pattern.parts import (
    ANY,
    NEXT,
    THEN,
    Condition,
    EitherPart,
    GroupPart,
    Part,
    RepeatPart,
    RowPart,
    WithoutPart,
    rows_in,
)
from headrace.ops.pattern.pattern import Pattern

START, ACCEPT = -1, -2
_EDGES = 62  # of one state: they are stored as the bits of a number


@dataclass(frozen=True, slots=True, eq=False)
class RowTest:
    """A condition: the bit of its expression (0: none, so it may hold), and functions."""

    mask: int
    functions: tuple[Callable[[Any, Any], Any], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class NextRowGuard:
    """What the next row must not be."""

    name: str
    test: RowTest


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    target: int  # a state, or ACCEPT
    link: str
    take: RowTest | None
    negs: tuple[RowTest, ...]
    stops: tuple[RowTest, ...]  # `until` of the loops that the edge stays in: such a row ends it
    bars: tuple[RowTest, ...]  # `until` of the loops that the edge enters: such a row is not taken
    blockers: tuple[int, ...]  # edges of the same state
    guards: tuple[NextRowGuard, ...] = ()
    limit: int | None = None  # less than so many ms from the last row to the next

    @property
    def accepts(self) -> bool:
        return self.target == ACCEPT


@dataclass(frozen=True, slots=True, eq=False)
class AutomatonState:
    """Where a partial match is: the row it took last, and how it may go on."""

    name: str
    edges: tuple[Transition, ...]
    steps: int  # the edges that take a row, as bits
    strict: int  # those that the next row ends in any case
    waiting: int  # those that accept later, when nothing forbids it any more
    accepts: bool  # it is a match at once
    watch: int  # the bits of a row that matter
    always: bool  # every row may matter
    has_functions: bool  # a condition of an edge is a function
    fresh: int = 0  # the bit that says that no row has come since
    limits: tuple[tuple[int, int], ...] = ()  # edges, as bits, and the ms after which they end

    @property
    def all(self) -> int:
        return self.steps | self.waiting | self.fresh


@dataclass(frozen=True, slots=True, eq=False)
class Automaton:
    states: tuple[AutomatonState, ...]
    start: AutomatonState
    names: tuple[str, ...]
    span: int | None
    skip: Any
    ending: int | None  # ms without the ending's row; None if there is no such ending
    by_span: bool  # that ending lasts as long as the pattern may
    absent: str | None = None  # the name of the ending's row

    @property
    def ignores_unmatched(self) -> bool:
        """Whether rows without any bit change nothing."""
        every = (self.start, *self.states)
        return not any(p.always or p.strict for p in every)

    @property
    def limited(self) -> bool:
        """Whether there is a time between two successive rows."""
        return any(state.limits for state in self.states)


@dataclass(slots=True)
class RowTests:
    """The expressions of some patterns, each numbered once."""

    exprs: dict[str, Expr] = field(default_factory=dict)

    def of(self, condition: Condition) -> RowTest:
        if condition.expr is None:
            return RowTest(0, condition.functions)
        text = condition.expr.sql()
        number = list(self.exprs).index(text) if text in self.exprs else len(self.exprs)
        self.exprs.setdefault(text, condition.expr)
        return RowTest(1 << number, condition.functions)


@dataclass(frozen=True, slots=True)
class _Exit:
    """From where the next part may be entered, and what holds on the way."""

    state: int
    link: str = THEN
    owner: int | None = None  # the part that set the link; a part inside does not set it again
    negs: tuple[RowTest, ...] = ()
    goes_on: frozenset[int] = frozenset()  # the greedy choices that this way takes
    unless: frozenset[int] = frozenset()  # the greedy choices that this way leaves
    guards: tuple[NextRowGuard, ...] = ()
    limit: int | None = None  # set together with the link


@dataclass(frozen=True, slots=True)
class _DraftTransition:
    entry: _Exit
    target: int
    take: RowTest | None
    stops: tuple[RowTest, ...] = ()
    bars: tuple[RowTest, ...] = ()


@dataclass(frozen=True, slots=True)
class _OpenLoop:
    """A loop with `until` that is being built."""

    number: int
    first: int  # its first state
    until: RowTest

    def holds(self, state: int) -> bool:
        """Whether a way from there begins inside the loop."""
        return state >= self.first or state <= _back(self.number)


def compiled(pattern: Pattern, tests: RowTests) -> Automaton:
    """The automaton of a pattern whose conditions are known."""
    builder = _Builder(tests)
    exits = builder.part(pattern.group, [_Exit(START)])
    ending = pattern.ending
    negs = () if ending is None else (tests.of(ending.where),)
    for entry in exits:
        end = replace(entry, link=ANY, limit=None, negs=(*entry.negs, *negs))
        builder.drafts.append(_DraftTransition(end, ACCEPT, None))
    names = tuple(dict.fromkeys(name for name, _ in rows_in(pattern.group)))
    states = tuple(builder.state(i, ending is not None) for i in range(len(builder.names)))
    length = None if ending is None else ending.length or pattern.span
    return Automaton(
        states,
        builder.state(START, False),
        names,
        pattern.span,
        pattern.skip,
        length,
        by_span=ending is not None and ending.length is None,
        absent=None if ending is None else ending.name,
    )


class _Builder:
    def __init__(self, tests: RowTests) -> None:
        self._tests, self._count = tests, 0
        self._loops: list[_OpenLoop] = []  # those with `until` around what is being built
        self.names: list[str] = []
        self.drafts: list[_DraftTransition] = []

    def part(self, part: Part, entries: list[_Exit]) -> list[_Exit]:
        """Add a part that is entered by these ways; the ways out of it."""
        match part:
            case RowPart():
                return self._row(part, entries)
            case EitherPart(parts=parts):
                return [entry for one in parts for entry in self.part(one, entries)]
            case GroupPart():
                return self._group(part, entries)
            case RepeatPart():
                return self._repeat(part, entries)

    def _row(self, row: RowPart, entries: list[_Exit]) -> list[_Exit]:
        target, take = len(self.names), self._tests.of(row.where)
        self.names.append(row.name)
        for entry in entries:
            stops = tuple(loop.until for loop in self._loops if loop.holds(entry.state))
            bars = tuple(loop.until for loop in self._loops if not loop.holds(entry.state))
            self.drafts.append(_DraftTransition(entry, target, take, stops, bars))
        return [_Exit(target)]

    def _group(self, group: GroupPart, entries: list[_Exit]) -> list[_Exit]:
        group_id = self._new_id()
        for item in group.items:
            if isinstance(item.part, WithoutPart):
                entries = self._forbidden(item.part, entries)
                continue
            entered = [_linked(entry, item.link, item.limit, group_id) for entry in entries]
            entries = self.part(item.part, entered)
        return [_released(entry, group_id) for entry in entries]

    def _forbidden(self, part: WithoutPart, entries: list[_Exit]) -> list[_Exit]:
        test = self._tests.of(part.where)
        if part.directly:
            guard = NextRowGuard(part.name, test)
            return [replace(entry, guards=(*entry.guards, guard)) for entry in entries]
        return [replace(entry, negs=(*entry.negs, test)) for entry in entries]

    def _repeat(self, loop: RepeatPart, entries: list[_Exit]) -> list[_Exit]:
        loop_id = self._new_id()
        if loop.until is not None:
            self._loops.append(_OpenLoop(loop_id, len(self.names), self._tests.of(loop.until)))
        entries = self._rounds(loop, entries, loop_id)
        if loop.until is not None:
            self._loops.pop()
        return [_released(entry, loop_id) for entry in entries]

    def _rounds(self, loop: RepeatPart, entries: list[_Exit], loop_id: int) -> list[_Exit]:
        exits = list[_Exit]()
        rounds = max(loop.low, 1) if loop.high is None else loop.high
        for round_number in range(rounds):
            if round_number:
                entries = [_linked(entry, loop.by, loop.limit, loop_id) for entry in entries]
            if round_number >= loop.low:
                leave, entries = self._choice(entries, loop.greedy)
                exits += leave
            back = [_Exit(_back(loop_id), loop.by, loop_id, limit=loop.limit)]
            endless = loop.high is None and round_number == rounds - 1
            entries = self.part(loop.part, [*entries, *back] if endless else entries)
        if loop.high is None:
            self._close(_back(loop_id), entries, choice := self._new_id())
            if loop.greedy:
                entries = [replace(entry, unless=entry.unless | {choice}) for entry in entries]
        return [*exits, *entries]

    def _choice(self, entries: list[_Exit], greedy: bool) -> tuple[list[_Exit], list[_Exit]]:
        """The loop may end or go on here; if greedy, it ends only if it cannot go on."""
        if not greedy:
            return entries, entries
        choice = self._new_id()
        leave = [replace(entry, unless=entry.unless | {choice}) for entry in entries]
        return leave, [replace(entry, goes_on=entry.goes_on | {choice}) for entry in entries]

    def _close(self, back: int, entries: list[_Exit], choice: int) -> None:
        """What leads into the last round leads there from its own end, too."""
        into_loop = [draft for draft in self.drafts if draft.entry.state == back]
        self.drafts = [draft for draft in self.drafts if draft.entry.state != back]
        for entry in entries:
            for draft in into_loop:
                through = replace(
                    draft.entry,
                    state=entry.state,
                    negs=(*entry.negs, *draft.entry.negs),
                    guards=(*entry.guards, *draft.entry.guards),
                    goes_on=draft.entry.goes_on | {choice},
                    unless=draft.entry.unless | entry.unless,
                )
                self.drafts.append(replace(draft, entry=through))

    def _new_id(self) -> int:
        self._count += 1
        return self._count

    def state(self, number: int, ending: bool) -> AutomatonState:
        own = [draft for draft in self.drafts if draft.entry.state == number]
        own.sort(key=lambda draft: draft.target)
        if len(own) > _EDGES:
            raise refusal(
                "HR-PATTERN-027",
                f"the pattern goes on in more than {_EDGES} ways from one row",
                "Use fewer optional parts one after the other.",
            )
        if number == START:  # nothing comes before the first row
            own = [replace(draft, entry=_first(draft.entry)) for draft in own]
        edges = tuple(_edge(draft, own) for draft in own)
        at_once = not ending and any(e.accepts and _waits_for_nothing(e) for e in edges)
        later = 0 if at_once else _bits(edges, lambda e: e.accepts)
        steps = _bits(edges, lambda e: not e.accepts)
        guarded = _bits(edges, lambda e: bool(e.guards)) & (steps | later)
        fresh = 1 << len(edges) if guarded else 0
        tests = [t for e in edges for t in _tests(e)]
        return AutomatonState(
            name=self.names[number] if number >= 0 else "",
            edges=edges,
            steps=steps,
            strict=_bits(edges, lambda e: e.link == NEXT) | fresh,
            waiting=later,
            accepts=at_once,
            watch=_union(tests),
            always=any(not t.mask for t in tests),
            has_functions=any(t.functions for t in tests),
            fresh=fresh,
            limits=_limits(edges),
        )


def _first(entry: _Exit) -> _Exit:
    return replace(entry, link=THEN, limit=None, negs=(), guards=())


def _waits_for_nothing(edge: Transition) -> bool:
    return not (edge.blockers or edge.negs or edge.guards)


def _tests(edge: Transition) -> list[RowTest]:
    guards = (guard.test for guard in edge.guards)
    every = (edge.take, *edge.negs, *edge.stops, *edge.bars, *guards)
    return [test for test in every if test is not None]


def _limits(edges: tuple[Transition, ...]) -> tuple[tuple[int, int], ...]:
    by_length: dict[int, int] = {}
    for i, edge in enumerate(edges):
        if edge.limit is not None:
            by_length[edge.limit] = by_length.get(edge.limit, 0) | 1 << i
    return tuple((bits, length) for length, bits in sorted(by_length.items()))


def _edge(draft: _DraftTransition, every: list[_DraftTransition]) -> Transition:
    entry = draft.entry
    blockers = tuple(i for i, other in enumerate(every) if other.entry.goes_on & entry.unless)
    return Transition(
        draft.target,
        entry.link,
        draft.take,
        entry.negs,
        draft.stops,
        draft.bars,
        blockers,
        entry.guards,
        entry.limit,
    )


def _back(loop: int) -> int:
    """Stands for the end of a loop's last round while that is being built."""
    return -10 - loop


def _linked(entry: _Exit, link: str, limit: int | None, owner: int) -> _Exit:
    """By this link and within this time, unless a part around it has set them."""
    if entry.owner not in (None, owner):
        return entry
    return replace(entry, link=link, limit=limit, owner=owner)


def _released(entry: _Exit, owner: int) -> _Exit:
    return replace(entry, owner=None) if entry.owner == owner else entry


def _bits(edges: tuple[Transition, ...], which: Callable[[Transition], bool]) -> int:
    return sum(1 << i for i, edge in enumerate(edges) if which(edge))


def _union(tests: list[RowTest]) -> int:
    mask = 0
    for test in tests:
        mask |= test.mask
    return mask
