"""A job that looks for a pattern, driven beside the model: cut, crashed and started anew at will.

Each key is a sequence of its own. Rows come out of order by up to the delay, and some too late.
After every batch the job must have told what the model says is sure by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.patterns.cases import KINDS, SCHEMA, UNIT, Case
from tests.patterns.model import FAR, Judge, skipped

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = 100 * UNIT
LONG = 1_000 * UNIT  # longer than any stream and any pattern


@dataclass(frozen=True)
class Row:
    key: str
    kind: str
    v: int
    n: int  # its number in the stream
    time: int

    def record(self) -> tuple[Any, ...]:
        at = EPOCH + timedelta(milliseconds=self.time)
        return (self.key, self.kind, self.v, self.n, at)

    def plain(self) -> tuple[Any, ...]:
        return (self.time, self.kind, self.v, self.n)


@dataclass(frozen=True)
class Stream:
    batches: tuple[tuple[str, tuple[Row, ...]], ...]  # what happens first, and the rows
    delay: int

    def seen(self) -> tuple[list[Row], list[int]]:
        """The rows that are not late, in order, and the watermark after each batch."""
        mark, marks, rows = -FAR, [], []
        for _, batch in self.batches:
            rows += [r for r in batch if r.time >= mark]
            mark = max([mark, *(r.time - self.delay for r in batch)])
            marks.append(mark)
        return sorted(rows, key=lambda r: (r.time, r.n)), marks


@st.composite
def streams(draw: Any, keys: int, most: int = 7) -> Stream:
    """Some rows of each key, spread over a few batches."""
    row = st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 2), st.integers(0, 3))
    drawn = draw(st.lists(st.lists(row, min_size=2, max_size=most), min_size=keys, max_size=keys))
    rows = []
    for key, sequence in enumerate(drawn):
        time = START
        for kind, v, step, jitter in sequence:
            time += step * UNIT
            rows.append((time + jitter * UNIT, f"k{key}", kind, v))
    rows.sort(key=lambda r: r[0])
    late = draw(st.lists(st.integers(0, max(len(rows) - 1, 0)), max_size=4))
    for i in sorted(late, reverse=True):  # some come at the end, whenever they were
        rows.append(rows.pop(i)) if rows else None
    made = [Row(key, kind, v, n, time) for n, (time, key, kind, v) in enumerate(rows)]
    cuts = sorted({0, *draw(st.lists(st.integers(0, len(made)), max_size=5))})
    events = st.sampled_from(["", "", "", "crash", "restart"])
    batches = [
        (draw(events), tuple(made[a:b]))
        for a, b in zip(cuts, [*cuts[1:], len(made)], strict=True) if made[a:b]
    ]  # fmt: skip
    return Stream(tuple(batches), draw(st.sampled_from([1, 2, 5])) * UNIT)


def job_of(match: Any, delay: int) -> hr.Job:
    job = hr.Job("patterns")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay=f"{delay}ms", name="rows")
    match(rows.key_by("k"))
    return job


Told = Counter[tuple[str, tuple[tuple[str, int], ...]]]  # (key, ((name, number), ...))


def told(rows: Iterable[dict[str, Any]]) -> Told:
    """Matches as the job gives them, with a column per name."""
    found: Told = Counter()
    for row in rows:
        pairs = []
        for name, value in row.items():
            if name in ("k", "pattern") or value is None:
                continue
            pairs += [(name, one["n"]) for one in (value if isinstance(value, list) else [value])]
        found[row["k"], _ordered(pairs)] += 1
    return found


def _ordered(pairs: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(pairs, key=lambda pair: pair[1]))


def expected(case: Case, rows: list[Row], until: int | None = None) -> Told:
    """What the model says; with `until`, what is sure when the watermark is there."""
    found: Told = Counter()
    for key in sorted({r.key for r in rows}):
        mine = [r.plain() for r in rows if r.key == key]
        matches = Judge(mine, case.span, case.ending).matches(case.tree)
        for one in skipped(matches, case.skip):
            time, row = one.sure
            if until is None or (time if row < 0 else time + 1) <= until:
                pairs = zip(one.names, (mine[i][3] for i in one.rows), strict=True)
                found[key, _ordered(pairs)] += 1
    return found


def drive(case: Case, stream: Stream) -> None:
    """Run the job over the stream; it must tell what the model tells, when the model does."""
    rows, marks = stream.seen()

    def match(keyed: Any) -> None:
        keyed.match(case.pattern(), unbounded=not case.bounded).write("collect:", name="out")

    with Harness(job_of(match, stream.delay)) as test:
        had: Told = Counter()
        for (event, batch), mark in zip(stream.batches, marks, strict=True):
            if event:
                getattr(test, event)()
            test.send("rows", [r.record() for r in batch])
            had += told(test.output("out"))
            if case.skip[0] == "none":
                compare(had, expected(case, rows, mark))
        if case.bounded:  # nothing more has to come for all to be told and forgotten
            test.watermark("rows", START + LONG)
            had += told(test.output("out"))
            compare(had, expected(case, rows))
            nothing_left(test)
        test.end()
        had += told(test.output("out"))
        compare(had, expected(case, rows))
        nothing_left(test)
        late = sum(len(b) for _, b in stream.batches) - len(rows)
        assert len(test.late()) == late
        assert test.dead() == []


def nothing_left(test: Harness) -> None:
    left = {name: table.num_rows for name, table in test.state().items()}
    assert not any(left.values()), left


def compare(had: Told, wanted: Told) -> None:
    lines = [f"  only the job: {one}" for one in (had - wanted).elements()]
    lines += [f"  only the model: {one}" for one in (wanted - had).elements()]
    assert not lines, "\n".join(sorted(lines))
