"""Patterns that come on a control stream, by examples."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness

PAIR = hr.pattern("a", "value = 1").then("b", "value = 2").within("1m")


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def harness(broadcast: bool = True, **options: Any) -> Harness:
    job = hr.Job("ruled")
    rows = job.read("log:x", schema="key string, value bigint, at timestamp", time="at",
                    delay="1s", name="rows")  # fmt: skip
    control = job.read("log:c", schema="name string, pattern string, at timestamp", time="at",
                       delay="1s", name="control")  # fmt: skip
    rules = control.broadcast() if broadcast else control
    found = rows.key_by("key").match(rules=rules, name="match", **options)
    found.write("collect:", name="out")
    if options.get("timeouts"):
        found.timeouts.write("collect:", name="over")
    return Harness(job)


def told(test: Harness) -> list[tuple[str, str, list[tuple[str, int]]]]:
    return sorted(
        (row["key"], row["pattern"], [(r["name"], r["row"]["value"]) for r in row["rows"]])
        for row in test.output("out")
    )


def held(test: Harness) -> dict[str, int]:
    return {name: table.num_rows for name, table in test.state("match").items()}


@pytest.mark.parametrize("broadcast", [True, False])
def test_rules_reach_every_key_whether_or_not_they_are_said_to_be_broadcast(
    broadcast: bool,
) -> None:
    keys = [f"k{i}" for i in range(50)]
    with harness(broadcast) as test:
        test.send("control", [("pair", PAIR.to_json(), at(1))])
        test.send("rows", [(k, value, at(1 + value)) for k in keys for value in (1, 2)])
        test.end()
        assert told(test) == [(k, "pair", [("a", 1), ("b", 2)]) for k in sorted(keys)]


def test_a_rule_counts_from_its_own_time_on_whichever_comes_first() -> None:
    with harness() as test:
        test.send("rows", [("k", 1, at(1))])
        test.send("control", [("pair", PAIR.to_json(), at(2))])
        test.send("rows", [("j", 1, at(2)), ("k", 2, at(3)), ("j", 2, at(4))])
        test.end()
        assert told(test) == [("j", "pair", [("a", 1), ("b", 2)])]


def test_a_rule_behind_the_watermark_counts_from_now_on() -> None:
    with harness() as test:
        test.watermark("rows", "10s")
        test.send("control", [("pair", PAIR.to_json(), at(2))])
        test.send("rows", [("k", 1, at(10)), ("k", 2, at(11))])
        test.end()
        assert told(test) == [("k", "pair", [("a", 1), ("b", 2)])]


def test_what_a_removed_rule_had_begun_is_dropped() -> None:
    with harness() as test:
        rules = [("pair", PAIR.to_json(), at(1)), ("other", PAIR.to_json(), at(1))]
        test.send("control", rules)
        test.send("rows", [(f"k{i}", 1, at(2)) for i in range(20)])
        test.watermark("rows", "5s")
        both = held(test)
        assert (both["runs"], both["rows"]) == (20, 20)
        test.send("control", [("pair", "", at(6))])
        test.watermark("rows", "7s")
        runs = test.state("match")["runs"]["$pattern"].to_pylist()
        assert runs == [["other"]] * 20
        test.send("control", [("other", None, at(8))])
        test.watermark("rows", "9s")
        left = held(test)
        assert (left["runs"], left["rows"], left["rules"]) == (0, 0, 0)
        test.send("rows", [("k1", 2, at(10))])
        test.end()
        assert told(test) == []


def test_a_replaced_rule_begins_anew() -> None:
    again = hr.pattern("x", "value = 2").within("1m")
    with harness() as test:
        test.send("control", [("r", PAIR.to_json(), at(1)), ("r", again.to_json(), at(3))])
        test.send("rows", [("k", 1, at(2)), ("k", 2, at(4))])
        test.restart()
        test.end()
        assert told(test) == [("k", "r", [("x", 2)])]


def rule(condition: str) -> str:
    return json.dumps({"parts": [{"name": "a", "where": condition}], "within": "1m"})


def test_a_rule_may_list_many_cases() -> None:
    with harness() as test:
        test.send("control", [("r", rule(" or ".join(f"value = {i}" for i in range(150))), at(1))])
        test.send("rows", [("k", 7, at(2)), ("k", 777, at(3))])
        test.end()
        assert (told(test), test.dead()) == ([("k", "r", [("a", 7)])], [])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "HR-PATTERN-018"),
        ('{"parts": [{"either": [5]}]}', "HR-PATTERN-018"),
        ("[" * 100_000, "HR-PATTERN-018"),
        (rule("(" * 5_000 + "value > 1" + ")" * 5_000), "HR-EXPR-004"),
        (rule(" or ".join(["value = 1"] * 500)), "HR-EXPR-004"),
        (rule(" * value / ".join(["value"] * 60) + " > 1"), "HR-EXPR-004"),
        ('{"parts": []}', "HR-PATTERN-001"),
        ('{"parts": [{"name": "a"}, {"name": "b"}]}', "HR-PATTERN-016"),
        ('{"parts": [{"name": "a", "where": "height > 1"}], "within": "1m"}', "HR-EXPR-001"),
        ('{"parts": [{"name": "a", "where": "value + 1"}], "within": "1m"}', "HR-EXPR-003"),
    ],
)
def test_a_rule_that_is_wrong_is_one_dead_letter_and_the_others_go_on(text: str, code: str) -> None:
    with harness() as test:
        test.send("control", [("good", PAIR.to_json(), at(1)), ("bad", text, at(1))])
        test.send("rows", [("k", 1, at(2)), ("k", 2, at(3))])
        test.end()
        (letter,) = test.dead()
        assert told(test) == [("k", "good", [("a", 1), ("b", 2)])]
    assert code in letter["error"] and letter["step"] == "match"
    assert ".py:" not in letter["error"]  # it came as data, from no line of a program


def test_a_row_on_which_a_rule_fails_is_one_dead_letter() -> None:
    bad = hr.pattern("a", "cast(key as bigint) > 0").within("1m").to_json()
    with harness() as test:
        test.send("control", [("bad", bad, at(1)), ("worse", bad, at(1))])
        test.send("rows", [("x", 1, at(2)), ("7", 1, at(3))])
        test.end()
        assert [letter["input"] for letter in test.dead()] == ["rows"]
        assert told(test) == [("7", "bad", [("a", 1)]), ("7", "worse", [("a", 1)])]


def test_rules_tell_their_timeouts_and_select_columns() -> None:
    with harness(timeouts=True, select={"n": "size(rows)"}) as test:
        test.send("control", [("pair", PAIR.to_json(), at(1))])
        test.send("rows", [("k", 1, at(2)), ("j", 1, at(3)), ("j", 2, at(4))])
        test.watermark("rows", "62s")
        assert test.output("out") == [{"key": "j", "pattern": "pair", "n": 2}]
        (over,) = test.output("over")
        assert (over["key"], [r["name"] for r in over["rows"]]) == ("k", ["a"])
