"""What a pattern means, by definition: all words it can be, over all choices of rows.

Nothing here knows Headrace, and nothing is clever. A pattern is a tree of tuples:

    ("row", name, test)                          test(row, rows before) -> bool
    ("seq", [(link, part), ...])                 ("not", test) may stand between two parts, and
                                                 ("not next", test), about the next row only
    ("alt", [part, ...])
    ("loop", part, low, high, greedy, by, until)

A link, and `by`, is a word, or (word, ms): less than so many ms after the row before.

It is first written out as words: lists of steps, each with what must hold between it and the
step before. Then every choice of rows for every word is judged. Rows are (time, ...) tuples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

FAR = 2**60
CUT = "..."  # the word goes on, further than there are rows


@dataclass(frozen=True)
class Go:
    """How a greedy loop that was left could have gone on."""

    tests: tuple[tuple[Any, tuple[Any, ...]], ...]  # what the row is, and what it must not be
    link: str | None
    untils: tuple[Any, ...]
    negs: tuple[Any, ...]
    limit: int | None = None
    firsts: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Step:
    """A row of a word (without a test: the end of the word), and what leads to it."""

    name: str = ""
    test: Any = None
    link: str | None = None
    negs: tuple[Any, ...] = ()
    untils: tuple[Any, ...] = ()  # no such row since the step before, this one included
    bars: tuple[Any, ...] = ()  # what this row must not be
    unless: tuple[Go, ...] = ()
    limit: int | None = None  # less than so long after the step before
    firsts: tuple[Any, ...] = ()  # what the row directly after the step before must not be

    def entered(self, by: Any, untils: tuple[Any, ...] = ()) -> Step:
        """By a link that somebody outside says, unless somebody inside has."""
        link, limit = link_of(by)
        gone = tuple(
            replace(g, link=link, limit=limit, untils=g.untils + untils) if g.link is None else g
            for g in self.unless
        )
        if self.link is not None:
            return replace(self, unless=gone)
        return replace(self, link=link, limit=limit, untils=self.untils + untils, unless=gone)

    def within_loop(self, until: Any) -> Step:
        """The step before is in the loop already: a row like `until` ends the way from there."""
        gone = tuple(replace(g, untils=(*g.untils, until)) for g in self.unless)
        return replace(self, untils=(*self.untils, until), unless=gone)

    def into_loop(self, until: Any) -> Step:
        """The row that enters a loop is not like `until`; what comes before it is no matter."""
        gone = tuple(
            replace(g, tests=tuple((t, (*bars, until)) for t, bars in g.tests)) for g in self.unless
        )
        return replace(self, bars=(*self.bars, until), unless=gone)


Word = tuple[Step, ...]  # the last step is the end


def link_of(by: Any) -> tuple[str, int | None]:
    return (by, None) if isinstance(by, str) else by


def joined(a: Word, b: Word, link: Any, untils: tuple[Any, ...] = ()) -> Word:
    """One word after another; the first says its link only where something is before it."""
    first = b[0].entered(link, untils) if len(a) > 1 else b[0]
    if len(a) > 1 and len(b) == 1:
        first = replace(first, link=None, limit=None)
    end = a[-1]
    goes = tuple(
        replace(g, negs=end.negs + g.negs, firsts=end.firsts + g.firsts) for g in first.unless
    )
    first = replace(first, negs=end.negs + first.negs, firsts=end.firsts + first.firsts,
                    unless=end.unless + goes)  # fmt: skip
    return (*a[:-1], first, *b[1:])


def words(part: Any, most: int) -> list[Word]:
    """All words of at most so many rows, and the beginnings of longer ones: their end is CUT."""
    match part:
        case ("row", name, test):
            return [(Step(name, test), Step())]
        case ("alt", parts):
            return [w for p in parts for w in words(p, most)]
        case ("seq", items):
            found: list[Word] = [(Step(),)]
            for link, p in items:
                if p[0] == "not":
                    found = [(*w[:-1], replace(w[-1], negs=(*w[-1].negs, p[1]))) for w in found]
                elif p[0] == "not next":
                    found = [(*w[:-1], replace(w[-1], firsts=(*w[-1].firsts, p[1]))) for w in found]
                else:
                    found = after(found, words(p, most), link, (), most)
            return found
        case ("loop", inner, low, high, greedy, by, until):
            untils = () if until is None else (until,)
            body = words(inner, most)
            if until is not None:
                body = [(w[0], *(s.within_loop(until) for s in w[1:])) for w in body]
            first = [(w[0].into_loop(until), *w[1:]) for w in body] if untils else body
            enters, goes_on = (tuple(dict.fromkeys((w[0].test, w[0].bars) for w in kind))
                               for kind in (first, body))  # fmt: skip
            found, rounds = [], [(Step(),)]
            for done in range((high if high is not None else most + low) + 1):
                if done >= low:
                    kind, limit = link_of(by)
                    on = Go(goes_on, kind, untils, (), limit)
                    go = on if done else Go(enters, None, (), ())
                    ends = (go,) if greedy and done != high else ()
                    found += [(*w[:-1], replace(w[-1], unless=w[-1].unless + ends)) for w in rounds]
                rounds = after(rounds, body if done else first, by, untils if done else (), most)
            return list(dict.fromkeys(found))
    raise ValueError(part)


def after(
    ones: list[Word], others: list[Word], link: Any, untils: tuple[Any, ...], most: int
) -> list[Word]:
    """Every word of the one kind with every word of the other after it."""
    done = [w for w in ones if w[-1].name == CUT]
    made = [joined(a, b, link, untils) for a in ones if a[-1].name != CUT for b in others]
    short = [w if len(w) - 1 <= most else (*w[:most], Step(CUT)) for w in made]
    return list(dict.fromkeys([*done, *short]))


def named(part: Any) -> list[str]:
    """The names of the rows, in the order of the pattern."""
    match part:
        case ("row", name, _):
            return [name]
        case ("seq", items):
            return [n for _, p in items if p[0][:3] != "not" for n in named(p)]
        case ("alt", parts):
            return [n for p in parts for n in named(p)]
    return named(part[1])


@dataclass(frozen=True)
class Found:
    """A match: its names and rows by number; when it was sure, and in which order."""

    names: tuple[str, ...]
    rows: tuple[int, ...]
    sure: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Judge:
    """The rows of one key in order; a pattern, how long it may last, what must not follow."""

    rows: list[Any]
    span: int | None = None
    ending: tuple[Any, int | None] | None = None  # test, length

    def matches(self, part: Any) -> list[Found]:
        found = {}
        for word in words(part, len(self.rows)):
            if word[-1].name == CUT:
                continue
            for at in combinations(range(len(self.rows)), len(word) - 1):
                sure = self.sure(word, at) if self.fits(word[:-1], at) else None
                if sure is not None:
                    one = Found(tuple(s.name for s in word[:-1]), at, sure)
                    known = found.get((one.names, one.rows))
                    found[one.names, one.rows] = min(one, known or one, key=lambda f: f.sure)
        order = {name: i for i, name in enumerate(dict.fromkeys(named(part)))}
        return sorted(found.values(), key=lambda f: (
            f.rows[0], f.sure, f.rows, [order[n] for n in f.names]))  # fmt: skip

    def fits(self, steps: Word, at: tuple[int, ...]) -> bool:
        return all(self.step(s, at[:j], at[j]) for j, s in enumerate(steps)) and self.lasts(at)

    def lasts(self, at: tuple[int, ...]) -> bool:
        return self.span is None or self.rows[at[-1]][0] - self.rows[at[0]][0] < self.span

    def step(self, step: Step, before: tuple[int, ...], q: int) -> bool:
        so_far = [self.rows[i] for i in before]
        if not step.test(self.rows[q], so_far) or self.barred(step.bars, q, so_far):
            return False
        if not before:
            return not any(
                t(self.rows[q], so_far) and not self.barred(bars, q, so_far)
                for g in step.unless for t, bars in g.tests
            )  # fmt: skip
        p = before[-1]
        gap = range(p + 1, q)
        return (
            not (step.link == "next" and gap)
            and q < self.end(p, step.limit)
            and not self.first(step.firsts, p, so_far)
            and not (step.link == "then" and self.some(step.test, gap, so_far))
            and not any(self.some(t, gap, so_far) for t in step.negs)
            and not any(self.some(t, range(p + 1, q + 1), so_far) for t in step.untils)
            and not any(self.goes(g, p, q + 1, so_far) for g in step.unless)
        )

    def end(self, p: int, limit: int | None) -> int:
        """Where the rows begin that come too late after row p."""
        return len(self.rows) if limit is None else self.before(self.rows[p][0] + limit)

    def first(self, tests: tuple[Any, ...], p: int, so_far: list[Any], stop: int = FAR) -> bool:
        """Whether the row directly after p, if it comes before `stop`, is one of these."""
        rows = range(p + 1, min(p + 2, len(self.rows), stop))
        return any(self.some(t, rows, so_far) for t in tests)

    def some(self, test: Any, rows: range, so_far: list[Any]) -> bool:
        return any(test(self.rows[i], so_far) for i in rows)

    def barred(self, bars: tuple[Any, ...], q: int, so_far: list[Any]) -> bool:
        return any(test(self.rows[q], so_far) for test in bars)

    def goes(self, go: Go, p: int, stop: int, so_far: list[Any]) -> bool:
        """Whether a loop could have gone on with a row after p, before stop."""
        return any(
            any(
                t(self.rows[x], so_far)
                and not self.barred(bars, x, so_far)
                and not (go.link == "then" and self.some(t, range(p + 1, x), so_far))
                for t, bars in go.tests
            )
            and not (go.link == "next" and x > p + 1)
            and not any(self.some(t, range(p + 1, x + 1), so_far) for t in go.untils)
            and not any(self.some(t, range(p + 1, x), so_far) for t in go.negs)
            and not self.first(go.firsts, p, so_far)
            for x in range(p + 1, min(stop, self.end(p, go.limit)))
        )

    def before(self, time: int) -> int:
        return sum(row[0] < time for row in self.rows)

    def sure(self, word: Word, at: tuple[int, ...]) -> tuple[int, int] | None:
        """When it is sure that this is a match: (time, row), or (time, -1) when time is over."""
        first, last, end = self.rows[at[0]], self.rows[at[-1]], word[-1]
        so_far, p = [self.rows[i] for i in at], at[-1]
        over = FAR if self.span is None else first[0] + self.span
        if self.ending is not None:
            test, length = self.ending
            until = over if length is None else last[0] + length
            rest = range(p + 1, self.before(until))
            ruled_out = any(self.some(t, rest, so_far) for t in (test, *end.negs))
            ruled_out = ruled_out or self.first(end.firsts, p, so_far, rest.stop)
            on = any(self.goes(g, p, self.before(min(until, over)), so_far) for g in end.unless)
            return None if ruled_out or on else (until, -1)
        stop = self.before(over)
        if any(self.goes(g, p, stop, so_far) for g in end.unless):
            return None
        if self.first(end.firsts, p, so_far, stop):
            return None
        if end.negs:  # it may end where no such row may come: sure when the time is over
            ruled_out = any(self.some(t, range(p + 1, stop), so_far) for t in end.negs)
            return None if ruled_out else (over, -1)
        moments = [(last[0], p), *(self.shut(g, p, over, so_far) for g in end.unless)]
        if end.firsts:  # the row after it, which is none of these
            moments.append(self.moment(p + 1) if p + 1 < stop else (over, -1))
        return max(moments)

    def moment(self, row: int) -> tuple[int, int]:
        """When a row comes: after all that its time ends."""
        return (self.rows[row][0], row)

    def shut(self, go: Go, p: int, over: int, so_far: list[Any]) -> tuple[int, int]:
        """When a loop has no way left to go on: by a row, or by time."""
        end = over if go.limit is None else min(over, self.rows[p][0] + go.limit)
        for y in range(p + 1, self.before(end)):
            seen = range(p + 1, y + 1)
            if (
                go.link == "next"
                or self.first(go.firsts, p, so_far)
                or any(self.some(t, seen, so_far) for t in (*go.untils, *go.negs))
                or (go.link == "then" and all(self.some(t, seen, so_far) for t, _ in go.tests))
            ):
                return self.moment(y)
        return (end, -1)

    def timeouts(self, part: Any) -> set[tuple[tuple[str, ...], tuple[int, ...]]]:
        """Beginnings of matches that were waiting when their time was over."""
        every = words(part, len(self.rows) + 1)
        whole = {tuple(s.name for s in w[:-1]) for w in every if w[-1].name != CUT}
        ends: dict[Any, tuple[int, int]] = {}  # when the last way to go on from there ended
        for word in every:
            for count in range(1, len(word) - 1):
                names = tuple(s.name for s in word[:count])
                for at in combinations(range(len(self.rows)), count):
                    if names not in whole and self.fits(word[:count], at):
                        end = self.waits(word[count], at)
                        ends[names, at] = max(end, ends.get((names, at), end))
        return {begun for begun, (_, row) in ends.items() if row < 0}

    def waits(self, step: Step, at: tuple[int, ...]) -> tuple[int, int]:
        """Until when a beginning waits for this step: until a row comes, or time is over."""
        p, so_far = at[-1], [self.rows[i] for i in at]
        end = FAR if self.span is None else self.rows[at[0]][0] + self.span
        end = end if step.limit is None else min(end, self.rows[p][0] + step.limit)
        for y in range(p + 1, self.before(end)):
            rest = range(p + 1, y + 1)
            if (
                step.link == "next"
                or self.first(step.firsts, p, so_far)
                or (step.link == "then" and self.some(step.test, rest, so_far))
                or any(self.some(t, rest, so_far) for t in (*step.negs, *step.untils))
                or any(self.goes(g, p, y + 1, so_far) for g in step.unless)
            ):
                return self.moment(y)
        return (end, -1 if end < FAR else 0)  # what waits for ever has not run out of time


def skipped(found: list[Found], skip: tuple[str, str | None]) -> list[Found]:
    """Those that are told: by first row, and no match that begins before where one says."""
    floor, told = 0, []
    for one in found:
        if one.rows[0] < floor:
            continue
        told.append(one)
        named = [r for n, r in zip(one.names, one.rows, strict=True) if n == skip[1]]
        floor = max(floor, {
            "none": 0, "next": one.rows[0] + 1, "past_last": one.rows[-1] + 1,
            "first": min(named, default=0), "last": max(named, default=0),
        }[skip[0]])  # fmt: skip
    return told
