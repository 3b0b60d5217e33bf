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

A, B, C, D, E = (f"kind = '{kind}'" for kind in "abcde")
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
b_loop, any_b_loop = a.then("m", B).one_or_more(), a.then_any("m", B).one_or_more()
NOT_NEXT = [
    Situation("NotPattern: NotNext", a.not_next("n", B).then_any("m", C).then("e", D),
              "a1 c2 b3 c4 d5", "a1 c2 d5; a1 c4 d5"),
    Situation("NotPattern: NotNextNoMatches", a.not_next("n", B).then("m", C).then("e", D),
              "a1 b3 c2 c4 d5", "-"),
    Situation("NotPattern: NotNextNoMatchesAtTheEnd",
              a.then_any("m", C).then_any("e", D).not_next("n", B), "a1 c2 c4 d5 b3", "-"),
    Situation("NotPattern: NotNextAfterOneOrMoreSkipTillNext, but for b5, with which the loop goes "
              "on after the c", b_loop.not_next("n", C).then("d", D), "a1 b2 c4 b5 d9",
              "a1 b2 b5 d9"),
    Situation("NotPattern: NotNextAfterOneOrMoreSkipTillAny, but for b2 b5, as before",
              any_b_loop.not_next("n", C).then("d", D), "a1 b2 c4 b5 d9", "a1 b5 d9; a1 b2 b5 d9"),
    Situation("Group: GroupNotNext",
              c.then_any(a.then("b", B)).not_next("n", D).then("e", E),
              "c1 a2 b3 d3 a4 b5 e6", "c1 a4 b5 e6"),
]  # fmt: skip
THREE: dict[str, Any] = {"within": "3ms"}
ANY: dict[str, Any] = {"by": "then_any", **THREE}
WIDE, APART = "c1@1 d1@2 a2@3 d2@4 a3@5 a4@6 b5@7", "c1@1 a2@2 a3@4 a4@6 b5@7"
BROKEN = "c1@1 a2@2 d1@3 a3@4 d2@5 a4@6 b5@7"
WITHIN = [
    Situation("NFA: SimplePatternWithTimeWindowNFAWithinPreviousAndCurrent",
              a.then("b", B).then("c", C, within="9ms"), "a1@1 a2@2 b3@3 d4@4 c5@11 c6@13",
              "a1 b3 c5; a2 b3 c5"),
    Situation("NFA: PendingStateMatchesWithinPreviousAndCurrent",
              a.then_not("b", B, within="5ms"), "a1@1 b2@4 a3@5 a4@11 b5@18", "a3; a4"),
    Situation("NFATest: TimeoutWindowPruningWithinPreviousAndNext",
              a.then_any("b", B, within="2ms"), "a1@1 b2@2 a3@3 b4@6 a5@7 b6@8", "a1 b2; a5 b6"),
    Situation("NFA: TimesClearingBufferWithinPreviousAndCurrent",
              c.next("m", A).times(2).then("b", B, within="8ms"), "c1@1 a2@2 a3@3 a4@4 b5@6",
              "c1 a2 a3 b5"),
    Situation("NFA: OptionalClearingBufferWithinPreviousAndCurrent",
              c.then("m", A).optional().then("b", B, within="8ms"), "c1@1 a4@5 b5@6",
              "c1 a4 b5; c1 b5"),
    Situation("NotPattern: NotFollowedByWithinPreviousAndCurrentAtEnd",
              a.then_not("b", B, within="3ms"), "a1@1 b2@2 a3@4 c4@5 b5@10 a7@11 b8@13", "a3"),
    Situation("TimesRange: NonStrictWithNext",
              c.next("m", A).times(2, 3, **ANY).then("b", B), BROKEN,
              "c1 a2 a3 a4 b5; c1 a2 a3 b5"),
    Situation("TimesRange: NotStrictWithFollowedBy", m.times(2, 3, **THREE).then("b", B), APART,
              "c1 a2 a3 a4 b5; c1 a2 a3 b5"),
    Situation("TimesRange: NotStrictWithFollowedByAny, whose time is also that of the first",
              c.then_any("m", A, **THREE).times(2, 3, **ANY).then("b", B), APART,
              "c1 a2 a3 a4 b5; c1 a2 a3 b5"),
    Situation("TimesRange: NonStrict, whose time is also that of the first, but not of the last, "
              "so it has c1 a2 a4", c.then_any("m", A, **THREE).times(1, 3, **ANY).then("b", B),
              WIDE, "c1 a2 a3 a4 b5; c1 a2 a3 b5; c1 a2 b5"),
    Situation("TimesRange: NonStrictOptional2",
              any_m.times(2, 3, **ANY).optional().then("b", B), WIDE,
              "c1 a2 a3 a4 b5; c1 a2 a3 b5; c1 a3 a4 b5; c1 b5"),
    Situation("TimesRange: NonStrictOptional3",
              any_m.times(2, 3, **THREE).optional().then("b", B), WIDE,
              "c1 a2 a3 a4 b5; c1 a2 a3 b5; c1 a3 a4 b5; c1 b5"),
    Situation("TimesOrMore: NonStrictWithNext",
              c.next("m", A).times_or_more(2, **ANY).then("b", B), BROKEN,
              "c1 a2 a3 a4 b5; c1 a2 a3 b5"),
    Situation("TimesOrMore: NotStrictWithFollowedBy", m.times_or_more(2, **THREE).then("b", B),
              APART, "c1 a2 a3 a4 b5; c1 a2 a3 b5"),
    Situation("TimesOrMore: NotStrictWithFollowedByAny, whose time is also that of the first",
              c.then_any("m", A, **THREE).times_or_more(2, **ANY).then("b", B), APART,
              "c1 a2 a3 a4 b5; c1 a2 a3 b5"),
]  # fmt: skip
EVERY = [*UNTIL, *WITHOUT, *NOT_NEXT, *WITHIN]


def rows_of(text: str) -> list[tuple[Any, ...]]:
    found = []
    for number, word in enumerate(text.split()):
        label, _, at = word.partition("@")
        time = EPOCH + timedelta(milliseconds=int(at or number))
        found.append((label, label[0], float(label[1:]), time))
    return found


def job_of(pattern: Any, **options: Any) -> hr.Job:
    job = hr.Job("flink")
    schema = "label string, kind string, price double, at timestamp"
    rows = job.read("log:x", schema=schema, time="at", delay="1s", name="rows")
    found = rows.match(pattern, unbounded=True, name="match", **options)
    found.write("collect:", name="out")
    if options.get("timeouts"):
        found.timeouts.write("collect:", name="over")
    return job


def labels_of(match: Any) -> tuple[str]:
    return (" ".join(row.label for _, row in match.rows),)


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.flink)
def test_flinks_situation_has_flinks_matches(case: Situation) -> None:
    with Harness(job_of(case.pattern, select=labels_of, output="labels string")) as test:
        test.send("rows", rows_of(case.rows))
        test.end()
        assert test.dead() == []
        labels = sorted(row["labels"] for row in test.output("out"))
    assert labels == ([] if case.matches == "-" else sorted(case.matches.split("; ")))


TIMEOUTS = [
    Situation("NFA: SimplePatternWithTimeoutHandlingWithinPreviousAndCurrent",
              a.then_any("b", B).then_any("c", C, within="10ms"),
              "a1@1 a2@2 b3@3 d4@4 c5@11 c6@13", "a1 b3; a2 b3"),
    Situation("CEP: TimeoutHandlingWithinPreviousAndCurrent",
              a.then_any("b", B).then_any("c", C, within="3ms"), "a1@1 a2@4 b2@5 c2@6",
              "a1 b2; a2 b2"),
]  # fmt: skip


@pytest.mark.parametrize("case", TIMEOUTS, ids=lambda case: case.flink)
def test_a_step_whose_time_is_over_has_flinks_timeouts(case: Situation) -> None:
    with Harness(job_of(case.pattern, timeouts=True)) as test:
        test.send("rows", rows_of(case.rows))
        test.end()
        matches, over = test.output("out"), test.output("over")
    assert len(matches) == 2
    had = sorted(f"{row['a']['label']} {row['b']['label']}" for row in over if row["b"])
    assert had == case.matches.split("; ") and all(row["c"] is None for row in over)


def test_what_waits_for_the_next_round_is_held_until_its_time_is_over() -> None:
    """NFA: LoopClearingWithinPreviousAndCurrent."""
    with Harness(job_of(a.times(4, within="3ms"))) as test:
        test.send("rows", rows_of("a1@1 a2@2"))
        test.watermark("rows", "4ms")
        assert test.state("match")["rows"].num_rows == 2
        test.watermark("rows", "5ms")
        assert not any(table.num_rows for table in test.state("match").values())
