"""Several patterns at once, timeouts, JSON and rules that come and go: against the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.patterns.cases import FEATURES, SCHEMA, UNIT, Case
from tests.patterns.driving import (
    EPOCH,
    START,
    Row,
    Stream,
    compare,
    expected,
    job_of,
    streams,
    told,
)
from tests.patterns.model import Judge
from tests.patterns.test_against_model import KEYS, OPTIONS, SEQUENCES

EXAMPLES = max(-(-SEQUENCES // KEYS), 3)
SKIPS = ("skip", "skip anything", "not next, skip", "step within, skip")
TEXTUAL = [f for f in FEATURES if "functions" not in f]
EXPRESSIONS = [f for f in TEXTUAL if f not in ("then_not", *SKIPS)]
TEXTS = st.sampled_from([*EXPRESSIONS, "then_not"]).flatmap(FEATURES.__getitem__)
WRITTEN = st.sampled_from(TEXTUAL).flatmap(FEATURES.__getitem__)


def play(test: Harness, stream: Stream) -> None:
    for event, batch in stream.batches:
        if event:
            getattr(test, event)()
        test.send("rows", [r.record() for r in batch])
    test.end()


def by_pattern(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = {row["pattern"] for row in rows}
    return {name: told(r for r in rows if r["pattern"] == name) for name in names}


@settings(max_examples=EXAMPLES, **OPTIONS)
@given(data=st.data())
def test_several_patterns_are_each_found(data: Any) -> None:
    every = st.sampled_from([*FEATURES]).flatmap(FEATURES.__getitem__)
    cases = {f"x{i}": data.draw(every) for i in range(3)}
    stream = data.draw(streams(KEYS))
    rows, _ = stream.seen()

    def match(keyed: Any) -> None:
        patterns = {name: case.pattern() for name, case in cases.items()}
        keyed.match(patterns, unbounded=True).write("collect:", name="out")

    with Harness(job_of(match, stream.delay)) as test:
        play(test, stream)
        found = by_pattern(test.output("out"))
    for name, case in cases.items():
        compare(found.get(name, Counter()), expected(case, rows))


@settings(max_examples=EXAMPLES, **OPTIONS)
@given(data=st.data())
def test_what_was_never_complete_is_told(data: Any) -> None:
    every = st.sampled_from([*EXPRESSIONS, "functions"]).flatmap(FEATURES.__getitem__)
    case = data.draw(every.filter(lambda case: case.span is not None))  # else refused
    stream = data.draw(streams(KEYS, most=5))
    rows, _ = stream.seen()

    def match(keyed: Any) -> None:
        found = keyed.match(case.pattern(), timeouts=True)
        found.write("collect:", name="out")
        found.timeouts.write("collect:", name="over")

    with Harness(job_of(match, stream.delay)) as test:
        play(test, stream)
        compare(told(test.output("out")), expected(case, rows))
        over = told(test.output("over"))
    wanted: Any = Counter()
    for key in {r.key for r in rows}:
        mine = [r.plain() for r in rows if r.key == key]
        for parts, at in Judge(mine, case.span).timeouts(case.tree):
            pairs = zip(parts, (mine[i][3] for i in at), strict=True)
            wanted[key, tuple(sorted(pairs, key=lambda p: p[1]))] += 1
    compare(over, wanted)


@settings(max_examples=max(EXAMPLES * KEYS, 60), **OPTIONS)
@given(case=WRITTEN)
def test_a_pattern_comes_back_from_json(case: Case) -> None:
    pattern = case.pattern()
    text = pattern.to_json()
    back = hr.Pattern.from_json(text)
    assert back.to_json() == text
    assert str(back) == str(pattern)


def test_a_pattern_tells_how_its_loops_go() -> None:
    a = hr.pattern("a", "v = 1")
    loop = a.then("b", "v = 2").one_or_more(by="next", greedy=True).until("v = 3")
    assert str(loop) == "a then b+ by next greedy until (v = 3)"
    assert str(a.times(2, 4).until("v = 3", lambda row: row.v > 4).then("c").optional(greedy=True)
               ) == "a{2,4} until (v = 3 and a function) then c? greedy"  # fmt: skip
    assert str(a.then("b").times(2)) == "a then b{2}"


def test_a_pattern_tells_its_times_and_what_is_not_next() -> None:
    a = hr.pattern("a", "v = 1")
    said = [
        (a.then("b", within="5s"), "a then within 5s b"),
        (a.then("b").within("5s"), "a then b within 5s"),
        (a.times(2, within="5s"), "a{2} each within 5s"),
        (a.times(2).within("5s"), "a{2} within 5s"),
        (a.not_next("n", "v = 2").then_any("b", within="90s"),
         "a not next n then any within 90s b"),
    ]  # fmt: skip
    assert [str(pattern) for pattern, _ in said] == [text for _, text in said]


# rules


Rule = tuple[int, str, Case | None]  # time, name, and the pattern, or none to remove it


@st.composite
def controls(draw: Any) -> list[Rule]:
    """Rules that come, are replaced and go, in order of time, each at a time of its own."""
    count = draw(st.integers(1, 5))
    names = draw(st.lists(st.sampled_from(["x", "y"]), min_size=count, max_size=count))
    times = draw(st.lists(st.integers(-2, 12), min_size=count, max_size=count, unique=True))
    cases = draw(st.lists(st.none() | TEXTS, min_size=count, max_size=count))
    return [
        (START + t * UNIT + 500, n, c) for t, n, c in zip(sorted(times), names, cases, strict=True)
    ]


def versions(rules: list[Rule]) -> Iterable[tuple[str, Case, int, int | None]]:
    for i, (since, name, case) in enumerate(rules):
        later = [time for time, other, _ in rules[i + 1 :] if other == name]
        if case is not None:
            yield name, case, since, later[0] if later else None


def ruled(rules: list[Rule], rows: list[Row]) -> dict[str, Any]:
    """What the model says: each version sees the rows of its time, and nothing after it."""
    found: dict[str, Any] = {"x": Counter(), "y": Counter()}
    for name, case, since, until in versions(rules):
        mine = [r for r in rows if since <= r.time and (until is None or r.time < until)]
        found[name] += expected(case, mine, until)
    return found


def control_job(delay: int) -> hr.Job:
    job = hr.Job("ruled")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay=f"{delay}ms", name="rows")
    control = job.read("log:c", schema="name string, pattern string, at timestamp", time="at",
                       delay="1ms", name="control")  # fmt: skip
    found = rows.key_by("k").match(rules=control.broadcast(), unbounded=True)
    found.write("collect:", name="out")
    return job


def flat(row: dict[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for pair in row["rows"]:
        parts.setdefault(pair["name"], []).append(pair["row"])
    return {"k": row["k"], "pattern": row["pattern"], **parts}


@settings(max_examples=EXAMPLES, **OPTIONS)
@given(data=st.data())
def test_rules_count_from_their_time_to_the_next(data: Any) -> None:
    rules, stream = data.draw(controls()), data.draw(streams(KEYS))
    rows, marks = stream.seen()
    places = st.integers(0, len(stream.batches))
    turns = sorted(data.draw(st.lists(places, min_size=len(rules), max_size=len(rules))))
    with Harness(control_job(stream.delay)) as test:
        for turn in range(len(stream.batches) + 1):
            mine = [rule for rule, when in zip(rules, turns, strict=True) if when == turn]
            if mine:
                test.send("control", [record(rule) for rule in mine])
            if turn < len(stream.batches):
                event, batch = stream.batches[turn]
                if event:
                    getattr(test, event)()
                test.send("rows", [r.record() for r in batch])
        test.end()
        found = by_pattern([flat(row) for row in test.output("out")])
        assert test.dead() == []
        left = {n: t.num_rows for n, t in test.state().items() if n != "rules"}
        assert not any(left.values()), left
    known = [-(2**60), *marks]  # a rule that is behind the watermark counts from there on
    real = [(max(time, known[turn]), name, case)
            for (time, name, case), turn in zip(rules, turns, strict=True)]  # fmt: skip
    wanted = ruled(real, rows)
    for name in ("x", "y"):
        compare(found.get(name, Counter()), wanted[name])


def record(rule: Rule) -> tuple[Any, ...]:
    time, name, case = rule
    text = case.pattern().to_json() if case is not None else ""
    return name, text, EPOCH + timedelta(milliseconds=time)
