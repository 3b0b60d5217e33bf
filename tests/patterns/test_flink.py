"""Situations of Flink's own pattern tests, said in our words: the same rows, the same matches.

Each case names the test of Flink's that it comes from. A row is a letter, its price and, after
"@", its time in milliseconds; without one, rows are a millisecond apart. Where we differ, the case
says so and patterns-compared.md says why.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.testing import Harness

A, B, C, D = (f"kind = '{kind}'" for kind in "abcd")
FIVE, OVER = "price = 5", "price > 3"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Situation(NamedTuple):
    flink: str  # the name of the test there
    pattern: Any
    rows: str
    matches: str


def total_is_6(row: Any, match: Any) -> bool:
    return sum(r.price for r in match["m"]) == 6


def has_three(row: Any, match: Any) -> bool:
    return len(match["m"]) == 3


c, a = hr.pattern("c", C), hr.pattern("a", A)
m, any_m = c.then("m", A), c.then_any("m", A)
RISING, SPLIT = "c1 a2 a3 a5 a6", "c1 a2 a3 a4 a5 a6"
GREEDY = m.one_or_more(greedy=True).until(OVER)
UNTIL = [
    Situation("UntilCondition: FollowedByOneOrMore", m.one_or_more().until(FIVE).then("e", FIVE),
              RISING, "c1 a2 a3 a5; c1 a2 a5"),
    Situation("UntilCondition: FollowedByOneOrMoreCombinations",
              m.one_or_more(by="then_any").until(FIVE).then("e", FIVE), SPLIT,
              "c1 a2 a3 a4 a5; c1 a2 a3 a5; c1 a2 a4 a5; c1 a2 a5"),
    Situation("UntilCondition: FollowedByOneOrMoreConsecutive",
              m.one_or_more(by="next").until(FIVE).then("e", FIVE), RISING,
              "c1 a2 a3 a5; c1 a2 a5"),
    Situation("UntilCondition: FollowedByZeroOrMore",
              m.one_or_more().optional().until(FIVE).then("e", FIVE), RISING,
              "c1 a2 a3 a5; c1 a2 a5; c1 a5"),
    Situation("UntilCondition: FollowedByZeroOrMoreCombinations",
              m.one_or_more(by="then_any").until(FIVE).optional().then("e", FIVE), SPLIT,
              "c1 a2 a3 a4 a5; c1 a2 a3 a5; c1 a2 a4 a5; c1 a2 a5; c1 a5"),
    Situation("UntilCondition: FollowedByZeroOrMoreConsecutive",
              m.one_or_more(by="next").until(FIVE).optional().then("e", FIVE), RISING,
              "c1 a2 a3 a5; c1 a2 a5; c1 a5"),
    Situation("UntilCondition: FollowedByAnyOneOrMore", any_m.one_or_more().until(FIVE), RISING,
              "c1 a2; c1 a2 a3; c1 a3; c1 a6"),
    Situation("UntilCondition: FollowedByAnyZeroOrMore",
              any_m.one_or_more().until(FIVE).optional(), RISING,
              "c1; c1 a2; c1 a2 a3; c1 a3; c1 a6"),
    Situation("UntilCondition: WithEmptyWhere", c.then("m").one_or_more().until(FIVE),
              "c1 a2 a3 d1 a5 a6", "c1 a2; c1 a2 a3; c1 a2 a3 d1"),
    Situation("UntilCondition: IterativeOneOrMore", c.then("m").one_or_more().until(total_is_6),
              "c1 a2 a3 d1 a5 a6", "c1 a2; c1 a2 a3; c1 a2 a3 d1"),
    Situation("UntilCondition: IterativeZeroOrMore",
              c.then("m").one_or_more().until(total_is_6).optional(),
              "c1 a2 a3 d1 a5 a6", "c1; c1 a2; c1 a2 a3; c1 a2 a3 d1"),
    Situation("Greedy: UntilZeroOrMoreWithDummyEventsAfterQuantifier",
              GREEDY.optional(greedy=True).then("d", D), "c1 a2 a3 a3 a4 d3", "c1 a2 a3 a3 d3"),
    Situation("Greedy: UntilWithDummyEventsBeforeQuantifier",
              GREEDY.optional(greedy=True).then("d", D), "c1 a4 a2 a3 a3 d3", "c1 d3"),
    Situation("Greedy: UntilOneOrMoreWithDummyEventsAfterQuantifier", GREEDY.then("d", D),
              "c1 a2 a3 a3 a4 d3", "c1 a2 a3 a3 d3"),
    Situation("Greedy: UntilOneOrMoreWithDummyEventsBeforeQuantifier", GREEDY.then("d", D),
              "c1 a4 a2 a3 a3 d3", "-"),
    Situation("Group: FollowedByOneOrMoreWithUntilCondition",
              c.then(a.then("b", B)).one_or_more().until(D).then("d", D),
              "c1 a2 b3 a4 b5 d6", "c1 a2 b3 a4 b5 d6; c1 a2 b3 d6"),
    Situation("SameElement: ClearingBufferWithUntilAtTheEnd",
              a.then("m", D).one_or_more().until(has_three), "a1@1 d2@2 d3@2 d4@2 d5@4",
              "a1 d2; a1 d2 d3; a1 d2 d3 d4"),
]  # fmt: skip
WITHOUT = [
    Situation("NotPattern: NotFollowedByWithinAtEnd", a.without("b", B).within("3ms"),
              "a1@1 b2@2 a3@4 c4@5 b5@10 a7@11 b8@13", "a3"),
    Situation("NotPattern: NotFollowByBeforeTimesWithin, but for a1, after which there is a b",
              a.without("b", B).then("c", C).times(1, 2).optional().within("3ms"),
              "a1@1 b2@2 a3@10 c4@11 c5@12 a7@20 c8@21 c9@24",
              "a3; a3 c4; a3 c4 c5; a7; a7 c8"),
    Situation("NotPattern: NotFollowedByWithinAtEndAfterMatch",
              a.one_or_more(by="then_any").then("c", C).without("b", B).within("5ms")
              .skip_past_last(), "a1@1 a2@2 a3@3 c4@4 c5@10", "a1 a2 a3 c4"),
    Situation("NFA: PendingStateMatches", a.without("b", B).within("5ms"),
              "a1@1 b2@4 a3@5 a4@11 b5@18", "a3; a4"),
]  # fmt: skip
EVERY = [*UNTIL, *WITHOUT]


def rows_of(text: str) -> list[tuple[Any, ...]]:
    found = []
    for number, word in enumerate(text.split()):
        label, _, at = word.partition("@")
        time = EPOCH + timedelta(milliseconds=int(at or number))
        found.append((label, label[0], float(label[1:]), time))
    return found


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.flink)
def test_flinks_situation_has_flinks_matches(case: Situation) -> None:
    job = hr.Job("flink")
    schema = "label string, kind string, price double, at timestamp"
    rows = job.read("log:x", schema=schema, time="at", delay="1s", name="rows")
    found = rows.match(
        case.pattern, select=lambda match: (" ".join(r.label for _, r in match.rows),),
        output="labels string", unbounded=True,
    )  # fmt: skip
    found.write("collect:", name="out")
    with Harness(job) as test:
        test.send("rows", rows_of(case.rows))
        test.end()
        assert test.dead() == []
        labels = sorted(row["labels"] for row in test.output("out"))
    assert labels == ([] if case.matches == "-" else sorted(case.matches.split("; ")))
