"""What is wrong with a pattern: each mistake has its code, and is reported where it is written.

A mistake that a call shows is refused by that call. What only the whole pattern shows (it ends
with `without`, it could match nothing) is found by `problems`, when the pattern is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from operator import and_
from typing import Any

from headrace.clock import Duration, millis, pretty
from headrace.errors import PlanError, refusal
from headrace.expr import Expr, lit, parsed
from headrace.kernel import never_true
from headrace.ops.pattern.parts import (
    LINKS,
    NEXT,
    EitherPart,
    Ending,
    GroupPart,
    Item,
    Part,
    RepeatPart,
    RowPart,
    Skip,
    WithoutPart,
    limits,
    may_be_empty,
    rows_in,
    several,
)

MOST = 500  # rows that a match may have by its counts


def check_name(name: object, names: Sequence[str]) -> None:
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise refusal(
            "HR-PATTERN-003",
            f"{name!r} cannot name a part of a pattern",
            "Names become columns: use letters, digits and '_', beginning with a letter.",
        )
    if name in names:
        raise refusal(
            "HR-PATTERN-002",
            f"two parts of the pattern are named {name!r}",
            "Matched rows are found by their name: give each part its own.",
        )


def check_where(name: str, where: Sequence[Any]) -> None:
    """Refuse what is no condition, and what is never true."""
    for one in where:
        good = isinstance(one, Expr | str | bool) or (callable(one) and _takes(one) in (1, 2))
        if not good:
            raise refusal(
                "HR-PATTERN-020",
                f"{one!r} is not a condition for {name!r}",
                "Give an expression, its text, a function of the row, or one of the row and the "
                "match so far: lambda row, match: row.amount > match['a'][-1].amount.",
            )
    written = [*_written(where)]
    if written and never_true(whole := all_of(written)):
        raise never(name, whole)


def all_of(conditions: Sequence[Expr]) -> Expr:
    """All of them as one condition."""
    return reduce(and_, conditions)


def never(name: str, condition: Expr) -> PlanError:
    return refusal(
        "HR-PATTERN-025",
        f"the condition of {name!r} is never true: {condition.sql()}",
        "Give a condition that a row can fulfil, or leave the part out.",
    )


def _written(where: Sequence[Any]) -> Iterator[Expr]:
    """The conditions that can be read before the columns are known."""
    for one in where:
        if isinstance(one, Expr | bool):
            yield lit(one)
        elif isinstance(one, str):
            with suppress(PlanError):  # reported with the columns, one of which may have this name
                yield parsed(one)


def takes_match(fn: Callable[..., Any]) -> bool:
    """Whether a condition looks at the match so far."""
    return _takes(fn) == 2


def _takes(fn: Callable[..., Any]) -> int:
    """How many arguments a function needs; 0 if that is unknown."""
    try:
        every = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return 0
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in places and p.default is p.empty for p in every)


def check_times(low: object, high: object) -> None:
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (low, high))
    if not whole or not 1 <= low <= high:  # type: ignore[operator]
        raise refusal(
            "HR-PATTERN-004",
            f"a part cannot be there {low} to {high} times",
            "Say times(3) or times(2, 4), from one on and rising; optional() for none at all.",
        )
    if high > MOST:  # type: ignore[operator]
        raise _too_large()


def check_by(by: object) -> None:
    if by not in LINKS:
        raise refusal(
            "HR-PATTERN-015",
            f"the rows of a loop cannot follow each other by {by!r}",
            'Pass by="next", by="then" or by="then_any".',
        )


def check_repeat(part: Part | WithoutPart, greedy: bool, times: bool) -> None:
    """Refuse a count of something that cannot have one; `times`: it is more than `optional`."""
    inner = part.part if isinstance(part, RepeatPart) else part
    if isinstance(part, WithoutPart):
        raise refusal(
            "HR-PATTERN-028",
            f"{part.name!r} must not be there, so it cannot be so many times or optional",
            "Leave the count out.",
        )
    if isinstance(part, RepeatPart) and (times or part.low == 0):
        raise refusal(
            "HR-PATTERN-013",
            "a part is counted twice",
            "Say it once: times(2, 4), one_or_more() or optional(); optional() may come last.",
        )
    if greedy and not isinstance(inner, RowPart):
        raise refusal(
            "HR-PATTERN-023",
            "a group cannot be greedy",
            "Make the parts inside greedy, or list the cases.",
        )
    if times and may_be_empty(inner):
        raise refusal(
            "HR-PATTERN-026",
            "a group that repeats could be empty each time",
            "Let at least one of its parts not be optional.",
        )


def check_until(part: Part | WithoutPart) -> None:
    if not isinstance(part, RepeatPart) or part.high == 1:
        raise refusal(
            "HR-PATTERN-005",
            "until follows a part that does not repeat",
            "Say one_or_more() or times(...) before it.",
        )


def length_of(duration: Duration, what: str) -> int:
    length = millis(duration)
    if length <= 0:
        raise refusal(
            "HR-PATTERN-010", f"{what} of {duration!r} leaves no time", "Choose one above zero."
        )
    return length


def limit_of(duration: Duration, high: int | None) -> int:
    """The time between the rounds of a loop."""
    if high == 1:
        raise refusal(
            "HR-PATTERN-031",
            "within is the time from one round of a loop to the next, and there is only one",
            "Say times(2, within=...) or more; or give within to the part: "
            'then("b", ..., within="5s").',
        )
    return length_of(duration, "within")


def check_no_limit(within: object, why: str) -> None:
    """Refuse the time of a part that has no row before it, or no row at all."""
    if within is not None:
        raise refusal(
            "HR-PATTERN-031",
            f"within of {within!r} is the time from the row before to the part's, but {why}",
            "Leave within out, or give it to another part or to the whole pattern.",
        )


def problems(
    group: GroupPart, span: int | None, skip: Skip, ending: Ending | None
) -> list[PlanError]:
    """What is wrong with the pattern as a whole."""
    return [*_problems(group, span, skip, ending)]


def _problems(
    group: GroupPart, span: int | None, skip: Skip, ending: Ending | None
) -> Iterator[PlanError]:
    names = [name for name, _ in rows_in(group)]
    if may_be_empty(group):
        every = ", ".join(map(repr, names))
        yield refusal(
            "HR-PATTERN-009",
            f"the pattern could match nothing at all: every part is optional ({every})",
            "Let at least one part not be optional.",
        )
    yield from _negations(group, timed=span is not None or ending is not None)
    if ending is not None and ending.length is None and span is None:
        yield refusal(
            "HR-PATTERN-007",
            f"then_not {ending.name!r} has no end: it would wait for ever",
            'Say how long: then_not(..., within="5m"), or within("10m") for the whole pattern.',
        )
    length = ending.length if ending is not None else None
    if length and span and span < length and not several(group):
        assert ending is not None
        yield refusal(
            "HR-PATTERN-010",
            f"within of {pretty(span)} leaves no time for then_not {ending.name!r}, "
            f"which takes {pretty(length)}",
            "Leave within out: after one row, the time of then_not is that of the whole.",
        )
    longest = max(limits(group), default=0)
    if span is not None and longest > span:
        yield refusal(
            "HR-PATTERN-032",
            f"two successive rows may be {pretty(longest)} apart, but the whole pattern may "
            f"last {pretty(span)} only",
            "Let the time of a part be at most that of the whole, or leave one of them out.",
        )
    if skip.name is not None and skip.name not in names:
        yield refusal(
            "HR-PATTERN-011",
            f"the pattern has no part {skip.name!r} to skip to",
            f"Name one of {', '.join(names)}.",
        )
    if span is None and ending is None and _never_over(group):
        yield refusal(
            "HR-PATTERN-014",
            "the greedy loop at the end is never over",
            'Say within("10m"), until(...), or by="next".',
        )
    if _size(group) > MOST:
        yield _too_large()


def _negations(group: GroupPart, timed: bool) -> Iterator[PlanError]:
    """`timed`: the pattern says how long it may last, so what it ends without has an end."""
    items = group.items
    for i, item in enumerate(items):
        inner = item.part.part if isinstance(item.part, RepeatPart) else item.part
        if isinstance(inner, GroupPart | EitherPart):
            for one in inner.parts if isinstance(inner, EitherPart) else (inner,):
                yield from _negations(one, timed)
        if not isinstance(inner, WithoutPart):
            continue
        if inner.directly:
            yield from _never_followed(inner, items[i + 1 :])
            continue
        after = next((one for one in items[i + 1 :] if not isinstance(one.part, WithoutPart)), None)
        if not timed and all(may_be_empty(one.part) for one in items[i + 1 :]):
            yield refusal(
                "HR-PATTERN-006",
                f"the pattern may end without {inner.name!r}, but does not say until when",
                f'Say within("10m") for the whole pattern, then_not("{inner.name}", ..., '
                'within="5m"), or go on with a part that is not optional.',
            )
        elif after is not None and after.link == NEXT:
            yield refusal(
                "HR-PATTERN-008",
                f"no row can be between two that follow directly, so not {inner.name!r} either",
                "Say then(...) after without(...), or leave it out.",
            )


def _never_followed(forbidden: WithoutPart, after: Sequence[Item]) -> Iterator[PlanError]:
    if not forbidden.where and not all(may_be_empty(item.part) for item in after):
        yield refusal(
            "HR-PATTERN-033",
            f"not_next {forbidden.name!r} has no condition, so no row may follow at all, and "
            "the part after it can never be",
            f'Say which row must not be next: not_next("{forbidden.name}", "amount > 500").',
        )


def _never_over(group: GroupPart) -> bool:
    """Whether a greedy loop ends the pattern and nothing ends the loop."""
    for item in reversed(group.items):
        if _waits(item.part, item.limit is not None):
            return True
        if not may_be_empty(item.part):
            return False
    return False


def _waits(part: Part | WithoutPart, limited: bool = False) -> bool:
    """`limited`: its first row comes within a time, or not at all."""
    match part:
        case RepeatPart(part=inner, low=low, high=high):
            return (part.greedy and low != high and _open(part, limited)) or _waits(inner)
        case GroupPart():
            return _never_over(part)
        case EitherPart(parts=parts):
            return any(map(_waits, parts))
    return False


def _open(loop: RepeatPart, limited: bool) -> bool:
    """Whether neither a row nor a time ends the waiting for one more round."""
    if loop.high == 1:
        return not limited
    return loop.until is None and loop.limit is None and loop.by != NEXT


def _size(part: Part | WithoutPart) -> int:
    match part:
        case RowPart():
            return 1
        case RepeatPart(part=inner, low=low, high=high):
            return _size(inner) * max(low, high or 1)
        case GroupPart(items=items):
            return sum(_size(item.part) for item in items)
        case EitherPart(parts=parts):
            return sum(map(_size, parts))
    return 0


def _too_large() -> PlanError:
    return refusal(
        "HR-PATTERN-027",
        f"the pattern counts more than {MOST} rows",
        "Count them in a window instead, or use one_or_more() with a condition.",
    )


def check_items(items: Sequence[object]) -> None:
    if not items:
        raise refusal(
            "HR-PATTERN-001", "the pattern is empty", 'Begin with a row: hr.pattern("a", where).'
        )
