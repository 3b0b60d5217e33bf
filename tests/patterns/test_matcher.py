"""The matcher alone against the definition: a pattern of its own for every sequence.

No job here, so many patterns can be tried; jobs are in `test_against_model.py`.
HEADRACE_EXAMPLES=500 tries 500 patterns of each feature.
"""

from __future__ import annotations

import re
from collections import Counter, namedtuple
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.expr import parsed
from headrace.ops.pattern import automaton as automata
from headrace.ops.pattern.machine import Machine, RunResults, Track
from headrace.ops.pattern.parts import Condition
from tests.patterns.cases import FEATURES, KINDS, UNIT, Case
from tests.patterns.model import Judge, skipped
from tests.patterns.test_against_model import OPTIONS, SEQUENCES

Row = namedtuple("Row", "time kind v n")
ROW = st.tuples(st.integers(0, 2), st.sampled_from(KINDS), st.integers(0, 2))


def condition(name: str, where: Any) -> Condition:
    (text,) = [one for one in where if isinstance(one, str)]
    return Condition(parsed(text), tuple(one for one in where if callable(one)))


def told(found: RunResults, machine: Machine) -> Counter[Any]:
    states = machine.automaton.states
    return Counter((tuple(states[p].name for p in run[2]), run[1]) for _, run, _ in found.rows)


def played(case: Case, rows: list[Row]) -> Machine:
    tests = automata.RowTests()
    automaton = automata.compiled(case.pattern().resolved(condition), tests)
    kinds = [set(re.findall(r"'(\w)'", text)) for text in tests.exprs]
    machine, track = Machine("x", automaton, lambda key, number: rows[number]), Track()
    for i, row in enumerate(rows):
        bits = sum(1 << j for j, mine in enumerate(kinds) if row.kind in mine)
        machine.row(track, i, row.time, bits, row)
    machine.finish(track, 0)
    assert not track.runs and not track.held
    return machine


@pytest.mark.parametrize("feature", FEATURES)
@settings(max_examples=max(SEQUENCES, 40), **OPTIONS)
@given(data=st.data())
def test_every_pattern_finds_what_its_definition_says(feature: str, data: Any) -> None:
    case = data.draw(FEATURES[feature])
    rows, time = [], 0
    for i, (step, kind, v) in enumerate(data.draw(st.lists(ROW, min_size=2, max_size=7))):
        time += step * UNIT
        rows.append(Row(time, kind, v, i))
    machine, judge = played(case, rows), Judge(rows, case.span, case.ending)
    wanted = skipped(judge.matches(case.tree), case.skip)
    assert told(machine.matches, machine) == Counter((one.names, one.rows) for one in wanted)
    if case.ending is None and case.skip[0] == "none":
        assert told(machine.timeouts, machine) == Counter(judge.timeouts(case.tree))
