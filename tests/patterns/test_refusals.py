"""A pattern that cannot match is refused when it is built, each mistake with a code of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr

a = hr.pattern("a", "value = 1")
b = hr.pattern("b", "value = 2")


def stream() -> tuple[hr.Job, Any]:
    job = hr.Job("refused")
    rows = job.read("log:x", schema="key string, value bigint, at timestamp", time="at",
                    delay="1s", name="rows")  # fmt: skip
    return job, rows


def codes(job: hr.Job) -> list[str]:
    try:
        job.check()
    except hr.PlanError as error:
        assert all(p.hint and p.site for p in error.problems), error
        return [p.code for p in error.problems]
    return []


AT_ONCE: list[tuple[str, int, Callable[[], Any]]] = [
    ("a choice of nothing is empty", 1, hr.either),
    ("a choice of one is none", 1, lambda: hr.either(a)),
    ("a text without parts is empty", 1, lambda: hr.Pattern.from_json('{"parts": []}')),
    ("two parts of one name", 2, lambda: a.then("a", "value = 2")),
    ("two parts of one name, one of them forbidden", 2, lambda: a.without("a").then("b")),
    ("two parts of one name in a choice", 2, lambda: hr.either(a, a)),
    ("two parts of one name in a group", 2, lambda: a.then(b.then("a"))),
    ("a name that is no name", 3, lambda: hr.pattern("", "value = 1")),
    ("a name that is no text", 3, lambda: a.then(7, "value = 1")),  # type: ignore[arg-type]
    ("no times at all", 4, lambda: a.times(0)),
    ("times that fall", 4, lambda: a.times(4, 2)),
    ("times that are no number", 4, lambda: a.times("2")),  # type: ignore[arg-type]
    ("until without a loop", 5, lambda: a.until("value = 2")),
    ("until of an optional part", 5, lambda: a.optional().until("value = 2")),
    ("no time to match in", 10, lambda: a.within("0s")),
    ("no time to wait for", 10, lambda: a.then_not("b", within="0s")),
    ("no time for a step", 10, lambda: a.then("b", within="0s")),
    ("no time for a round", 10, lambda: a.one_or_more(within="0s")),
    ("a part with its own within", 12, lambda: a.then(b.within("5s"))),
    ("a part with its own ending", 12, lambda: hr.either(a, b.then_not("c", within="5s"))),
    ("a count of a count", 13, lambda: a.times(2).times(3)),
    ("a count of what is optional", 13, lambda: a.optional().one_or_more()),
    ("optional twice", 13, lambda: a.optional().optional()),
    ("rows that follow by nothing known", 15, lambda: a.one_or_more(by="soon")),
    ("a function has no JSON", 17, lambda: hr.pattern("a", lambda row: True).to_json()),
    ("JSON that is none", 18, lambda: hr.Pattern.from_json("{")),
    ("JSON that is something else", 18, lambda: hr.Pattern.from_json('{"part": []}')),
    ("JSON with a strange link", 18, lambda: hr.Pattern.from_json(
        '{"parts": [{"name": "a"}, {"name": "b", "link": "soon"}]}')),
    ("JSON with a strange skip", 18, lambda: hr.Pattern.from_json(
        '{"parts": [{"name": "a"}], "skip": {"to": "there"}}')),
    ("JSON with a condition that is no text", 18, lambda: hr.Pattern.from_json(
        '{"parts": [{"name": "a", "where": 1}]}')),
    ("something after the end", 19, lambda: a.then_not("b", within="5s").then("c")),
    ("two endings", 19, lambda: a.then_not("b", within="5s").then_not("c", within="5s")),
    ("a condition that is none", 20, lambda: hr.pattern("a", 3)),
    ("a condition of three things", 20, lambda: hr.pattern("a", lambda x, y, z: True)),
    ("conditions beside a group", 20, lambda: a.then(b, "value = 3")),
    ("a greedy group", 23, lambda: a.then(b.then("c")).one_or_more(greedy=True)),
    ("a condition that is false", 25, lambda: hr.pattern("a", False)),
    ("a condition whose text is false", 25, lambda: hr.pattern("a", "FALSE")),
    ("a condition that is false by calculation", 25, lambda: hr.pattern("a", "1 = 2")),
    ("a condition that is null", 25, lambda: a.then("b", "null")),
    ("a condition that is false as an expression", 25, lambda: a.without("b", hr.lit(1) > 2)),
    ("a condition that contradicts itself", 25, lambda: hr.pattern("a", "value > 1 and value < 0")),
    ("conditions that contradict", 25, lambda: hr.pattern("a", "value = 1", "2 = value")),
    ("a loop until never", 25, lambda: a.one_or_more().until("value > 1 and 1 = 2")),
    ("JSON with a condition that is never true", 25, lambda: hr.Pattern.from_json(
        '{"parts": [{"name": "a", "where": "value between 2 and 1"}]}')),
    ("rounds that may be empty", 26, lambda: a.then(
        hr.pattern("b").optional().then("c").optional()).one_or_more()),
    ("too many times", 27, lambda: a.times(1_000)),
    ("so many times nothing", 28, lambda: a.without("b").times(2)),
    ("nothing, optionally", 28, lambda: a.without("b").optional()),
    ("so many times not next", 28, lambda: a.not_next("b", "value = 2").times(3)),
    ("not next, once or more", 28, lambda: a.not_next("b", "value = 2").one_or_more()),
    ("not next, optionally", 28, lambda: a.not_next("b", "value = 2").optional()),
    ("JSON of nothing, so many times", 28, lambda: hr.Pattern.from_json(
        '{"parts": [{"name": "a"}, {"link": "not_next", "name": "b", "times": [2, 2]}]}')),
    ("not next until", 5, lambda: a.not_next("b", "value = 2").until("value = 3")),
    ("not next after the end", 19, lambda: a.then_not("b", within="5s").not_next("c")),
    ("not next of a name twice", 2, lambda: a.not_next("a", "value = 2")),
    ("not next what is never true", 25, lambda: a.not_next("b", "1 = 2")),
    ("JSON that begins with what is not next", 18, lambda: hr.Pattern.from_json(
        '{"parts": [{"link": "not_next", "name": "a"}]}')),
    ("a time between the rounds of one round", 31, lambda: a.times(1, within="5s")),
    ("JSON with a time before the first part", 31, lambda: hr.Pattern.from_json(
        '{"parts": [{"name": "a", "within": "5s"}, {"name": "b"}], "within": "9s"}')),
    ("JSON with a time before what is not there", 31, lambda: hr.Pattern.from_json(
        '{"parts": [{"name": "a"}, {"link": "without", "name": "b", "within": "5s"}, '
        '{"name": "c"}], "within": "9s"}')),
]  # fmt: skip


@pytest.mark.parametrize(("number", "wrong"), [c[1:] for c in AT_ONCE], ids=[c[0] for c in AT_ONCE])
def test_refused_where_it_is_written(number: int, wrong: Callable[[], Any]) -> None:
    with pytest.raises(hr.PlanError) as caught:
        wrong()
    assert caught.value.code == f"HR-PATTERN-{number:03}"
    assert caught.value.hint
    assert caught.value.site is not None and caught.value.site.file == __file__


AS_A_WHOLE: list[tuple[str, int, hr.Pattern]] = [
    ("it ends with what must not be", 6, a.without("b")),
    ("only optional parts after what must not be", 6, a.without("b").then("c").optional()),
    ("a group ends with what must not be", 6, a.then(b.without("c"))),
    ("an ending that never ends", 7, a.then_not("b", "value = 2")),
    ("nothing between what follows directly", 8, a.without("b").next("c").within("5s")),
    ("it could match nothing", 9, a.optional().then("b").optional().within("5s")),
    ("an absence that lasts longer than the whole", 10,
     a.then_not("b", within="10s").within("5s")),
    ("a skip to a part that is not there", 11, a.within("5s").skip_to_last("b")),
    ("a greedy end that is never over", 14, a.then("b").one_or_more(greedy=True)),
    ("a greedy end with a time for its first row only", 14,
     a.then("b", within="5s").one_or_more(greedy=True)),
    ("a step that may last longer than the whole", 32, a.then("b", within="6s").within("5s")),
    ("a round that may last longer than the whole", 32, a.times(2, within="6s").within("5s")),
    ("no row next, and then a row", 33, a.not_next("b").then("c").within("5s")),
    ("no row next, and then a row, in a group", 33, a.then(b.not_next("c").then("d")).within("5s")),
    ("more rows than can be", 27, a.then(b.times(100).then("c")).times(100).within("5s")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "wrong"), [c[1:] for c in AS_A_WHOLE], ids=[c[0] for c in AS_A_WHOLE]
)
def test_refused_when_it_is_used(number: int, wrong: hr.Pattern) -> None:
    job, rows = stream()
    rows.key_by("key").match(wrong, unbounded=True).write("console:")
    assert codes(job) == [f"HR-PATTERN-{number:03}"]
    with pytest.raises(hr.PlanError, match=f"HR-PATTERN-{number:03}"):
        wrong.to_json()


good = a.then("b", "value = 2").within("5s")
many_ways = hr.pattern("first", "value = 0")
for _i in range(70):
    many_ways = many_ways.then(f"o{_i}", f"value = {_i}").optional()

IN_A_JOB: list[tuple[str, list[str], Callable[[Any, Any], Any]]] = [
    ("no pattern at all", ["HR-PATTERN-001"], lambda keyed, rows: keyed.match({})),
    ("partial matches for ever", ["HR-PATTERN-016"], lambda keyed, rows: keyed.match(a.then("b"))),
    ("neither patterns nor rules", ["HR-PATTERN-021"], lambda keyed, rows: keyed.match()),
    ("both patterns and rules", ["HR-PATTERN-021", "HR-PATTERN-022"],
     lambda keyed, rows: keyed.match(good, rules=rows.broadcast())),
    ("a pattern that is a text", ["HR-PATTERN-021"], lambda keyed, rows: keyed.match("a b")),
    ("output without a function", ["HR-PATTERN-021"],
     lambda keyed, rows: keyed.match(good, output="x bigint")),
    ("rules that are no stream", ["HR-PATTERN-021"], lambda keyed, rows: keyed.match(rules="x")),
    ("rules without the columns", ["HR-PATTERN-022"],
     lambda keyed, rows: keyed.match(rules=rows.broadcast(), unbounded=True)),
    ("timeouts of what has no time", ["HR-PATTERN-024"],
     lambda keyed, rows: keyed.match(a.then("b"), timeouts=True, unbounded=True)),
    ("a function that is never true", ["HR-PATTERN-025"],
     lambda keyed, rows: keyed.match(
         hr.pattern("a", lambda row: (row.value > 1) & (row.value < 0)).within("5s"))),
    ("a text and a function that contradict each other", ["HR-PATTERN-025"],
     lambda keyed, rows: keyed.match(
         hr.pattern("a", "value > 1", lambda row: row.value < 0).within("5s"))),
    ("more ways than bits", ["HR-PATTERN-027"],
     lambda keyed, rows: keyed.match(many_ways.within("5s"))),
    ("a part named as the key", ["HR-PATTERN-029"],
     lambda keyed, rows: keyed.match(hr.pattern("key").within("5s"))),
    ("a column named as the key", ["HR-PATTERN-029"],
     lambda keyed, rows: keyed.match(good, select={"key": "a.key"})),
    ("a condition about no column", ["HR-EXPR-001"],
     lambda keyed, rows: keyed.match(hr.pattern("a", "height > 1").within("5s"))),
    ("a condition that is a number", ["HR-PLAN-012"],
     lambda keyed, rows: keyed.match(hr.pattern("a", "value + 1").within("5s"))),
    ("a column of no part", ["HR-EXPR-001"],
     lambda keyed, rows: keyed.match(good, select={"x": "c.value"})),
    ("a function whose rows nobody knows", ["HR-PLAN-011"],
     lambda keyed, rows: keyed.match(good, select=lambda match: (1,))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "wrong"), [c[1:] for c in IN_A_JOB], ids=[c[0] for c in IN_A_JOB]
)
def test_refused_in_a_job(expected: list[str], wrong: Callable[[Any, Any], Any]) -> None:
    job, rows = stream()
    wrong(rows.key_by("key"), rows).write("console:")
    assert codes(job) == expected


ENDLESS: dict[str, hr.Pattern] = {
    "one after another": a.then("b"),
    "directly after: the next row may never come": a.next("b"),
    "perhaps one more": a.then("b").optional(),
    "a loop": a.one_or_more(),
    "so many": a.times(2),
    "a choice of which one goes on": hr.either(a, b.then("c")),
    "a step without a time after one with a time": a.then("b", within="5s").then("c"),
    "a loop whose rounds have no time": a.then("b", within="5s").one_or_more(),
    "a time inside the group only": a.then(b.then("c", within="5s")),
    "the next row is not such, and it may never come": a.not_next("b", "value = 2"),
    "or it ends so": a.then("c", within="5s")
    .not_next("b", "value = 2")
    .then("d", within="5s")
    .optional(),
    "then nothing, but only after the second": a.then("c").then_not("b", within="5m"),
}
ENDING: dict[str, hr.Pattern] = {
    "one row": a,
    "once": a.times(1),
    "one of two rows": hr.either(a, b),
    "then nothing for a time": a.then_not("b", within="5m"),
    "one of two, then nothing for a time": hr.either(a, b).then_not("c", within="5m"),
    "skipping": a.then_not("b", within="5m").skip_past_last(),
    "within as well, which is not shorter": a.then_not("b", within="5m").within("5m"),
    "a time for every step": a.then("b", within="5s").next(hr.pattern("c"), within="5s"),
    "a time for every step and round": a.one_or_more(within="5s").then("b", within="5s"),
    "a time for the group and inside it": a.then(b.then("c", within="5s"), within="5s"),
    "a greedy end whose rounds have a time": a.one_or_more(greedy=True, within="5s"),
    "a greedy end that comes in time": a.then("b", within="5s").optional(greedy=True),
    "not next, then nothing for a time": a.not_next("b", "value = 2").then_not("c", within="5s"),
    "rows in a short time, then nothing for longer": a.then("c")
    .then_not("b", within="5m")
    .within("5s"),
}


@pytest.mark.parametrize("which", ENDLESS)
def test_a_pattern_that_may_wait_for_ever_needs_within(which: str) -> None:
    job, rows = stream()
    rows.key_by("key").match(ENDLESS[which]).write("console:")
    assert codes(job) == ["HR-PATTERN-016"]


@pytest.mark.parametrize("which", ENDING)
def test_a_pattern_that_waits_for_no_row_needs_no_within(which: str) -> None:
    job, rows = stream()
    rows.key_by("key").match(ENDING[which]).write("console:")
    assert codes(job) == []


def test_a_function_is_advised_to_say_its_output() -> None:
    job, rows = stream()
    rows.key_by("key").match(good, select=lambda match: (1,)).write("console:")
    with pytest.raises(hr.PlanError, match=r"HR-PLAN-011 [^$]*or pass output="):
        job.check()


NO_TIMEOUTS: dict[str, tuple[hr.Pattern, str]] = {
    "no within": (a.then("b"), '.within("10m")'),
    "no within, and nothing after": (a.then("c").then_not("b", within="5m"), '.within("10m")'),
    "one row": (a, "Leave timeouts=True out."),
    "one of two rows": (hr.either(a, b), "Leave timeouts=True out."),
    "one row, and nothing after": (a.then_not("b", within="5m"), "Leave timeouts=True out."),
}


@pytest.mark.parametrize("which", NO_TIMEOUTS)
def test_timeouts_that_cannot_be_are_refused_and_what_helps_is_said(which: str) -> None:
    pattern, hint = NO_TIMEOUTS[which]
    job, rows = stream()
    rows.key_by("key").match(pattern, timeouts=True, unbounded=True).write("console:")
    with pytest.raises(hr.PlanError, match="HR-PATTERN-024 timeouts=True, but") as caught:
        job.check()
    assert hint in str(caught.value.hint)


def test_one_pattern_with_within_has_timeouts_to_tell() -> None:
    job, rows = stream()
    rows.key_by("key").match({"it": a.then("c").within("5s"), "no": a}, timeouts=True).write(
        "console:"
    )
    assert codes(job) == []


def test_timeouts_that_were_not_asked_for_are_refused() -> None:
    _, rows = stream()
    with pytest.raises(hr.PlanError, match="HR-PATTERN-030"):
        _ = rows.key_by("key").match(good).timeouts


def test_a_column_that_is_there_twice_is_one_problem_whatever_follows() -> None:
    job, rows = stream()
    found = rows.key_by("key").match(a.then("b").within("1s"), select={"key": "a.key"})
    found.select(upper="upper(key)").where("upper = 'A'").write("collect:", name="out")
    assert codes(job) == ["HR-PATTERN-029"]


def test_a_pattern_needs_event_time() -> None:
    job = hr.Job("untimed")
    rows = job.read("log:x", schema="key string, value bigint", name="rows")
    rows.key_by("key").match(good).write("console:")
    assert codes(job) == ["HR-PLAN-002"]


def test_all_inputs_without_event_time_are_named() -> None:
    job = hr.Job("untimed")
    rows = job.read("log:x", schema="key string", name="rows")
    control = job.read("log:c", schema="name string, pattern string", name="control")
    rows.key_by("key").match(rules=control.broadcast()).write("console:")
    with pytest.raises(hr.PlanError, match="but 'rows' and 'control' have none"):
        job.check()


def test_rules_of_another_job_are_refused() -> None:
    job, rows = stream()
    other = hr.Job("other").read("log:c", schema="name string, pattern string, at timestamp",
                                 time="at", delay="1s")  # fmt: skip
    rows.key_by("key").match(rules=other.broadcast()).write("console:")
    assert codes(job) == ["HR-PLAN-020"]


def test_every_code_is_tested_here() -> None:
    said = {number for _, number, _ in (*AT_ONCE, *AS_A_WHOLE)}
    said |= {int(code[-3:]) for _, found, _ in IN_A_JOB for code in found if "PATTERN" in code}
    assert said == set(range(1, 34)) - {30}  # 30 is asked of a result, below


def test_every_code_is_in_the_list_of_codes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "codes.md").read_text("utf-8")
    assert [n for n in range(1, 34) if f"\n| `HR-PATTERN-{n:03}` | " not in page] == []


SAID = {
    "[]": "[] is not an object",
    '{"parts": "x"}': '"x" is not a list',
    '{"within": "1s"}': "'parts' is missing",
    '{"parts": [{"link": "then"}]}': "'name' is missing",
    '{"parts": [{"name": "a", "times": 3}]}': "times is 3, not [least, most]",
    '{"parts": [{"name": "a", "by": "next"}]}': "'by' is there, but 'times' is not",
    '{"parts": [{"name": "a", "times_within": "5s"}]}': "'times_within' is there, but 'times'",
    '{"parts": [{"name": "a"}], "skip": "next"}': '"next" is not an object',
    '{"parts": 5}': "5 is not a list",
    '{"parts": null}': "null is not a list",
    '{"parts": [{"either": 5}]}': "5 is not a list",
    '{"parts": [{"either": {"parts": []}}]}': '{"parts": []} is not a list',
    '{"parts": [{"either": [5]}]}': "5 is not an object",
    '{"parts": [{"either": [{"name": "a"}]}]}': "there is no 'name'",
    "[" * 100_000: "it is nested too deep",
    '{"parts": [' * 60 + '{"name": "a"}' + "]}" * 60: "it is nested too deep",
}


@pytest.mark.parametrize("text", SAID, ids=[text[:40] for text in SAID])
def test_a_text_that_is_no_pattern_is_told_why(text: str) -> None:
    with pytest.raises(hr.PlanError, match="HR-PATTERN-018") as caught:
        hr.Pattern.from_json(text)
    assert SAID[text] in str(caught.value)
