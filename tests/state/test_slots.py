"""Slot states and the merge policy: which runs a slot has, and how many."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.clock import MIN_TIME
from headrace.errors import StateError
from headrace.hashing import slot_range
from headrace.state import RunRef, Segment, SlotState, plan_slot, plan_young
from headrace.state.store import AT_ONCE, Merge, replaced

names = count()


def ref(rows: int, lo: int, hi: int) -> RunRef:
    return RunRef(f"{next(names)}.run", 64, 1000, 7, rows, None, lo, hi)


def by_slot(state: SlotState) -> dict[int, tuple]:
    return {n: (s.refs, s.floor) for s in state.segments for n in range(s.lo, s.hi)}


@st.composite
def states(draw: st.DrawFn, slots: int = 8) -> SlotState:
    refs = [ref(10, 0, slots) for _ in range(3)]
    cuts = sorted(draw(st.sets(st.integers(1, slots - 1))))
    edges = zip([0, *cuts], [*cuts, slots], strict=True)
    return SlotState(
        tuple(
            Segment(lo, hi, tuple(draw(st.lists(st.sampled_from(refs), unique=True))), floor)
            for lo, hi in edges
            for floor in [draw(st.sampled_from([MIN_TIME, 5]))]
        )
    )


@settings(max_examples=50, deadline=None)
@given(states(), states(), st.lists(st.booleans(), min_size=3, max_size=3))
def test_parts_of_tasks_replace_their_slots_and_no_others(old, new, chosen):
    ranges = [slot_range(t, 3, 8) for t, wanted in enumerate(chosen) if wanted]
    after = old.apply([new.part(lo, hi) for lo, hi in ranges])
    taken = {slot for lo, hi in ranges for slot in range(lo, hi)}
    expected = by_slot(old) | {s: r for s, r in by_slot(new).items() if s in taken}
    assert by_slot(after) == expected
    assert len(after.segments) == len({(lo, hi) for lo, hi in _stretches(expected)})


def _stretches(slots: dict[int, tuple]) -> list[tuple[int, int]]:
    edges = [0, *(s for s in range(1, 8) if slots[s] != slots[s - 1]), 8]
    return list(pairwise(edges))


@settings(max_examples=40, deadline=None)
@given(states())
def test_a_state_is_the_same_after_json(state):
    assert SlotState.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_a_new_table_has_no_runs_and_a_task_without_slots_changes_nothing():
    state = SlotState.empty(4)
    assert state.rows() == 0 and state.most_runs() == 0
    assert state.part(2, 2).segments == () and state.apply([state.part(2, 2)]) == state
    assert SlotState(()).most_runs() == 0
    assert plan_young(SlotState(()), 0) is None and plan_slot(SlotState(()), 0) is None


def test_two_tasks_for_one_slot_are_refused():
    state = SlotState.empty(4)
    with pytest.raises(StateError) as caught:
        state.apply([state.part(0, 3), state.part(2, 4)])
    assert caught.value.code == "HR-STATE-009"


class Simulation:
    """A table's runs over many epochs, by size only; each row written has its own key."""

    def __init__(self, slots: int, held: int) -> None:
        self.slots, self.held = slots, held
        self.part = SlotState((Segment(0, slots, (ref(held, 0, slots),) if held else ()),))
        self.merged, self.large, self.most = 0, 0, 0

    def epoch(self, fresh: int) -> None:
        if merge := plan_young(self.part, fresh):
            assert merge.what.rows() <= max(AT_ONCE, 4 * fresh) + self.slots * 8
            self._do(merge)
        merged = 0
        while merge := plan_slot(self.part, fresh):
            if merged and merged + merge.what.rows() > max(AT_ONCE, fresh):
                break
            merged += merge.what.rows()
            self._do(merge)
        pushed = ref(fresh, 0, self.slots)
        segments = (replace(s, refs=(pushed, *s.refs)) for s in self.part.segments)
        self.part = SlotState(tuple(segments))
        self.most = max(self.most, self.part.most_runs())

    def _do(self, merge: Merge) -> None:
        rows = merge.what.rows()
        self.merged += rows
        before = by_slot(self.part)
        self.part = replaced(self.part, merge, ref(rows, merge.lo, merge.hi))
        outside = {s for s in before if not merge.lo <= s < merge.hi}
        assert all(by_slot(self.part)[s] == before[s] for s in outside)
        if merge.bottom:
            assert all(by_slot(self.part)[s][0][-1].rows == rows for s in range(merge.lo, merge.hi))


@pytest.mark.constants
@pytest.mark.parametrize(
    ("slots", "held", "fresh"),
    [(16, 0, 10_000), (8, 100_000, 10_000), (16, 5_000_000, 500), (32, 5_000_000, 10_000),
     (16, 5_000_000, 100_000), (1, 1_000_000, 1_000), (64, 0, 1)],
)  # fmt: skip
def test_runs_per_slot_stay_few_and_rows_are_rewritten_seldom(slots, held, fresh):
    job = Simulation(slots, held)
    for _ in range(250):
        job.epoch(fresh)
    assert job.most <= 16
    assert job.merged / 250 <= 12 * max(fresh, 1_000)


@pytest.mark.constants
@pytest.mark.parametrize("slots", [1, 8, 32])
def test_runs_per_slot_stay_few_whatever_the_sizes(slots):
    sizes = np.random.default_rng(slots)
    job = Simulation(slots, 0)
    for _ in range(150):
        job.epoch(int(10 ** sizes.uniform(0, 6)))
    assert job.most <= 30
