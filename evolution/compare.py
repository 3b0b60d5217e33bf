"""What the outputs of a chain hold, beside what the model says they must."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import headrace as hr
from evolution.build import SEEN
from evolution.judge import identity
from evolution.model import Segment, arrivals, by_time
from evolution.spec import BY_BATCH, TIMED, Version

COLUMNS = ("label", "version", "key", "a", "b", "c")
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Begun:
    """A start that went on to run."""

    number: int
    version: Version
    crashed: bool


def compare(root: Path, begun: Sequence[Begun], rows: dict[str, Any], result: Any) -> list[str]:
    seen, wrong = _seen(root, begun, rows)
    held = _held(root, begun)
    result.records += sum(sum(c.values()) for c in held.values())
    allowed = defaultdict[str, set[Place]](set)
    for b in begun:
        for branch in b.version.branches:
            allowed[branch.label].add((branch.output.kind, branch.output.place))
    for place, found in held.items():
        strange = [row for row in found if place not in allowed[row[0]]]
        wrong += [f"{place} holds {row}, which was never to go there" for row in strange[:3]]
    for label in allowed:
        wrong += _label(label, begun, seen, held)
    return wrong


def stored(root: Path, begun: Sequence[Begun]) -> set[str]:
    """The branches that have taken part in an epoch, as far as outputs show it."""
    seen = set[int]()
    for place, life in {(i.place, i.life) for b in begun for i in b.version.inputs}:
        seen |= {*hr.collected(str(root / "job"), f"{SEEN} {place} {life}")["version"].to_pylist()}
    return {x.label for b in begun if b.number in seen for x in b.version.branches}


def _seen(
    root: Path, begun: Sequence[Begun], rows: dict[str, Any]
) -> tuple[dict[tuple[str, int, int], list[Any]], list[str]]:
    """Which rows of each place each start has read, by the life of the input; each row once."""
    found, wrong = dict[tuple[str, int, int], list[Any]](), list[str]()
    last = {(i.place, i.life) for i in begun[-1].version.inputs}
    for place, life in {(i.place, i.life) for b in begun for i in b.version.inputs}:
        table = hr.collected(str(root / "job"), f"{SEEN} {place} {life}").to_pylist()
        ids = sorted(r["id"] for r in table)
        due = [r["id"] for r in rows[place]]
        if ids != (due if (place, life) in last else due[: len(ids)]):
            wrong.append(f"input {place} life {life}: read {ids}, but there are {due}")
        by_id = {r["id"]: r for r in rows[place]}
        for number in {r["version"] for r in table}:
            part = sorted(r["id"] for r in table if r["version"] == number)
            found[place, life, number] = [by_id[i] for i in part]
    return found, wrong


def _held(root: Path, begun: Sequence[Begun]) -> dict[Place, Counter[Any]]:
    outputs = {(o.kind, o.place): o for b in begun for o in (x.output for x in b.version.branches)}
    held = {}
    for where, o in outputs.items():
        now = [x.output.name for x in begun[-1].version.branches if x.output.place == o.place]
        name = o.place if o.kind != "collect" else [*now, o.place][0]
        rows = _read(root, o.kind, name)
        held[where] = Counter(tuple(r[c] for c in COLUMNS) for r in rows)
    return held


def _read(root: Path, kind: str, place: str) -> Iterator[dict[str, Any]]:
    if kind == "collect":
        yield from hr.collected(str(root / "job"), place).to_pylist()
    elif kind == "log":
        log = hr.EmbeddedLog(str(root / "log"))
        for partition in range(len(log.latest(place))):
            for _, table in log.read(place, partition, 0):
                yield from table.to_pylist()
    else:  # as a reader sees them who knows nothing of us
        for file in sorted((root / "out" / place).glob("[!_.]*")):
            if file.suffix == ".parquet":
                yield from pq.ParquetFile(file).read().to_pylist()
            else:
                yield from (json.loads(line) for line in file.read_text().splitlines())


def _label(
    label: str, begun: Sequence[Begun], seen: Any, held: dict[Place, Counter[Any]]
) -> list[str]:
    life, cuts = _life(label, begun, seen)
    if life is None:
        return []  # the guide does not say what it has seen
    mine = {
        place: Counter({r: n for r, n in c.items() if r[0] == label}) for place, c in held.items()
    }
    alive = any(b.label == label for b in begun[-1].version.branches)
    problems = [""]
    if not cuts and len({identity(s.step) for s in life if any(s.sides)}) > 1:
        return [f"{label} has gone on as another step: {[s.step for s in life]}"]
    for some in [c for n in range(len(cuts) + 1) for c in combinations(cuts, n)]:
        bounds = [0, *some, len(life)]
        lives = [life[i:j] for i, j in pairwise(bounds)]
        problems = list(_differences(label, lives, alive, mine))
        if not problems:
            return []
    kind = life[0].step
    return [f"{label} ({kind}): {problem}" for problem in problems]


def _life(label: str, begun: Sequence[Begun], seen: Any) -> tuple[list[Segment] | None, list[int]]:
    """What a step has seen, start by start, and where it may have begun anew."""
    life, cuts, places = list[Segment](), list[int](), set[tuple[Any, ...]]()
    for before, b in zip([None, *begun], begun, strict=False):
        for branch in (x for x in b.version.branches if x.label == label):
            s = branch.step
            inputs = [b.version.input(i) for i in s.inputs]
            sides = tuple(tuple(seen.get((i.place, i.life, b.number), ())) for i in inputs)
            ended = all(i.kind == "rows" for i in inputs) and not b.crashed
            times = tuple(i.time for i in inputs)
            place = f"{branch.output.kind}:{branch.output.place}"
            if life and before is not None and s.name is None and b.version.drop is True:
                cuts.append(len(life))
            life.append(Segment(b.number, s, place, sides, times, ended, b.crashed))
            places.add((tuple((i.place, i.life) for i in inputs), times, s.length, s.kind))
    while len(life) > 1 and not any(life[0].sides):
        life, cuts = life[1:], [c - 1 for c in cuts if c > 1]
    timed = life[0].step.kind in TIMED
    strange = timed and (len(places) > 1 or _turned_back(label, begun))
    return (None if strange else life), cuts


def _turned_back(label: str, begun: Sequence[Begun]) -> bool:
    """Whether an input of the step had another column of event time before."""
    mine = {
        (i.place, i.life)
        for b in begun for x in b.version.branches if x.label == label
        for i in (b.version.input(n) for n in x.step.inputs)
    }  # fmt: skip
    return any(
        len({i.time for b in begun for i in b.version.inputs if (i.place, i.life) == one}) > 1
        for one in mine
    )


def _differences(
    label: str, lives: Sequence[Sequence[Segment]], alive: bool, mine: dict[Place, Counter[Any]]
) -> Iterator[str]:
    if lives[0][0].step.kind in BY_BATCH:
        yield from _by_time(lives, alive, mine)
        return
    due = defaultdict[str, Counter[Any]](Counter)
    for life in lives:
        for number, place, emitted in arrivals(life):
            due[place][label, number, *emitted] += 1
    for (kind, place), found in mine.items():
        wanted = due[f"{kind}:{place}"]
        if found != wanted:
            yield f"{kind}:{place} lacks {_few(wanted - found)}, has besides {_few(found - wanted)}"


def _by_time(
    lives: Sequence[Sequence[Segment]], alive: bool, mine: dict[Place, Counter[Any]]
) -> Iterator[str]:
    found = Counter[Any]()
    for counted in mine.values():
        for row, n in counted.items():
            if lives[0][0].step.kind == "top":
                found[*row[2:5], 1] += n * row[5]
            else:
                found[row[2:]] += n
    found = Counter({row: n for row, n in found.items() if n})
    sure, most = Counter[Any](), Counter[Any]()
    for life in lives:
        least, all_ = by_time(life, closed=alive and life is lives[-1])
        sure, most = sure + least, most + all_
    if sure - found:
        yield f"lacks {_few(sure - found)}"
    if found - most or any(n < 0 for n in found.values()):
        yield f"has besides {_few(found - most)} {[r for r, n in found.items() if n < 0][:4]}"


def _few(counted: Counter[Any]) -> list[Any]:
    return sorted(counted.items())[:4]
