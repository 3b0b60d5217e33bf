"""Transcripts: how a case is read, played, and told when it is not so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import headrace as hr
from headrace.testing.transcript import Case, parse_cases, read_cases, run_case

COUNTS = 'rows.key_by("key").window(hr.tumbling("10s")).agg(n=hr.count())'


def case(*steps: dict[str, Any], **more: Any) -> Case:
    program = {} if "job" in more else {"stream": COUNTS}
    fields = {"name": "a case", **program, "steps": list(steps), **more}
    return parse_cases(yaml.safe_dump([fields]))[0]


def test_every_verb_does_what_it_says() -> None:
    run_case(
        case(
            {"send": [["a", 1, 1], ["b", 1, 2.5]]},
            {"expect": None},
            {"watermark": 10},
            {"expect": [["b", 0, 10, 1], ["a", 0, 10, 1]]},
            {"send": [["a", 1, 3]]},
            {"late": [["a", 1, 3]]},
            {"late": []},
            {"crash": None},
            {"send": {"rows": [["a", 1, 11]], "split": 1, "at": 5}},
            {"send": [{"key": "a", "at": None}]},
            {"dead": [["rows", "'at' is null"]]},
            {"restart": None},
            {"idle": {"split": 1}},
            {"advance": 7},
            {"clock": 3},
            {"end": None},
            {"expect": {"out": [["a", 10, 20, 1]]}},
        )
    )


def test_a_case_may_write_a_whole_job_with_functions_of_its_own() -> None:
    program = """
def twice(row):
    return {"key": row.key, "value": 2 * row.value, "at": row.at}

left, right = read("left"), read("right", delay="5s")
both = left.map(twice, schema="key string, value bigint, at timestamp").union(right)
both.key_by("key").agg(total=hr.sum("value"), unbounded=True).select("key", "total").write(
    "console:", name="sums")
"""
    run_case(
        case(
            {"send": {"input": "left", "rows": [["a", 1, 1]]}},
            {"send": {"input": "right", "rows": [["a", 10, 1]]}},
            {"expect": {"sums": [["a", 2], ["a", 12]]}},
            {"watermark": {"left": 20, "right": 20}},
            {"restart": {"job": program, "drop": []}},
            {"end": None},
            job=program,
        )
    )


def test_a_mismatch_names_case_step_and_rows() -> None:
    steps = [{"send": [["a", 1, 1], ["b", 1, 1]]}, {"end": None}]
    wrong = case(*steps, {"expect": [["a", 0, 10, 1], ["c", 0, 10, 1.5]]})
    with pytest.raises(AssertionError) as caught:
        run_case(wrong)
    assert str(caught.value).splitlines() == [
        "case 'a case', step 3 (expect), on local:",
        "  expected, did not come: ['c', 0, 10, 1.5]",
        "  came, not expected:     ['b', 0, 10, 1]",
    ]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ({"expect": [["a", 0, 10, 2], ["a", 0, 10, 2]]}, "did not come: ['a', 0, 10, 2]"),
        ({"expect": []}, "not expected:     ['a', 0, 10, 2]"),
        ({"late": [["a", 1, 1]]}, "did not come: ['a', 1, 1]"),
        ({"dead": [["rows", "null"]]}, "did not come: ['rows', 'null']"),
    ],
)
def test_rows_are_counted_and_none_is_overlooked(step: dict[str, Any], told: str) -> None:
    with pytest.raises(AssertionError) as caught:
        run_case(case({"send": [["a", 1, 1], ["a", 1, 2]]}, {"end": None}, step))
    assert told in str(caught.value)


def test_a_step_that_fails_says_where_in_the_transcript() -> None:
    with pytest.raises(hr.InputError) as caught:
        run_case(case({"end": None}, {"send": [["a", "text", 1]]}))
    assert caught.value.__notes__ == ["in case 'a case', step 2 (send), on local"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"steps": [{"sent": []}]}, "step 1 is {'sent': []}"),
        ({"steps": [{"send": [], "end": None}]}, "step 1"),
        ({"job": "pass", "steps": [{"end": None}], "stream": "rows"}, "either stream or job"),
        ({"name": "", "steps": [{"end": None}]}, "no name"),
        ({"steps": []}, "no steps"),
        ({"steps": [{"end": None}], "window": "10s"}, "unknown key 'window'"),
    ],
)
def test_a_case_of_the_wrong_shape_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(hr.RunError) as caught:
        run_case({"name": "odd", "stream": COUNTS, **fields})
    assert caught.value.code == "HR-TEST-011" and told in caught.value.message


@pytest.mark.parametrize(
    ("said", "code"),
    [([["a", 1]], "HR-TEST-006"), ({"input": "nobody", "rows": [["a", 1, 1]]}, "HR-TEST-004")],
)
def test_rows_that_fit_no_input_are_refused_by_the_harness(said: Any, code: str) -> None:
    with pytest.raises(hr.HeadraceError) as caught:
        run_case({"name": "odd", "stream": COUNTS, "steps": [{"send": said}]})
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('- stream: rows.map(lambda r: {"x": 1})', "odd.yaml is not YAML: mapping values are not"),
        ("", "odd.yaml is not a list of cases"),
        ("name: one", "odd.yaml is not a list of cases"),
        ("- one", "odd.yaml is not a list of cases"),
    ],
)
def test_a_file_that_holds_no_cases_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(hr.RunError) as caught:
        read_cases(tmp_path / "odd.yaml")
    assert caught.value.code == "HR-TEST-018" and told in caught.value.message


def test_without_pyyaml_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(hr.RunError) as caught:
        parse_cases("[]")
    assert caught.value.code == "HR-TEST-010" and "headrace[testing]" in str(caught.value.hint)
