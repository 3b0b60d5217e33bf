"""The parts of a pattern, as values: what a row must be, what may lie between, how often.

A pattern is a tree of these. `where` holds what the user wrote until a stream is known, and a
`Condition` from then on. Nothing here judges or runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from headrace.clock import pretty
from headrace.expr import Expr

NEXT, THEN, ANY = "next", "then", "then_any"
LINKS = (NEXT, THEN, ANY)


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """What a row must be: an expression, and functions of the row and the match so far."""

    expr: Expr | None = None
    functions: tuple[Callable[[Any, Any], Any], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class RowPart:
    """One row, by name."""

    name: str
    where: Any = ()


@dataclass(frozen=True, slots=True, eq=False)
class WithoutPart:
    """No such row between the parts before and after; `directly`: only the next row is no such."""

    name: str
    where: Any = ()
    directly: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RepeatPart:
    """A part `low` to `high` times (None: without end), its rounds linked as `by` says.

    `limit`: less than so many ms from the last row of a round to the first of the next one.
    """

    part: Part
    low: int
    high: int | None
    by: str = THEN
    greedy: bool = False
    until: Any = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A part, and how it follows what is before it: by `link`, and within `limit` ms."""

    link: str
    part: Part | WithoutPart
    limit: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GroupPart:
    """Parts one after the other."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, eq=False)
class EitherPart:
    """One of these."""

    parts: tuple[GroupPart, ...]


Part = RowPart | RepeatPart | GroupPart | EitherPart


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """No such row for so long after the last one; None: as long as the whole pattern may last."""

    name: str
    where: Any
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """What a match does to those that began before a row of it: `to` says which."""

    to: str = "none"  # "none", "next", "past_last", "first", "last"
    name: str | None = None

    def __str__(self) -> str:
        return self.to.replace("_", " ") + (f" {self.name}" if self.name else "")


def rows_in(part: Part | WithoutPart, several: bool = False) -> Iterator[tuple[str, bool]]:
    """The names of the rows, and whether a match can hold several of them."""
    if isinstance(part, RowPart):
        yield part.name, several
    repeats = isinstance(part, RepeatPart) and part.high != 1
    for inner in _inner(part):
        yield from rows_in(inner, several or repeats)


def all_names(part: Part | WithoutPart) -> Iterator[str]:
    """The names of rows and of what must not be."""
    if isinstance(part, RowPart | WithoutPart):
        yield part.name
    for inner in _inner(part):
        yield from all_names(inner)


def _inner(part: Part | WithoutPart) -> Sequence[Part | WithoutPart]:
    """The parts of which a part consists."""
    match part:
        case RepeatPart(part=inner):
            return (inner,)
        case GroupPart(items=items):
            return [item.part for item in items]
        case EitherPart(parts=parts):
            return parts
    return ()


def may_be_empty(part: Part | WithoutPart) -> bool:
    """Whether it can match without any row."""
    match part:
        case RowPart():
            return False
        case WithoutPart():
            return True
        case RepeatPart(part=inner, low=low):
            return low == 0 or may_be_empty(inner)
        case GroupPart(items=items):
            return all(may_be_empty(item.part) for item in items)
        case EitherPart(parts=parts):
            return any(map(may_be_empty, parts))


def several(part: Part | WithoutPart) -> bool:
    """Whether a match can have more than one row, so that one of its rows waits for others."""
    return _most(part) > 1


def limits(part: Part | WithoutPart) -> Iterator[int]:
    """The times, in ms, that are set between two successive rows."""
    if isinstance(part, RepeatPart) and part.limit is not None:
        yield part.limit
    if isinstance(part, GroupPart):
        yield from (item.limit for item in part.items if item.limit is not None)
    for inner in _inner(part):
        yield from limits(inner)


def unlimited(part: Part | WithoutPart) -> bool:
    """Whether one of its rows may wait for another one without a time between the two."""
    match part:
        case RepeatPart(high=high, limit=None) if high != 1:
            return True
        case GroupPart(items=(_, *later)):
            if any(i.limit is None and not isinstance(i.part, WithoutPart) for i in later):
                return True
    return any(map(unlimited, _inner(part)))


def may_end_directly(part: Part | WithoutPart) -> bool:
    """Whether it may end with `not_next`, so that its last row waits for the next one."""
    match part:
        case WithoutPart(directly=directly):
            return directly
        case RepeatPart(part=inner):
            return may_end_directly(inner)
        case GroupPart(items=items):
            for item in reversed(items):
                if may_end_directly(item.part):
                    return True
                if not may_be_empty(item.part):
                    return False
        case EitherPart(parts=parts):
            return any(map(may_end_directly, parts))
    return False


def _most(part: Part | WithoutPart) -> float:
    """How many rows it can have."""
    match part:
        case RowPart():
            return 1
        case WithoutPart():
            return 0
        case RepeatPart(part=inner, high=high):
            return _most(inner) * (inf if high is None else high)
        case GroupPart(items=items):
            return sum(_most(item.part) for item in items)
        case EitherPart(parts=parts):
            return max(map(_most, parts))


def replaced(part: Any, change: Callable[[str, Any], Any]) -> Any:
    """The same tree with other conditions: change(name, where)."""
    match part:
        case RowPart(name=name, where=where) | WithoutPart(name=name, where=where):
            return replace(part, where=change(name, where))
        case RepeatPart(part=inner, until=until):
            name = next(all_names(inner))
            after = until if until is None else change(name, until)
            return replace(part, part=replaced(inner, change), until=after)
        case GroupPart(items=items):
            return GroupPart(tuple(replace(i, part=replaced(i.part, change)) for i in items))
        case EitherPart(parts=parts):
            return EitherPart(tuple(replaced(one, change) for one in parts))
    raise TypeError(part)


def described(items: Sequence[Item]) -> str:
    """The parts in a few words: "small then large{2,4}"."""
    words = []
    for i, item in enumerate(items):
        words += [_link(item)] if i else []
        words += [_words(item.part)]
    return " ".join(words)


def _link(item: Item) -> str:
    if isinstance(item.part, WithoutPart):
        return "not next" if item.part.directly else "without"
    word = item.link.replace("_", " ")
    return word if item.limit is None else f"{word} within {pretty(item.limit)}"


def _words(part: Part | WithoutPart) -> str:
    match part:
        case RowPart(name=name) | WithoutPart(name=name):
            return name
        case RepeatPart(part=inner, low=low, high=high):
            return f"{_words(inner)}{_count(low, high)}{_manner(part)}"
        case GroupPart(items=items):
            return f"({described(items)})"
        case EitherPart(parts=parts):
            return f"({' or '.join(described(p.items) for p in parts)})"


def _manner(loop: RepeatPart) -> str:
    words = f" by {loop.by}" if loop.by != THEN else ""
    words += " greedy" if loop.greedy else ""
    words += f" each within {pretty(loop.limit)}" if loop.limit is not None else ""
    return words if loop.until is None else f"{words} until ({_condition(loop.until)})"


def _condition(where: Any) -> str:
    """A condition in words, whether a stream is known or not."""
    resolved = isinstance(where, Condition)
    every = [*([] if where.expr is None else [where.expr]), *where.functions] if resolved else where
    texts = [one.sql() if isinstance(one, Expr) else one for one in every]
    return " and ".join("a function" if callable(one) else str(one) for one in texts)


def _count(low: int, high: int | None) -> str:
    if (low, high) in ((0, 1), (1, None)):
        return "?" if high else "+"
    return f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"


def ended(ending: Ending | None) -> str:
    if ending is None:
        return ""
    return f" then not {ending.name}" + (f" for {pretty(ending.length)}" if ending.length else "")
