"""What `match` gives, keeps and sets aside, by examples."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness, drive

SCHEMA = "key string, value bigint, at timestamp"
PAIR = hr.pattern("a", "value = 1").then("b", "value = 2").within("10s")


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def rows_of(*values: Any, key: str = "k", start: int = 0) -> list[tuple[Any, ...]]:
    """A row a second."""
    return [(key, value, at(start + i)) for i, value in enumerate(values)]


def harness(make: Callable[[Any], Any], delay: str = "1s", **options: Any) -> Harness:
    job = hr.Job("matching", **options)
    rows = job.read("log:x", schema=SCHEMA, time="at", delay=delay, name="rows")
    make(rows).write("collect:", name="out")
    return Harness(job)


def numbers(test: Harness) -> list[list[int]]:
    """The seconds of the rows of each match."""
    found = []
    for match in test.output("out"):
        parts = [
            v if isinstance(v, list) else [v] for v in match.values() if not isinstance(v, str)
        ]
        found.append(sorted(int(r["at"].timestamp()) for part in parts for r in part if r))
    return sorted(found)


def keyed(pattern: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda rows: rows.key_by("key").match(pattern, name="match", **options)


# what is told


def test_a_match_is_its_rows_by_name() -> None:
    pattern = hr.pattern("a", "value = 1").then("b", "value = 2").times(2).then("c", "value = 3")
    with harness(keyed(pattern.optional().within("10s"))) as test:
        test.send("rows", rows_of(1, 2, 2))
        test.end()
        (match,) = test.output("out")
    assert match["key"] == "k"
    assert match["a"] == {"key": "k", "value": 1, "at": at(0)}
    assert [row["at"] for row in match["b"]] == [at(1), at(2)]
    assert match["c"] is None


def test_columns_are_expressions_over_the_parts() -> None:
    pattern = hr.pattern("a", "value = 1").then("b", "value > 1").times(2).within("10s")
    select = {
        "n": "size(b)", "last": "b[1].value", "sum": "a.value + b[0].value",
        "rise": lambda m: m.b[1].value - m.a.value, "same": hr.col("a").field("key"),
    }  # fmt: skip
    with harness(keyed(pattern, select=select)) as test:
        test.send("rows", rows_of(1, 5, 7))
        test.end()
        (match,) = test.output("out")
    assert match == {"key": "k", "n": 2, "last": 7, "sum": 6, "rise": 6, "same": "k"}


def test_a_function_gives_none_one_or_many_rows() -> None:
    def told(match: Any) -> list[tuple[str, int]]:
        assert match.pattern == "pattern" and [*match] == ["a", "b"] and len(match) == 2
        if match["b"][0].value == 4:
            return []
        return [(match.key, row.value) for _, row in match.rows]

    pattern = hr.pattern("a", "value = 1").then("b", "value > 1").within("10s")
    with harness(keyed(pattern, select=told, output="who string, value bigint")) as test:
        test.send("rows", [*rows_of(1, 3), *rows_of(1, 4, key="j")])
        test.end()
        assert test.output("out") == [{"who": "k", "value": 1}, {"who": "k", "value": 3}]


def test_the_pattern_is_named_where_there_are_several() -> None:
    several = {"up": PAIR, "down": hr.pattern("x", "value = 2").next("y", "value = 1").within("5s")}

    def told(match: Any) -> int:
        return len(match.rows)

    for options, wanted in (
        ({"select": {"n": "coalesce(a.value, 0) + coalesce(x.value, 0)"}},
         [("down", 2), ("up", 1), ("up", 1)]),
        ({"select": told, "output": "n bigint"}, [("down", 2), ("up", 2), ("up", 2)]),
    ):  # fmt: skip
        with harness(keyed(several, **options)) as test:
            test.send("rows", rows_of(1, 2, 1, 2))
            test.end()
            found = sorted((row["pattern"], row["n"]) for row in test.output("out"))
        assert found == wanted


def test_a_function_may_say_the_pattern_itself() -> None:
    def told(match: Any) -> tuple[int, str]:
        return 1, match.pattern.upper()

    output = "n bigint, pattern string"
    with harness(keyed({"pair": PAIR}, select=told, output=output)) as test:
        test.send("rows", rows_of(1, 2))
        test.end()
        assert test.output("out") == [{"n": 1, "pattern": "PAIR"}]


def test_without_a_key_all_rows_are_one_sequence() -> None:
    with harness(lambda rows: rows.match(PAIR, name="match")) as test:
        test.send("rows", [("x", 1, at(1)), ("y", 2, at(2))])
        test.end()
        assert numbers(test) == [[1, 2]]


def test_a_key_may_have_several_columns_and_be_null() -> None:
    def make(rows: Any) -> Any:
        return rows.key_by("key", odd="value % 1").match(
            PAIR, select=lambda match: (repr(match.key),), output="key string"
        )

    with harness(make) as test:
        test.send("rows", [*rows_of(1, 2), *rows_of(1, 2, key=None)])
        test.end()
        assert sorted(row["key"] for row in test.output("out")) == ["('k', 0)", "(None, 0)"]


# conditions


@pytest.mark.parametrize(
    "where",
    ["value > 1", hr.col("value") > 1, lambda row: row.value > 1, lambda row: bool(row.value > 1),
     lambda row, match: row.value > match["a"][-1].value],
    ids=["text", "expression", "traced", "python", "of the match"],
)  # fmt: skip
def test_a_condition_can_be_written_in_any_way(where: Any) -> None:
    with harness(keyed(hr.pattern("a", "value = 1").then("b", where).within("10s"))) as test:
        test.send("rows", rows_of(1, 0, None, 3))
        test.end()
        assert numbers(test) == [[0, 3]]


def test_of_several_conditions_all_must_hold() -> None:
    pattern = hr.pattern("a", "value > 1", hr.col("value") < 5, lambda row, match: row.value != 3)
    with harness(keyed(pattern.within("1s"))) as test:
        test.send("rows", rows_of(1, 2, 3, 4, 5))
        test.end()
        assert numbers(test) == [[1], [3]]


def test_more_conditions_than_fit_a_number() -> None:
    pattern = hr.pattern("p0", "value = 0")
    for i in range(1, 130):
        pattern = pattern.next(f"p{i}", f"value = {i}")
    with harness(keyed(pattern.within("1h"))) as test:
        test.send("rows", rows_of(*range(130)))
        test.end()
        assert numbers(test) == [list(range(130))]


# time


def test_a_row_waits_until_the_watermark_has_passed_it() -> None:
    with harness(keyed(PAIR), delay="5s") as test:
        test.send("rows", rows_of(2, start=4))
        test.send("rows", rows_of(1, start=3))
        assert test.output("out") == []
        test.watermark("rows", "4s")
        assert test.output("out") == []
        test.watermark("rows", "4001ms")
        assert numbers(test) == [[3, 4]]


def test_a_late_row_is_set_aside() -> None:
    with harness(keyed(PAIR)) as test:
        test.watermark("rows", "10s")
        test.send("rows", rows_of(1, start=9))
        test.send("rows", rows_of(2, start=10))
        test.end()
        assert [row["value"] for row in test.late("match")] == [1]
        assert test.output("out") == []


def test_no_row_afterwards_is_told_when_the_time_is_over() -> None:
    pattern = hr.pattern("a", "value = 1").then_not("b", "value = 2", within="5s").within("1m")
    with harness(keyed(pattern)) as test:
        test.send("rows", [*rows_of(1), *rows_of(1, 0, 2, key="j")])
        test.watermark("rows", "4999ms")
        assert test.output("out") == []
        test.watermark("rows", "5s")
        assert [row["key"] for row in test.output("out")] == ["k"]
        assert not any(t.num_rows for t in test.state("match").values())


def test_a_match_has_the_time_at_which_it_was_sure() -> None:
    """A window behind sees a match by its last row, and an absence when its time is over."""

    def make(rows: Any) -> Any:
        absent = hr.pattern("a", "value = 1").then_not("b", "value = 2", within="5s").within("9s")
        found = rows.key_by("key").match({"pair": PAIR, "absent": absent})
        return found.key_by("pattern").window(hr.tumbling("5s")).agg(n=hr.count())

    with harness(make) as test:
        test.send("rows", [*rows_of(1, start=3), *rows_of(1, 2, start=4, key="j")])
        test.end()
        found = {(r["pattern"], r["window_start"].timestamp()) for r in test.output("out")}
    assert found == {("pair", 5.0), ("absent", 5.0)}


def test_time_that_is_over_ends_a_partial_match_and_its_state() -> None:
    with harness(keyed(PAIR)) as test:
        test.send("rows", rows_of(1))
        test.send("rows", rows_of(1, start=5, key="other"))
        assert {n: t.num_rows for n, t in test.state("match").items()} == {
            "waiting": 1, "runs": 1, "rows": 1, "due": 1,
        }  # fmt: skip
        test.watermark("rows", "10s")
        held = {n: t.num_rows for n, t in test.state("match").items()}
        assert (held["runs"], held["rows"], held["waiting"]) == (1, 1, 0)
        test.watermark("rows", "15s")
        assert not any(t.num_rows for t in test.state("match").values())


def test_rows_that_no_condition_wants_are_not_kept() -> None:
    with harness(keyed(PAIR), delay="1h") as test:
        test.send("rows", rows_of(*[0] * 50, 1))
        assert test.state("match")["waiting"].num_rows == 1


# faults


def test_a_row_on_which_a_function_fails_is_a_dead_letter_as_if_it_had_not_come() -> None:
    def larger(row: Any, match: Any) -> bool:
        return bool(10 / row.value < 10)

    pattern = hr.pattern("a", "value = 1").next("b", larger).within("10s")
    with harness(keyed(pattern)) as test:
        test.send("rows", rows_of(1, 0, 2))
        test.end()
        assert numbers(test) == [[0, 2]]
        (letter,) = test.dead()
    assert letter["step"] == "match" and letter["error"].startswith("ZeroDivisionError")
    assert b'"value": 0' in letter["record"]


def test_until_sees_no_row_of_its_loop_when_it_is_asked_about_the_first() -> None:
    """As the guide says: look whether there are rows before looking at the last."""

    def careless(row: Any, match: Any) -> bool:
        return bool(row.value < match["b"][-1].value)

    def careful(row: Any, match: Any) -> bool:
        return bool(match["b"]) and row.value < match["b"][-1].value

    def found(until: Any) -> tuple[list[list[int]], list[str]]:
        loop = hr.pattern("a", "value = 1").then("b", "value > 1").one_or_more(greedy=True)
        with harness(keyed(loop.until(until).within("10s"))) as test:
            test.send("rows", rows_of(1, 5, 7, 3))
            test.end()
            return numbers(test), [letter["error"] for letter in test.dead()]

    assert found(careful) == ([[0, 1, 2]], [])
    matches, errors = found(careless)
    assert matches == [] and len(errors) == 3
    assert all(error.startswith("IndexError") for error in errors)


# what must not be next, and times between rows


def test_what_must_not_be_next_is_remembered_from_batch_to_batch() -> None:
    pattern = ONE.not_next("n", "value = 2").then("b", "value = 3").within("1m")
    for between, wanted in ((2, []), (7, [[0, 3]])):
        with harness(keyed(pattern)) as test:
            for second, value in enumerate([1, between, 2, 3]):
                test.send("rows", rows_of(value, start=second))
                test.restart()
            test.end()
            assert numbers(test) == wanted


def test_what_must_not_be_next_may_be_a_function_of_the_match() -> None:
    def larger(row: Any, match: Any) -> bool:
        return bool(row.value > match["a"][-1].value)

    with harness(keyed(hr.pattern("a", "value > 1").not_next("n", larger).within("9s"))) as test:
        test.send("rows", rows_of(2, 3, 3, 1))
        test.end()
        assert numbers(test) == [[1], [2]]


def test_a_row_on_which_a_condition_fails_is_not_the_next_one() -> None:
    def larger(row: Any) -> bool:
        return bool(10 / row.value < 10)

    for last, wanted in ((2, []), (3, [[0, 2], [0, 3]])):
        pattern = ONE.not_next("n", "value = 2").then_any("b", larger).within("1m")
        with harness(keyed(pattern)) as test:
            test.send("rows", rows_of(1, 0, last, 4))
            test.end()
            assert len(test.dead()) == 1 and numbers(test) == wanted


def test_the_last_way_to_go_on_ends_in_a_timeout_when_its_time_is_over() -> None:
    steps = ONE.then("b", "value = 2", within="3s").optional().then("c", "value = 3", within="6s")

    def make(rows: Any) -> Any:
        found = rows.key_by("key").match(steps, timeouts=True, name="match")
        found.timeouts.select("key", at="a.at").write("collect:", name="over")
        return found

    with harness(make) as test:
        test.send("rows", rows_of(1))
        test.watermark("rows", "5999ms")
        assert test.output("over") == []
        test.watermark("rows", "6s")
        assert test.output("over") == [{"key": "k", "at": at(0)}]
        assert not any(t.num_rows for t in test.state("match").values())


def test_a_greedy_loop_is_over_when_its_next_round_is_too_late() -> None:
    with harness(keyed(ONE.one_or_more(greedy=True, within="3s"))) as test:
        test.send("rows", rows_of(1, 1))
        test.watermark("rows", "3999ms")
        assert test.output("out") == []
        test.watermark("rows", "4s")
        assert numbers(test) == [[0, 1], [1]]
        assert not any(t.num_rows for t in test.state("match").values())


def test_a_row_on_which_an_expression_fails_is_a_dead_letter() -> None:
    pattern = hr.pattern("a", "value = 1").next("b", "cast(key as bigint) / value > 1").within("9s")
    with harness(keyed(pattern)) as test:
        test.send("rows", [("x", 1, at(0)), ("4", 1, at(1)), ("4", 2, at(2))])
        test.end()
        assert numbers(test) == [[1, 2]]
        (letter,) = test.dead()
    assert letter["step"] == "match" and b'"x"' in letter["record"]
    assert (letter["input"], letter["offset"]) == ("rows", 0)


def test_a_match_on_which_the_function_fails_is_a_dead_letter_of_its_last_row() -> None:
    def told(match: Any) -> Any:
        if match.key == "bad":
            raise ValueError("no")
        return ("text",) if match.key == "odd" else (match["b"][0].value,)

    with harness(keyed(PAIR, select=told, output="value bigint")) as test:
        for key in ("good", "bad", "odd"):
            test.send("rows", rows_of(1, 2, key=key))
        test.end()
        assert test.output("out") == [{"value": 2}]
        letters = sorted(letter["record"] for letter in test.dead())
    assert [b'"bad"' in letters[0], b'"odd"' in letters[1], len(letters)] == [True, True, 2]


# changes


@pytest.mark.parametrize("how", [{"greedy": True}, {"by": "next"}, {"within": "10s"}])
def test_a_loop_that_goes_another_way_does_not_go_on_from_old_state(how: Any) -> None:
    def job(**said: Any) -> hr.Job:
        loop = hr.pattern("a", "value = 1").one_or_more(**said).then("b", "value = 2")
        made = hr.Job("changing")
        rows = made.read("log:x", schema=SCHEMA, time="at", delay="1s", name="rows")
        keyed(loop.within("10s"))(rows).write("collect:", name="out")
        return made

    with Harness(job()) as test:
        test.send("rows", rows_of(1, 1, 1))
        with pytest.raises(hr.StateError, match="HR-EVOLVE-001"):
            test.restart(job(**how))


ONE = hr.pattern("a", "value = 1")
CHANGED = {
    "one more part": PAIR.then("c", "value = 3"),
    "a time for the step": ONE.then("b", "value = 2", within="10s").within("10s"),
    "the time of the step, not of the whole": ONE.then("b", "value = 2", within="10s"),
    "what must not be next": ONE.not_next("c", "value = 3").then("b", "value = 2").within("10s"),
}


@pytest.mark.parametrize("which", CHANGED)
def test_a_changed_pattern_does_not_go_on_from_old_state(which: str) -> None:
    def job(pattern: hr.Pattern) -> hr.Job:
        made = hr.Job("matching")
        rows = made.read("log:x", schema=SCHEMA, time="at", delay="1s", name="rows")
        rows.key_by("key").match(pattern, name="match").write("collect:", name="out")
        return made

    with Harness(job(PAIR)) as test:
        test.send("rows", rows_of(1))
        with pytest.raises(hr.StateError, match="match"):
            test.restart(job(CHANGED[which]))
        test.restart(job(PAIR))
        test.send("rows", rows_of(2, start=1))
        test.end()
        assert numbers(test) == [[0, 1]]


def test_explain_says_the_pattern_and_its_functions() -> None:
    def is_one(row: Any) -> bool:
        return bool(row.value == 1)

    job = hr.Job("explained")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1s", name="rows")
    pattern = (
        hr.pattern("a", is_one).without("x", "value = 9").then(hr.either(
            hr.pattern("b", "value = 2").times(2, 4), hr.pattern("c").next("d").optional()))
        .not_next("y", "value = 8").then("f", within="30s").times(2, within="20s")
        .then_not("e", within="1m").within("10m").skip_to_last("b")
    )  # fmt: skip
    rows.key_by("key").match(pattern, name="match").write("console:")
    text = job.explain().text
    assert (
        "a without x then (b{2,4} or c next d?) not next y then within 30s f{2} each within 20s "
        "then not e for 1m within 10m, skip last b" in text
    )
    assert "is_one: a Python function" in text


@pytest.mark.parametrize("max_batch", [1, 7, 1_000])
@pytest.mark.parametrize("tasks", [1, 3])
def test_neither_batches_nor_tasks_are_seen(tmp_path: Any, max_batch: int, tasks: int) -> None:
    job = hr.Job("cut")
    rows = [{"key": f"k{i % 5}", "value": i * 7 % 4, "at": 1_000 * i} for i in range(60)]
    stream = job.read(hr.rows(rows), time="at", delay="3s")
    pattern = hr.pattern("a", "value = 1").then("b", "value = 2").one_or_more().within("30s")
    stream.key_by("key").match(pattern, select={"a": "a.at", "n": "size(b)"}).write(
        "collect:", name="out"
    )
    found = drive(job, tmp_path, max_batch=max_batch, tasks=tasks).output("out").to_pylist()
    wanted = []
    for i in (i for i in range(60) if i * 7 % 4 == 1):
        later = range(i + 1, min(i + 30, 60))
        count = sum(j * 7 % 4 == 2 and j % 5 == i % 5 for j in later)
        wanted += [{"key": f"k{i % 5}", "a": 1_000 * i, "n": n + 1} for n in range(count)]
    assert sorted(found, key=_order) == sorted(wanted, key=_order)


def _order(row: dict[str, Any]) -> tuple[int, int]:
    return row["a"], row["n"]
