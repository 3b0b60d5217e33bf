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
class Row:
    """One row, by name."""

    name: str
    where: Any = ()


@dataclass(frozen=True, slots=True, eq=False)
class Without:
    """No such row between the parts before and after; `directly`: only the next row is no such."""

    name: str
    where: Any = ()
    directly: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
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
    part: Part | Without
    limit: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Parts one after the other."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    """One of these."""

    parts: tuple[Group, ...]


Part = Row | Repeat | Group | Either


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


def rows_in(part: Part | Without, many: bool = False) -> Iterator[tuple[str, bool]]:
    """The names of the rows, and whether a match can hold several of them."""
    match part:
        case Row(name=name):
            yield name, many
        case Repeat(part=inner, high=high):
            yield from rows_in(inner, many or high != 1)
        case Group(items=items):
            for item in items:
                yield from rows_in(item.part, many)
        case Either(parts=parts):
            for one in parts:
                yield from rows_in(one, many)


def all_names(part: Part | Without) -> Iterator[str]:
    """The names of rows and of what must not be."""
    match part:
        case Row(name=name) | Without(name=name):
            yield name
        case Repeat(part=inner):
            yield from all_names(inner)
        case Group(items=items):
            for item in items:
                yield from all_names(item.part)
        case Either(parts=parts):
            for one in parts:
                yield from all_names(one)


def may_be_empty(part: Part | Without) -> bool:
    """Whether it can be there without any row."""
    match part:
        case Row():
            return False
        case Without():
            return True
        case Repeat(part=inner, low=low):
            return low == 0 or may_be_empty(inner)
        case Group(items=items):
            return all(may_be_empty(item.part) for item in items)
        case Either(parts=parts):
            return any(map(may_be_empty, parts))


def several(part: Part | Without) -> bool:
    """Whether a match can have more than one row, so that one of its rows waits for others."""
    return _most(part) > 1


def limits(part: Part | Without) -> Iterator[int]:
    """The times, in ms, that are set between two successive rows."""
    match part:
        case Repeat(part=inner, limit=limit):
            yield from () if limit is None else (limit,)
            yield from limits(inner)
        case Group(items=items):
            for item in items:
                yield from () if item.limit is None else (item.limit,)
                yield from limits(item.part)
        case Either(parts=parts):
            for one in parts:
                yield from limits(one)


def unlimited(part: Part | Without) -> bool:
    """Whether one of its rows may wait for another one without a time between the two."""
    match part:
        case Repeat(part=inner, high=high, limit=limit):
            return (high != 1 and limit is None) or unlimited(inner)
        case Group(items=items):
            open_steps = (i.limit is None and not isinstance(i.part, Without) for i in items[1:])
            return any(open_steps) or any(unlimited(item.part) for item in items)
        case Either(parts=parts):
            return any(map(unlimited, parts))
    return False


def may_end_directly(part: Part | Without) -> bool:
    """Whether it may end with `not_next`, so that its last row waits for the next one."""
    match part:
        case Without(directly=directly):
            return directly
        case Repeat(part=inner):
            return may_end_directly(inner)
        case Group(items=items):
            for item in reversed(items):
                if may_end_directly(item.part):
                    return True
                if not may_be_empty(item.part):
                    return False
        case Either(parts=parts):
            return any(map(may_end_directly, parts))
    return False


def _most(part: Part | Without) -> float:
    """How many rows it can have."""
    match part:
        case Row():
            return 1
        case Without():
            return 0
        case Repeat(part=inner, high=high):
            return _most(inner) * (inf if high is None else high)
        case Group(items=items):
            return sum(_most(item.part) for item in items)
        case Either(parts=parts):
            return max(map(_most, parts))


def replaced(part: Any, change: Callable[[str, Any], Any]) -> Any:
    """The same tree with other conditions: change(name, where)."""
    match part:
        case Row(name=name, where=where) | Without(name=name, where=where):
            return replace(part, where=change(name, where))
        case Repeat(part=inner, until=until):
            name = next(all_names(inner))
            after = until if until is None else change(name, until)
            return replace(part, part=replaced(inner, change), until=after)
        case Group(items=items):
            return Group(tuple(replace(i, part=replaced(i.part, change)) for i in items))
        case Either(parts=parts):
            return Either(tuple(replaced(one, change) for one in parts))
    raise TypeError(part)


def told(items: Sequence[Item]) -> str:
    """The parts in a few words: "small then large{2,4}"."""
    said = []
    for i, item in enumerate(items):
        said += [_link(item)] if i else []
        said += [_words(item.part)]
    return " ".join(said)


def _link(item: Item) -> str:
    if isinstance(item.part, Without):
        return "not next" if item.part.directly else "without"
    word = item.link.replace("_", " ")
    return word if item.limit is None else f"{word} within {pretty(item.limit)}"


def _words(part: Part | Without) -> str:
    match part:
        case Row(name=name) | Without(name=name):
            return name
        case Repeat(part=inner, low=low, high=high):
            return f"{_words(inner)}{_count(low, high)}{_manner(part)}"
        case Group(items=items):
            return f"({told(items)})"
        case Either(parts=parts):
            return f"({' or '.join(told(p.items) for p in parts)})"


def _manner(loop: Repeat) -> str:
    said = f" by {loop.by}" if loop.by != THEN else ""
    said += " greedy" if loop.greedy else ""
    said += f" each within {pretty(loop.limit)}" if loop.limit is not None else ""
    return said if loop.until is None else f"{said} until ({_condition(loop.until)})"


def _condition(where: Any) -> str:
    """A condition in words, whether a stream is known or not."""
    known = isinstance(where, Condition)
    every = [*([] if where.expr is None else [where.expr]), *where.functions] if known else where
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
