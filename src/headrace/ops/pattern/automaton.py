"""A pattern as an automaton: which row may follow which, and what may lie between.

Loops with counts are unrolled, so a partial match is told by its last place alone. An edge says
all about one step: what the row must be and not be (`bars`), what ends the waiting for it (`link`,
`negs`, `stops`), and which other edges of the same place forbid it as long as they can be gone
(`blockers`: a greedy loop goes on). `guards` are about the first row after the place alone, so
that a place with any has one more bit, `fresh`, which every row clears. An automaton is a value;
it knows no rows.
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
    Either,
    Group,
    Part,
    Repeat,
    Row,
    Without,
    rows_in,
)
from headrace.ops.pattern.pattern import Pattern

START, ACCEPT = -1, -2
_EDGES = 62  # of one place: they are kept as the bits of a number


@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """A condition: the bit of its expression (0: none, so perhaps), and functions."""

    mask: int
    functions: tuple[Callable[[Any, Any], Any], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """What the next row must not be."""

    name: str
    test: Test


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    target: int  # a place, or ACCEPT
    link: str
    take: Test | None
    negs: tuple[Test, ...]
    stops: tuple[Test, ...]  # `until` of the loops that the edge stays in: such a row ends it
    bars: tuple[Test, ...]  # `until` of the loops that the edge enters: such a row is not taken
    blockers: tuple[int, ...]  # edges of the same place
    guards: tuple[Guard, ...] = ()
    limit: int | None = None  # ms from the last row, before which it must be gone

    @property
    def accepts(self) -> bool:
        return self.target == ACCEPT


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a partial match stands: the row it took last, and how it may go on."""

    name: str
    edges: tuple[Edge, ...]
    steps: int  # the edges that take a row, as bits
    strict: int  # those that the next row ends in any case
    waiting: int  # those that accept later, when nothing forbids it any more
    accepts: bool  # it is a match at once
    watch: int  # the bits of a row that matter
    always: bool  # every row may matter
    asks: bool  # a function has to be asked
    fresh: int = 0  # the bit that says that no row has come since
    limits: tuple[tuple[int, int], ...] = ()  # edges, as bits, and the ms after which they end

    @property
    def all(self) -> int:
        return self.steps | self.waiting | self.fresh


@dataclass(frozen=True, slots=True, eq=False)
class Automaton:
    places: tuple[Place, ...]
    start: Place
    names: tuple[str, ...]
    span: int | None
    skip: Any
    ending: int | None  # ms without the ending's row; None if there is no such ending
    by_span: bool  # that ending lasts as long as the pattern may
    absent: str | None = None  # the name of the ending's row

    @property
    def blind(self) -> bool:
        """Whether rows without any bit change nothing."""
        every = (self.start, *self.places)
        return not any(p.always or p.strict for p in every)

    @property
    def limited(self) -> bool:
        """Whether there is a time between two successive rows."""
        return any(place.limits for place in self.places)


@dataclass(slots=True)
class Tests:
    """The expressions of some patterns, each numbered once."""

    exprs: dict[str, Expr] = field(default_factory=dict)

    def of(self, condition: Condition) -> Test:
        if condition.expr is None:
            return Test(0, condition.functions)
        text = condition.expr.sql()
        number = list(self.exprs).index(text) if text in self.exprs else len(self.exprs)
        self.exprs.setdefault(text, condition.expr)
        return Test(1 << number, condition.functions)


@dataclass(frozen=True, slots=True)
class _Exit:
    """From where the next part may be entered, and what holds on the way."""

    place: int
    link: str = THEN
    owner: int | None = None  # who said the link; a part inside does not say it again
    negs: tuple[Test, ...] = ()
    goes_on: frozenset[int] = frozenset()  # the greedy choices that this way takes
    unless: frozenset[int] = frozenset()  # the greedy choices that this way leaves
    guards: tuple[Guard, ...] = ()
    limit: int | None = None  # said by whoever says the link


@dataclass(frozen=True, slots=True)
class _Made:
    way: _Exit
    target: int
    take: Test | None
    stops: tuple[Test, ...] = ()
    bars: tuple[Test, ...] = ()


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop with `until` that is being built."""

    number: int
    first: int  # its first place
    until: Test

    def holds(self, place: int) -> bool:
        """Whether a way from there begins inside the loop."""
        return place >= self.first or place <= _back(self.number)


def compiled(pattern: Pattern, tests: Tests) -> Automaton:
    """The automaton of a pattern whose conditions are known."""
    builder = _Builder(tests)
    exits = builder.part(pattern.group, [_Exit(START)])
    ending = pattern.ending
    negs = () if ending is None else (tests.of(ending.where),)
    for way in exits:
        end = replace(way, link=ANY, limit=None, negs=(*way.negs, *negs))
        builder.made.append(_Made(end, ACCEPT, None))
    names = tuple(dict.fromkeys(name for name, _ in rows_in(pattern.group)))
    places = tuple(builder.place(i, ending is not None) for i in range(len(builder.names)))
    length = None if ending is None else ending.length or pattern.span
    return Automaton(
        places,
        builder.place(START, False),
        names,
        pattern.span,
        pattern.skip,
        length,
        by_span=ending is not None and ending.length is None,
        absent=None if ending is None else ending.name,
    )


class _Builder:
    def __init__(self, tests: Tests) -> None:
        self._tests, self._count = tests, 0
        self._loops: list[_Loop] = []  # those with `until` around what is being built
        self.names: list[str] = []
        self.made: list[_Made] = []

    def part(self, part: Part, ways: list[_Exit]) -> list[_Exit]:
        """Add a part that is entered by these ways; the ways out of it."""
        match part:
            case Row():
                return self._row(part, ways)
            case Either(parts=parts):
                return [way for one in parts for way in self.part(one, ways)]
            case Group():
                return self._group(part, ways)
            case Repeat():
                return self._repeat(part, ways)

    def _row(self, row: Row, ways: list[_Exit]) -> list[_Exit]:
        target, take = len(self.names), self._tests.of(row.where)
        self.names.append(row.name)
        for way in ways:
            stops = tuple(loop.until for loop in self._loops if loop.holds(way.place))
            bars = tuple(loop.until for loop in self._loops if not loop.holds(way.place))
            self.made.append(_Made(way, target, take, stops, bars))
        return [_Exit(target)]

    def _group(self, group: Group, ways: list[_Exit]) -> list[_Exit]:
        me = self._fresh()
        for item in group.items:
            if isinstance(item.part, Without):
                ways = self._forbidden(item.part, ways)
                continue
            entered = [_linked(way, item.link, item.limit, me) for way in ways]
            ways = self.part(item.part, entered)
        return [_free(way, me) for way in ways]

    def _forbidden(self, part: Without, ways: list[_Exit]) -> list[_Exit]:
        test = self._tests.of(part.where)
        if part.directly:
            guard = Guard(part.name, test)
            return [replace(way, guards=(*way.guards, guard)) for way in ways]
        return [replace(way, negs=(*way.negs, test)) for way in ways]

    def _repeat(self, loop: Repeat, ways: list[_Exit]) -> list[_Exit]:
        me = self._fresh()
        if loop.until is not None:
            self._loops.append(_Loop(me, len(self.names), self._tests.of(loop.until)))
        ways = self._rounds(loop, ways, me)
        if loop.until is not None:
            self._loops.pop()
        return [_free(way, me) for way in ways]

    def _rounds(self, loop: Repeat, ways: list[_Exit], me: int) -> list[_Exit]:
        out = list[_Exit]()
        rounds = max(loop.low, 1) if loop.high is None else loop.high
        for done in range(rounds):
            if done:
                ways = [_linked(w, loop.by, loop.limit, me) for w in ways]
            if done >= loop.low:
                leave, ways = self._choice(ways, ways, loop.greedy)
                out += leave
            back = [_Exit(_back(me), loop.by, me, limit=loop.limit)]
            endless = loop.high is None and done == rounds - 1
            ways = self.part(loop.part, [*ways, *back] if endless else ways)
        if loop.high is None:
            self._close(_back(me), ways, choice := self._fresh())
            ways = [replace(w, unless=w.unless | {choice}) for w in ways] if loop.greedy else ways
        return [*out, *ways]

    def _choice(
        self, leave: list[_Exit], stay: list[_Exit], greedy: bool
    ) -> tuple[list[_Exit], list[_Exit]]:
        """The loop may be left here, or gone on with; if greedy, left only if it cannot go on."""
        if not greedy:
            return leave, stay
        choice = self._fresh()
        leave = [replace(w, unless=w.unless | {choice}) for w in leave]
        return leave, [replace(w, goes_on=w.goes_on | {choice}) for w in stay]

    def _close(self, back: int, ways: list[_Exit], choice: int) -> None:
        """What leads into the last round leads there from its own end, too."""
        again = [m for m in self.made if m.way.place == back]
        self.made = [m for m in self.made if m.way.place != back]
        for way in ways:
            for m in again:
                through = replace(
                    m.way,
                    place=way.place,
                    negs=(*way.negs, *m.way.negs),
                    guards=(*way.guards, *m.way.guards),
                    goes_on=m.way.goes_on | {choice},
                    unless=m.way.unless | way.unless,
                )
                self.made.append(replace(m, way=through))

    def _fresh(self) -> int:
        self._count += 1
        return self._count

    def place(self, number: int, ending: bool) -> Place:
        mine = sorted((m for m in self.made if m.way.place == number), key=lambda m: m.target)
        if len(mine) > _EDGES:
            raise refusal(
                "HR-PATTERN-027",
                f"the pattern goes on in more than {_EDGES} ways from one row",
                "Use fewer optional parts one after the other.",
            )
        if number == START:  # nothing lies before the first row
            mine = [replace(m, way=_first(m.way)) for m in mine]
        edges = tuple(_edge(m, mine) for m in mine)
        at_once = not ending and any(e.accepts and _waits_for_nothing(e) for e in edges)
        later = 0 if at_once else _bits(edges, lambda e: e.accepts)
        steps = _bits(edges, lambda e: not e.accepts)
        guarded = _bits(edges, lambda e: bool(e.guards)) & (steps | later)
        fresh = 1 << len(edges) if guarded else 0
        tests = [t for e in edges for t in _tests(e)]
        return Place(
            name=self.names[number] if number >= 0 else "",
            edges=edges,
            steps=steps,
            strict=_bits(edges, lambda e: e.link == NEXT) | fresh,
            waiting=later,
            accepts=at_once,
            watch=_union(tests),
            always=any(not t.mask for t in tests),
            asks=any(t.functions for t in tests),
            fresh=fresh,
            limits=_limits(edges),
        )


def _first(way: _Exit) -> _Exit:
    return replace(way, link=THEN, limit=None, negs=(), guards=())


def _waits_for_nothing(edge: Edge) -> bool:
    return not (edge.blockers or edge.negs or edge.guards)


def _tests(edge: Edge) -> list[Test]:
    guards = (guard.test for guard in edge.guards)
    every = (edge.take, *edge.negs, *edge.stops, *edge.bars, *guards)
    return [test for test in every if test is not None]


def _limits(edges: tuple[Edge, ...]) -> tuple[tuple[int, int], ...]:
    found: dict[int, int] = {}
    for i, edge in enumerate(edges):
        if edge.limit is not None:
            found[edge.limit] = found.get(edge.limit, 0) | 1 << i
    return tuple((bits, length) for length, bits in sorted(found.items()))


def _edge(made: _Made, every: list[_Made]) -> Edge:
    way = made.way
    blockers = tuple(i for i, other in enumerate(every) if other.way.goes_on & way.unless)
    return Edge(
        made.target,
        way.link,
        made.take,
        way.negs,
        made.stops,
        made.bars,
        blockers,
        way.guards,
        way.limit,
    )


def _back(loop: int) -> int:
    """Stands for the end of a loop's last round while that is being built."""
    return -10 - loop


def _linked(way: _Exit, link: str, limit: int | None, owner: int) -> _Exit:
    """By this link and within this time, unless a part around it has said them."""
    if way.owner not in (None, owner):
        return way
    return replace(way, link=link, limit=limit, owner=owner)


def _free(way: _Exit, owner: int) -> _Exit:
    return replace(way, owner=None) if way.owner == owner else way


def _bits(edges: tuple[Edge, ...], which: Callable[[Edge], bool]) -> int:
    return sum(1 << i for i, edge in enumerate(edges) if which(edge))


def _union(tests: list[Test]) -> int:
    found = 0
    for test in tests:
        found |= test.mask
    return found
