"""What the outputs of a chain hold, beside what the model says they must."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import headrace as hr
from evolution.build import SEEN
from evolution.kinds import NET, ROWS
from evolution.lives import Begun, Life, life_of
from evolution.model import Segment
from evolution.model_rows import arrivals
from evolution.model_time import by_time, nets
from evolution.places import PARTITIONS, Places, partition_of
from evolution.spec import Version

COLUMNS = ("label", "version", "key", "a", "b", "c")
Place = tuple[str, str]
Held = dict[Place, Counter[Any]]


def compare(root: Path, begun: Sequence[Begun], places: Places, printed: str, result: Any) -> None:
    """Note in `result` what was compared, and what is not as it must be."""
    wrong: list[str] = result.violations
    seen, strange = _seen(root, begun, places)
    wrong += strange
    held = _held(root, begun, printed)
    result.records += sum(sum(c.values()) for c in held.values())
    allowed = defaultdict[str, set[Place]](set)
    for b in begun:
        for branch in b.version.branches:
            allowed[branch.label].add((branch.output.kind, branch.output.place))
    for place, found in held.items():
        strays = [row for row in found if place not in allowed[row[0]]]
        wrong += [f"{place} holds {row}, which was never to go there" for row in strays[:3]]
    for label in allowed:
        life = life_of(label, begun, seen, places.grown)
        if life is None:
            result.unclear += 1
        elif not strange:
            result.compared[life.segments[0].step.kind] += 1
            wrong += _label(label, life, begun[-1].version, held)


def stored(root: Path, begun: Sequence[Begun]) -> set[str]:
    """The branches that have taken part in an epoch, as far as outputs show it."""
    seen = set[int]()
    for place, life in {(i.place, i.life) for b in begun for i in b.version.inputs}:
        seen |= {*hr.collected(str(root / "job"), f"{SEEN} {place} {life}")["version"].to_pylist()}
    return {x.label for b in begun if b.number in seen for x in b.version.branches}


def _seen(
    root: Path, begun: Sequence[Begun], places: Places
) -> tuple[dict[tuple[str, int, int], list[Any]], list[str]]:
    """Which rows of each place each start has read, by the life of the input; each row once."""
    found, wrong = dict[tuple[str, int, int], list[Any]](), list[str]()
    last = {(i.place, i.life) for i in begun[-1].version.inputs}
    for place, life in {(i.place, i.life) for b in begun for i in b.version.inputs}:
        table = hr.collected(str(root / "job"), f"{SEEN} {place} {life}").to_pylist()
        ids, due = sorted(r["id"] for r in table), places.sent(place, life)
        all_ = [r["id"] for r in due]
        if not (ids == all_ if (place, life) in last else _begins(ids, place, due)):
            wrong.append(f"input {place} life {life}: read {ids}, but there are {all_}")
        by_id = {r["id"]: r for r in places.rows[place]}
        for number in {r["version"] for r in table}:
            part = sorted(r["id"] for r in table if r["version"] == number)
            found[place, life, number] = [by_id[i] for i in part if i in by_id]
    return found, wrong


def _begins(ids: list[int], place: str, due: list[dict[str, Any]]) -> bool:
    """Whether these are the first rows of every partition, each once."""
    read, taken = {*ids}, 0
    for number in range(PARTITIONS.get(place, 1)):
        part = [r["id"] for r in due if partition_of(place, r) == number]
        count = sum(i in read for i in part)
        taken += count
        if not read.issuperset(part[:count]):
            return False
    return taken == len(ids)


def _held(root: Path, begun: Sequence[Begun], printed: str) -> dict[Place, Counter[Any]]:
    outputs = {(o.kind, o.place): o for b in begun for o in (x.output for x in b.version.branches)}
    held = {}
    for where, o in outputs.items():
        now = [x.output.name for x in begun[-1].version.branches if x.output.place == o.place]
        name = o.place if o.kind != "collect" else [*now, o.place][0]
        lines = printed.splitlines() if o.kind == "console" else ()
        rows = map(json.loads, lines) if o.kind == "console" else _read(root, o.kind, name)
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


def _label(label: str, life: Life, last: Version, held: dict[Place, Counter[Any]]) -> list[str]:
    mine = {
        place: Counter({r: n for r, n in c.items() if r[0] == label}) for place, c in held.items()
    }
    alive = any(b.label == label for b in last.branches)
    problems, cuts, segments = [""], life.cuts, life.segments
    if not cuts and len({(s.step.identity(), *s.of) for s in segments if any(s.sides)}) > 1:
        return [f"{label} has gone on as another step: {[s.step for s in segments]}"]
    for some in [c for n in range(len(cuts) + 1) for c in combinations(cuts, n)]:
        lives = [segments[i:j] for i, j in pairwise([0, *some, len(segments)])]
        problems = list(_differences(label, lives, alive, mine))
        if not problems:
            return []
    return [f"{label} ({segments[0].step}): {problem}" for problem in problems]


def _differences(
    label: str, lives: Sequence[Sequence[Segment]], alive: bool, mine: dict[Place, Counter[Any]]
) -> Iterator[str]:
    step = lives[0][0].step
    if step.of.emits != ROWS:
        yield from (_net if step.of.emits == NET else _by_time)(lives, alive, mine)
        return
    due = defaultdict[str, Counter[Any]](Counter)
    for life in lives:
        for number, place, emitted in arrivals(life):
            due[place][label, number, *emitted] += 1
    for (kind, place), found in mine.items():
        wanted = due[f"{kind}:{place}"]
        lacks = wanted - found if step.kind != "share" else Counter[Any]()
        more = found - wanted
        if kind == "console":  # at least once
            more = Counter({row: n for row, n in more.items() if row not in wanted})
        if lacks or more:
            yield f"{kind}:{place} lacks {_few(lacks)}, has besides {_few(more)}"


def _with_aggregates(life: Sequence[Segment], alive: bool, mine: Held) -> Iterator[str]:
    """Each result is told once, and by the aggregates of the version that told it."""
    steps = {s.number: s.step for s in life}
    told, besides = Counter[Any](), Counter[Any]()
    again = any(kind == "console" and counted for (kind, _), counted in mine.items())
    for step in dict.fromkeys(steps.values()):
        found = Counter[Any]()
        for row, n in ((r, n) for counted in mine.values() for r, n in counted.items()):
            if steps.get(row[1]) == step:
                found[row[2:]] += n
                told[row[2:4]] += n
        sure, most = by_time(life, closed=alive, of=step)
        besides += Counter({r: n for r, n in (found - most).items() if not (again and r in most)})
    if besides:
        yield f"has besides {_few(besides)}"
    sure, most = (Counter({}) for _ in "ab")
    for of_all, some in zip((sure, most), by_time(life, closed=alive), strict=True):
        for row, n in some.items():
            of_all[row[:2]] += n
    more = Counter({r: n for r, n in (told - most).items() if not (again and r in most)})
    if sure - told or more:
        yield f"of {life[0].step.kind} lacks {_few(sure - told)}, has twice {_few(more)}"


def _by_time(
    lives: Sequence[Sequence[Segment]], alive: bool, mine: dict[Place, Counter[Any]]
) -> Iterator[str]:
    if len({(s.step.names, s.step.aggs) for life in lives for s in life}) > 1:
        (life,) = lives  # a step without a name cannot have changed them
        yield from _with_aggregates(life, alive, mine)
        return
    found = Counter[Any]()
    for counted in mine.values():
        for row, n in counted.items():
            found[row[2:]] += n
    sure, most = Counter[Any](), Counter[Any]()
    for life in lives:
        least, all_ = by_time(life, closed=alive and life is lives[-1])
        sure, most = sure + least, most + all_
    more = found - most
    if any(kind == "console" and counted for (kind, _), counted in mine.items()):
        more = Counter({row: n for row, n in more.items() if row not in most})
    if sure - found:
        yield f"lacks {_few(sure - found)}"
    if more:
        yield f"has besides {_few(more)}"


def _net(
    lives: Sequence[Sequence[Segment]], alive: bool, mine: dict[Place, Counter[Any]]
) -> Iterator[str]:
    """What is true now, of what was told as changes; a board that began anew adds to the old."""
    found = Counter[Any]()
    for (kind, _), counted in mine.items():
        if kind == "console" and counted:
            return  # told twice it cannot be applied
        for row, n in counted.items():
            found[*row[2:5], 1] += n * row[5]
    found = Counter({row: n for row, n in found.items() if n})
    choices = [nets(life, closed=alive and life is lives[-1]) for life in lives]
    if not any(sum(chosen, Counter[Any]()) == found for chosen in product(*choices)):
        wanted = sum((of_life[-1] for of_life in choices), Counter[Any]())
        yield f"lacks {_few(wanted - found)}, has besides {_few(found - wanted)}"


def _few(counted: Counter[Any]) -> list[Any]:
    return sorted(counted.items())[:4]
