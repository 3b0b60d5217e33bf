"""Patterns drawn at random, as a tree for the model and as the calls of a user.

A row is of a kind, one of four letters, and has a number. A condition is a set of kinds, as an
expression; or a function that also wants the number not below that of the last matched row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

import headrace as hr
from tests.patterns.model import named

KINDS = "abcd"
SCHEMA = "k string, kind string, v bigint, n bigint, at timestamp"
LINKS = ("next", "then", "then_any")
UNIT = 1_000


@dataclass(frozen=True)
class Cond:
    kinds: str
    rising: bool = False  # not below the last row of the match: a Python function

    def __call__(self, row: Any, before: list[Any]) -> bool:
        """For the model: rows are (time, kind, v, ...)."""
        low = before[-1][2] if before and self.rising else -1
        return row[1] in self.kinds and row[2] >= low

    def where(self) -> list[Any]:
        text = f"kind in ({', '.join(map(repr, self.kinds))})"
        return [text, rising] if self.rising else [text]


def rising(row: Any, match: Any) -> bool:
    return not match.rows or row.v >= match.rows[-1][1].v


@dataclass(frozen=True)
class Case:
    tree: Any
    span: int | None = 8 * UNIT
    ending: tuple[Any, int | None] | None = None
    skip: tuple[str, str | None] = ("none", None)

    @property
    def bounded(self) -> bool:
        """Whether time alone ends all that has begun."""
        return self.span is not None or self.tree[0] == "row"

    def pattern(self) -> hr.Pattern:
        made = built(self.tree)
        if self.ending is not None:
            test, length = self.ending
            within = None if length is None else f"{length}ms"
            made = made.then_not("never", *test.where(), within=within)
        if self.span is not None:
            made = made.within(f"{self.span}ms")
        match self.skip:
            case ("next", _):
                return made.skip_to_next()
            case ("past_last", _):
                return made.skip_past_last()
            case ("first", name):
                return made.skip_to_first(name)
            case ("last", name):
                return made.skip_to_last(name)
        return made


def built(tree: Any) -> hr.Pattern:
    """The tree as a user would write it."""
    match tree:
        case ("row", name, test):
            return hr.pattern(name, *test.where())
        case ("alt", parts):
            return hr.either(*map(built, parts))
        case ("loop", part, low, high, greedy, by, until):
            inner = hr.pattern(built(part)) if part[0] == "seq" else built(part)
            return counted(inner, low, high, greedy, by, until)
    made = None
    for number, (link, part) in enumerate(tree[1]):
        if part[0] in ("not", "not next"):
            forbid = made.without if part[0] == "not" else made.not_next
            made = forbid(f"not_{''.join(named(tree))}_{number}", *part[1].where())
        elif made is None:
            made = hr.pattern(built(part)) if part[0] == "seq" else built(part)
        else:
            word, within = within_of(link)
            follow = getattr(made, word)
            inner = part[1] if part[0] == "loop" else part
            if inner[0] == "row":
                made = follow(inner[1], *inner[2].where(), **within)
            else:
                made = follow(built(inner), **within)
            made = counted(made, *part[2:]) if part[0] == "loop" else made
    return made


def within_of(link: Any) -> tuple[str, dict[str, str]]:
    """A link of the model, as the user's word and the time beside it."""
    word, limit = (link, None) if isinstance(link, str) else link
    return word, {} if limit is None else {"within": f"{limit}ms"}


def counted(made: Any, low: int, high: int | None, greedy: bool, by: Any, until: Any) -> hr.Pattern:
    if (low, high) == (0, 1):
        return made.optional(greedy=greedy)
    word, within = within_of(by)
    if high is None:
        made = made.times_or_more(low, by=word, greedy=greedy, **within)
    else:
        made = made.times(low, high, by=word, greedy=greedy, **within)
    return made if until is None else made.until(*until.where())


# how to draw them

conds = st.sampled_from(["a", "b", "c", "ab", "bc", "ac", "cd", "abc", "bd"]).map(Cond)
rising_conds = st.builds(Cond, st.sampled_from(["a", "ab", "bc", "abc", "cd"]), st.booleans())


@st.composite
def sequences(draw: Any, links: Any = LINKS, parts: Any = None, tests: Any = conds) -> Any:
    """Two to four rows, any of which may be something else instead, if `parts` says so."""
    items = []
    for name in "pqrs"[: draw(st.integers(2, 4))]:
        part = ("row", name, draw(tests))
        if parts is not None and draw(st.booleans()):
            part = draw(parts(part))
        items.append((draw(st.sampled_from(links)), part))
    return ("seq", items)


def loops(highs: Any, greedy: Any = False, untils: Any = None) -> Any:
    """Makes of a row a loop."""

    @st.composite
    def made(draw: Any, part: Any) -> Any:
        low, high = draw(highs)
        by = draw(st.sampled_from(LINKS))
        until = draw(untils) if untils is not None and high != 1 else None
        return ("loop", part, low, high, draw(st.booleans()) if greedy else False, by, until)

    return made


def optionals(greedy: bool) -> Any:
    @st.composite
    def made(draw: Any, part: Any) -> Any:
        return ("loop", part, 0, 1, draw(st.booleans()) if greedy else False, "then", None)

    return made


@st.composite
def alternatives(draw: Any, part: Any) -> Any:
    name = part[1]
    second = ("row", f"{name}2", draw(conds))
    third = ("seq", [("then", ("row", f"{name}3", draw(conds))),
                     (draw(st.sampled_from(LINKS)), ("row", f"{name}4", draw(conds)))])  # fmt: skip
    return ("alt", [part, draw(st.sampled_from([second, third]))])


@st.composite
def groups(draw: Any, part: Any) -> Any:
    """A group of two, of which the first may be optional, perhaps repeated."""
    name = part[1]
    first = ("row", f"{name}2", draw(conds))
    if draw(st.booleans()):
        first = ("loop", first, 0, 1, draw(st.booleans()), "then", None)
    group = ("seq", [("then", first), (draw(st.sampled_from(LINKS)), part)])
    low, high = draw(st.sampled_from([(1, 1), (0, 1), (2, 2), (1, None)]))
    if (low, high) == (1, 1):
        return group
    return ("loop", group, low, high, False, draw(st.sampled_from(LINKS)), None)


@st.composite
def stopped(draw: Any, part: Any) -> Any:
    """A loop with `until` of a group of two, the first of which may be such a loop itself."""
    name = part[1]
    first = ("row", f"{name}2", draw(conds))
    if draw(st.booleans()):
        first = draw(loops(ANY_COUNT, True, conds)(first))
    group = ("seq", [("then", first), (draw(st.sampled_from(LINKS)), part)])
    low, high = draw(st.sampled_from([(1, 2), (2, 2), (1, None)]))
    return ("loop", group, low, high, False, draw(st.sampled_from(LINKS)), draw(conds))


@st.composite
def negated(draw: Any, ends: bool = False) -> Any:
    """A sequence with rows that must not lie between; `ends`: nor come at the end."""
    _, items = draw(sequences(("then", "then_any"), optionals(False)))
    made = [items[0]]
    for i, item in enumerate(items[1:], 1):
        if (ends or any(solid(part) for _, part in items[i:])) and draw(st.booleans()):
            made.append(("then", ("not", draw(conds))))
        made.append(item)
    if ends and draw(st.booleans()):
        made.append(("then", ("not", draw(conds))))
    return ("seq", made)


def guarded(links: Any = LINKS, parts: Any = None) -> Any:
    """A sequence where the row after a part, also after the last, must not be such a row."""

    @st.composite
    def made(draw: Any) -> Any:
        found = []
        for item in draw(sequences(links, parts))[1]:
            found.append(item)
            if draw(st.booleans()):
                found.append(("then", ("not next", draw(conds))))
        return ("seq", found)

    return made()


def limited(trees: Any) -> Any:
    """The same with times between successive rows, here and there."""

    @st.composite
    def made(draw: Any) -> Any:
        return _limited(draw, draw(trees))

    return made()


def _limited(draw: Any, tree: Any) -> Any:
    match tree:
        case ("seq", items):
            return ("seq", [(_limit(draw, link) if i and part[0][:3] != "not" else link,
                             _limited(draw, part))
                            for i, (link, part) in enumerate(items)])  # fmt: skip
        case ("alt", parts):
            return ("alt", [_limited(draw, part) for part in parts])
        case ("loop", part, low, high, greedy, by, until):
            by = by if high == 1 else _limit(draw, by)
            return ("loop", _limited(draw, part), low, high, greedy, by, until)
    return tree


def _limit(draw: Any, link: str) -> Any:
    limit = draw(st.sampled_from([None, UNIT, 2 * UNIT, 4 * UNIT]))
    return link if limit is None else (link, limit)


COUNTS = st.sampled_from([(1, 1), (2, 2), (1, 2), (2, 3), (1, 3)])
OPEN = st.sampled_from([(1, None), (2, None)])
ANY_COUNT = st.one_of(COUNTS, OPEN)
SKIPS = st.sampled_from([("next", None), ("past_last", None), ("first", "q"), ("last", "q"),
                         ("last", "p")])  # fmt: skip


def solid(tree: Any) -> bool:
    """Whether it holds a row in any case."""
    match tree:
        case ("seq", items):
            return any(solid(p) for _, p in items if p[0][:3] != "not")
        case ("alt", parts):
            return all(map(solid, parts))
        case ("loop", part, low, *_):
            return low > 0 and solid(part)
    return True


def plain(trees: Any, **more: Any) -> Any:
    return st.builds(Case, trees.filter(solid), **more)


def anything() -> Any:
    """A little of everything."""

    @st.composite
    def part(draw: Any, row: Any) -> Any:
        kind = draw(st.sampled_from([
            loops(ANY_COUNT, True), loops(OPEN, True, conds), optionals(True), alternatives, groups
        ]))  # fmt: skip
        return draw(kind(row))

    return st.one_of(sequences(LINKS, part), negated()).filter(solid)


@st.composite
def some_loop(draw: Any, row: Any) -> Any:
    return draw(draw(st.sampled_from([loops(ANY_COUNT, True, conds), optionals(True)]))(row))


@st.composite
def guarded_groups(draw: Any, part: Any) -> Any:
    """A group, perhaps repeated, with a row that must not be next inside it or at its end."""
    group = draw(groups(part))
    inner = group[1] if group[0] == "loop" else group
    first, *rest = inner[1]
    guard = ("then", ("not next", draw(conds)))
    items = [first, guard, *rest] if draw(st.booleans()) else [first, *rest, guard]
    return ("loop", ("seq", items), *group[2:]) if group[0] == "loop" else ("seq", items)


LONG_SPANS = st.sampled_from([5 * UNIT, 8 * UNIT])  # not shorter than a step may be
ONE = conds.map(lambda test: ("row", "p", test))
SKIPS_OF_ONE = st.sampled_from([("next", None), ("past_last", None), ("last", "p")])
LENGTHS = st.tuples(conds, st.sampled_from([UNIT, 4 * UNIT]))
SPANS = st.sampled_from([2 * UNIT, 5 * UNIT, 8 * UNIT])
FEATURES: dict[str, Any] = {
    "strict": plain(sequences(("next",))),
    "relaxed": plain(sequences(("then",))),
    "any": plain(sequences(("then_any",))),
    "mixed links": plain(sequences()),
    "times": plain(sequences(LINKS, loops(COUNTS))),
    "loops": plain(sequences(LINKS, loops(OPEN))),
    "greedy": plain(sequences(LINKS, loops(ANY_COUNT, True))),
    "until": plain(sequences(LINKS, loops(ANY_COUNT, True, conds))),
    "until, of groups": plain(sequences(LINKS, stopped)),
    "optional": plain(sequences(LINKS, optionals(True))),
    "alternation": plain(sequences(LINKS, alternatives)),
    "groups": plain(sequences(LINKS, groups)),
    "without": plain(negated()),
    "without, at the end": plain(negated(ends=True), span=SPANS),
    "without, then_not": plain(negated(ends=True), span=SPANS, ending=LENGTHS),
    "functions": plain(sequences(LINKS, loops(ANY_COUNT), rising_conds)),
    "then_not": plain(
        anything(), ending=st.tuples(conds, st.sampled_from([None, UNIT, 4 * UNIT])), span=SPANS
    ),
    "one row": plain(ONE, span=st.none()),
    "one row, then_not": plain(ONE, ending=LENGTHS, span=st.none()),
    "one row, then_not, skip": plain(ONE, ending=LENGTHS, skip=SKIPS_OF_ONE, span=st.none()),
    "within": plain(anything(), span=SPANS),
    "skip": plain(sequences(LINKS, loops(ANY_COUNT, True)), skip=SKIPS),
    "skip anything": plain(anything(), skip=SKIPS),
    "not next": plain(guarded()),
    "not next, loops": plain(guarded(LINKS, some_loop)),
    "not next, groups": plain(guarded(LINKS, guarded_groups)),
    "not next, alternation": plain(guarded(LINKS, alternatives)),
    "not next, within": plain(guarded(LINKS, some_loop), span=SPANS),
    "not next, then_not": plain(guarded(LINKS, some_loop), span=LONG_SPANS, ending=LENGTHS),
    "not next, skip": plain(guarded(LINKS, some_loop), skip=SKIPS),
    "step within": plain(limited(sequences())),
    "step within, loops": plain(limited(sequences(LINKS, some_loop))),
    "step within, greedy": plain(limited(sequences(LINKS, loops(ANY_COUNT, True)))),
    "step within, groups": plain(limited(sequences(LINKS, groups))),
    "step within, alternation": plain(limited(sequences(LINKS, alternatives))),
    "step within, until": plain(limited(sequences(LINKS, stopped))),
    "step within, functions": plain(limited(sequences(LINKS, loops(ANY_COUNT), rising_conds))),
    "step within, alone": plain(limited(sequences(LINKS, loops(COUNTS))), span=st.none()),
    "step within, then_not": plain(limited(anything()), span=LONG_SPANS, ending=LENGTHS),
    "step within, skip": plain(limited(anything()), skip=SKIPS),
    "step within, not next": plain(limited(guarded(LINKS, some_loop)), span=LONG_SPANS),
    "without within": plain(sequences(LINKS, optionals(False)), span=st.none()),
}
