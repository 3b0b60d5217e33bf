"""What joins have emitted: pairs of rows, rows alone, versions of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product

from evolution.model import END, NOW, Due, Emitted, Life, Seen, by_key, over, seen

NONE = -1  # no row on that side


def _near(life: Life) -> int:
    return life[0].step.length * 1000 + 500


def _sides(life: Life) -> Iterator[tuple[str, list[list[Seen]]]]:
    """The rows of every key, side by side."""
    sides = [by_key(seen(life, n)) for n in range(len(life[0].sides))]
    for key in dict.fromkeys(key for side in sides for key in side):
        yield key, [side.get(key, []) for side in sides]


def pairs(life: Life) -> Iterator[tuple[int, str, Emitted]]:
    """A pair comes with the later of its rows, if they are near by the bounds of then."""
    for key, (lefts, rights) in _sides(life):
        for left, right in product(lefts, rights):
            later = life[max(left.start, right.start)]
            if abs(left.time - right.time) <= _near([later]):
                yield later.number, later.place, (key, left.row["id"], right.row["id"], 0)


def _outer(life: Life, how: str) -> Due:
    found = list[tuple[float, Emitted]]()
    for key, (lefts, rights) in _sides(life):
        met = set[int]()
        for left in lefts:
            others = [
                r for r in rights
                if abs(left.time - r.time) <= _near([life[max(left.start, r.start)]])
            ]  # fmt: skip
            met |= {id(r) for r in others}
            alone = over(life, left.start, left.time)
            if how == "semi" and others:
                later = max(left.time, min(r.time for r in others))
                found.append((later + 1, (key, left.row["id"], NONE, 0)))
            elif how in ("left", "full", "anti") and not others:
                found.append((alone, (key, left.row["id"], NONE, 0)))
            if how in ("inner", "left", "full"):
                found += [(NOW, (key, left.row["id"], r.row["id"], 0)) for r in others]
        if how == "full":
            found += [(over(life, r.start, r.time), (key, NONE, r.row["id"], 0))
                      for r in rights if id(r) not in met]  # fmt: skip
    return found


def _in_window(life: Life, how: str) -> Due:
    found, size = list[tuple[float, Emitted]](), life[0].step.length * 1000
    for key, sides in _sides(life):
        for start in dict.fromkeys(one.time // size * size for side in sides for one in side):
            lefts, rights = (
                [one.row["id"] for one in side if start <= one.time < start + size]
                for side in sides
            )
            both = list(product(lefts, rights))
            if how in ("left", "full") and not rights:
                both += [(left, NONE) for left in lefts]
            if how == "full" and not lefts:
                both += [(NONE, right) for right in rights]
            found += [(start + size, (key, left, right, start)) for left, right in both]
    return found


def _cogroup(life: Life, how: str) -> Due:
    found, size = list[tuple[float, Emitted]](), life[0].step.length * 1000
    for key, sides in _sides(life):
        for start in dict.fromkeys(one.time // size * size for side in sides for one in side):
            left, right = (
                sum(one.row["id"] for one in side if start <= one.time < start + size)
                for side in sides
            )
            found.append((start + size, (key, start, left, right)))
    return found


def _latest(life: Life, how: str) -> Due:
    found = list[tuple[float, Emitted]]()
    for key, (rows, versions) in _sides(life):
        seen_by = set[int]()
        for one in rows:
            known = [n for n, v in enumerate(versions) if v.time <= one.time]
            seen_by |= {*known[-1:]}
            version = versions[known[-1]].row["id"] if known else NONE
            if known or how in ("left", "full"):
                found.append((one.time + 1, (key, one.row["id"], version, 0)))
        for n, version in enumerate(versions if how == "full" else ()):
            if n not in seen_by:
                later = versions[n + 1].time + 1 if n + 1 < len(versions) else END
                found.append((later, (key, NONE, version.row["id"], 0)))
    return found


def _join_all(life: Life, how: str) -> Due:
    """Choices of at most one row of each stream, no two too far apart, that cannot grow."""
    found, near = list[tuple[float, Emitted]](), _near(life)
    for key, sides in _sides(life):
        for chosen in product(*([*side, None] for side in sides)):
            there = [one for one in chosen if one is not None]
            times = [one.time for one in there]
            if not there or max(times) - min(times) > near:
                continue
            whole = len(there) == len(sides)
            if not whole and (how == "inner" or (how == "left" and chosen[0] is None)):
                continue
            if not whole and _grows(chosen, sides, near):
                continue
            ids = [NONE if one is None else one.row["id"] for one in chosen]
            a, b, c = (*ids, 0)[:3]
            found.append((NOW if whole else min(times) + near + 1, (key, a, b, c)))
    return found


def _grows(chosen: tuple[Seen | None, ...], sides: list[list[Seen]], near: int) -> bool:
    there = [one.time for one in chosen if one is not None]
    return any(
        max(*there, other.time) - min(*there, other.time) <= near
        for one, side in zip(chosen, sides, strict=True) if one is None
        for other in side
    )  # fmt: skip


JOINED: dict[str, Callable[[Life, str], Due]] = {
    "outer": _outer, "in_window": _in_window, "cogroup": _cogroup, "latest": _latest,
    "join_all": _join_all,
}  # fmt: skip


def boards(life: Life, sure: float, most: float) -> list[Counter[Emitted]]:
    """The join of two tables, as it may stand at any watermark between these."""
    times = {one.time + 1 for n in (0, 1) for one in seen(life, n)}
    between = sorted(t for t in times if sure < t <= most)
    return [_tables(life, at) for at in [sure, *between]]


def _tables(life: Life, at: float) -> Counter[Emitted]:
    found, how = Counter[Emitted](), life[0].step.how
    for key, sides in _sides(life):
        left, right = (
            next((one.row["id"] for one in reversed(side) if one.time < at), NONE) for side in sides
        )
        lacks = [side for side, one in (("left", left), ("right", right)) if one == NONE]
        if len(lacks) < 2 and not {*lacks} - {"inner": set(), "left": {"right"}}.get(how, {*lacks}):
            found[key, left, right, 1] += 1
    return found
