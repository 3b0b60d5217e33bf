"""Patterns as users write them: immutable, one call per part.

    hr.pattern("small", "amount < 1").then("large", "amount > 500").within("10m")

Each call returns a new pattern; one that is impossible is refused at once. Nothing is matched
here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headrace.at_rest import Identified
from headrace.clock import Duration, pretty
from headrace.errors import PlanError, refusal
from headrace.notebook import heading, preformatted
from headrace.ops.pattern import checks as no
from headrace.ops.pattern import json_text
from headrace.ops.pattern.parts import (
    ANY,
    NEXT,
    THEN,
    EitherPart,
    Ending,
    GroupPart,
    Item,
    Part,
    RepeatPart,
    RowPart,
    Skip,
    WithoutPart,
    all_names,
    described,
    ended,
    limits,
    may_end_directly,
    replaced,
    unlimited,
)


@dataclass(frozen=True, eq=False)
class Pattern(Identified):
    """Rows of one key, in order, that mean something together; see `hr.pattern`."""

    group: GroupPart
    span: int | None = None  # ms from the first row to before the last
    skip: Skip = Skip()  # noqa: RUF009  a value
    ending: Ending | None = None

    def _repr_html_(self) -> str:
        return heading("pattern") + preformatted(self.at_rest())

    def at_rest(self) -> str:
        words = described(self.group.items) + ended(self.ending)
        words += f" within {pretty(self.span)}" if self.span is not None else ""
        return words + (f", skip {self.skip}" if self.skip.to != "none" else "")

    # what comes after

    def next(self, part: str | Pattern, *where: Any, within: Duration | None = None) -> Pattern:
        """Directly after the row before: no other row of the key between.

        `within`: less than so long after the row before; of a group, its first row.
        """
        return self._add(NEXT, part, where, within)

    def then(self, part: str | Pattern, *where: Any, within: Duration | None = None) -> Pattern:
        """Some time later, less than `within`: the first row that satisfies the condition."""
        return self._add(THEN, part, where, within)

    def then_any(self, part: str | Pattern, *where: Any, within: Duration | None = None) -> Pattern:
        """Some time later, less than `within`: any such row, each for a match of its own."""
        return self._add(ANY, part, where, within)

    def without(self, name: str, *where: Any) -> Pattern:
        """No such row between the part before and the part after."""
        return self._forbid(name, where, directly=False)

    def not_next(self, name: str, *where: Any) -> Pattern:
        """The row directly after the part before, if there is one, is not such a row."""
        return self._forbid(name, where, directly=True)

    def then_not(self, name: str, *where: Any, within: Duration | None = None) -> Pattern:
        """No such row afterwards, for so long: the match is emitted when the time is over."""
        self._check_open()
        no.check_name(name, self._names())
        no.check_where(name, where)
        length = None if within is None else no.length_of(within, "then_not")
        return replace(self, ending=Ending(name, where, length))

    # how often

    def times(
        self,
        low: int,
        high: int | None = None,
        *,
        by: str = THEN,
        greedy: bool = False,
        within: Duration | None = None,
    ) -> Pattern:
        """The last part so many times, or from `low` to `high` times.

        `within`: less than so long from each time to the next one.
        """
        no.check_times(low, low if high is None else high)
        return self._repeat(low, low if high is None else high, by, greedy, within)

    def times_or_more(
        self, low: int, *, by: str = THEN, greedy: bool = False, within: Duration | None = None
    ) -> Pattern:
        """The last part at least so many times, less than `within` from each to the next."""
        no.check_times(low, low)
        return self._repeat(low, None, by, greedy, within)

    def one_or_more(
        self, *, by: str = THEN, greedy: bool = False, within: Duration | None = None
    ) -> Pattern:
        """The last part once or more; `greedy`: a row that can go on with it does."""
        return self._repeat(1, None, by, greedy, within)

    def optional(self, *, greedy: bool = False) -> Pattern:
        """The last part, or nothing in its place; `greedy`: nothing only if no row is it."""
        last = self._last()
        no.check_repeat(last, greedy, times=False)
        return self._change(RepeatPart(last, 0, 1, greedy=greedy))  # type: ignore[arg-type]

    def until(self, *where: Any) -> Pattern:
        """The loop just written takes no row that satisfies this, and none after such a row."""
        last = self._last()
        loop = _loop(last)
        no.check_until(loop)
        no.check_where("until", where)
        assert isinstance(loop, RepeatPart) and isinstance(last, RepeatPart)
        stopped = replace(loop, until=where)
        return self._change(stopped if loop is last else replace(last, part=stopped))

    # the whole

    def within(self, duration: Duration) -> Pattern:
        """All rows in less than so long, from the first to the last."""
        return replace(self, span=no.length_of(duration, "within"))

    def skip_to_next(self) -> Pattern:
        """After a match, no other that begins with the same row."""
        return replace(self, skip=Skip("next"))

    def skip_past_last(self) -> Pattern:
        """After a match, none that begins before its end: matches do not overlap."""
        return replace(self, skip=Skip("past_last"))

    def skip_to_first(self, name: str) -> Pattern:
        """After a match, none that begins before its first row of that name."""
        return replace(self, skip=Skip("first", name))

    def skip_to_last(self, name: str) -> Pattern:
        """After a match, none that begins before its last row of that name."""
        return replace(self, skip=Skip("last", name))

    # as text

    def to_json(self) -> str:
        """The pattern as JSON; only if its conditions are expressions."""
        self.check()
        return json_text.to_json(self.group, self.span, self.skip, self.ending)

    @staticmethod
    def from_json(text: str) -> Pattern:
        """The pattern that `to_json` wrote; refused like any other if it cannot be."""
        parsed: Pattern = json_text.from_json(text, pattern, either)
        return parsed

    def check(self) -> None:
        """Raise what is wrong with it as a whole."""
        problems = no.problems(self.group, self.span, self.skip, self.ending)
        if problems:
            raise PlanError.of(problems)

    @property
    def endless(self) -> bool:
        """Whether a row may wait for ever for the next; the time of then_not bounds itself."""
        waits = self.ending is None and may_end_directly(self.group)
        return self.span is None and (waits or unlimited(self.group))

    @property
    def timed(self) -> bool:
        """Whether a partial match may run out of time."""
        return self.span is not None or any(limits(self.group))

    def resolved(self, change: Callable[[str, Any], Any]) -> Pattern:
        """The same with other conditions: change(name, where)."""
        ending = self.ending
        if ending is not None:
            ending = replace(ending, where=change(ending.name, ending.where))
        return replace(self, group=replaced(self.group, change), ending=ending)

    def _names(self) -> list[str]:
        return [*all_names(self.group), *([self.ending.name] if self.ending else [])]

    def _add(
        self, link: str, part: str | Pattern, where: tuple[Any, ...], within: Duration | None
    ) -> Pattern:
        self._check_open()
        new = _part(part, where, self._names())
        limit = None if within is None else no.length_of(within, "within")
        return self._with(*self.group.items, Item(link, new, limit))

    def _forbid(self, name: str, where: tuple[Any, ...], directly: bool) -> Pattern:
        self._check_open()
        no.check_name(name, self._names())
        no.check_where(name, where)
        return self._with(*self.group.items, Item(THEN, WithoutPart(name, where, directly)))

    def _with(self, *items: Item) -> Pattern:
        return replace(self, group=GroupPart(items))

    def _last(self) -> Part | WithoutPart:
        self._check_open()
        return self.group.items[-1].part

    def _repeat(
        self, low: int, high: int | None, by: str, greedy: bool, within: Duration | None
    ) -> Pattern:
        last = self._last()
        no.check_by(by)
        no.check_repeat(last, greedy, times=True)
        limit = None if within is None else no.limit_of(within, high)
        loop = RepeatPart(last, low, high, by, greedy, limit=limit)  # type: ignore[arg-type]
        return self._change(loop)

    def _change(self, part: Part) -> Pattern:
        *before, last = self.group.items
        return self._with(*before, replace(last, part=part))

    def _check_open(self) -> None:
        if self.ending is not None:
            raise refusal(
                "HR-PATTERN-019",
                f"something follows then_not {self.ending.name!r}",
                "then_not ends a pattern: use without(...) or not_next(...) between two parts.",
            )


def pattern(part: str | Pattern, *where: Any) -> Pattern:
    """Begin a pattern with a row: `hr.pattern("hot", "celsius > 40").then(...)`.

    A condition is an expression, its text, a function of the row, or a function of the row and
    the match so far; of several, all must hold; without any, every row will do.
    """
    return _begun(Item(THEN, _part(part, where, ())))


def either(*patterns: Pattern) -> Pattern:
    """One of several patterns, to begin with or to go on with: `.then(hr.either(p, q))`."""
    if len(patterns) < 2:
        raise refusal(
            "HR-PATTERN-001",
            f"either has {len(patterns)} patterns to choose from",
            "Give two at least.",
        )
    names: list[str] = []
    groups = []
    for one in patterns:
        group = _part(one, (), names)
        names += all_names(group)
        groups.append(group if isinstance(group, GroupPart) else GroupPart((Item(THEN, group),)))
    return _begun(Item(THEN, EitherPart(tuple(groups))))


def _loop(part: Part | WithoutPart) -> Part | WithoutPart:
    """The loop that `until` is about: also one that may be left out."""
    optional = isinstance(part, RepeatPart) and (part.low, part.high) == (0, 1)
    return part.part if optional else part  # type: ignore[union-attr]


def _begun(item: Item) -> Pattern:
    return Pattern(GroupPart((item,)))


def _part(part: object, where: tuple[Any, ...], names: Any) -> Part:
    """A row by its name, or another pattern in its place."""
    if not isinstance(part, Pattern):
        no.check_name(part, names)
        no.check_where(str(part), where)
        return RowPart(str(part), where)
    if where:
        raise refusal(
            "HR-PATTERN-020", "a pattern as a part has conditions of its own", "Put them inside."
        )
    if part.span is not None or part.ending is not None or part.skip.to != "none":
        raise refusal(
            "HR-PATTERN-012",
            f"the part ({part}) has within, then_not or skip, which are of the whole",
            "Say them once, at the end of the whole pattern.",
        )
    for name in all_names(part.group):
        no.check_name(name, names)
    items = part.group.items
    return items[0].part if len(items) == 1 else part.group  # type: ignore[return-value]
