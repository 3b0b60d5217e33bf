"""Windows: assignment, panes, lateness and firing times, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import PlanError
from headrace.ops.window.aligned import Window, sliding, tumbling

TIMES = st.integers(-(10**13), 10**13)
NEAR = st.integers(-60, 60)


@st.composite
def windows(draw: st.DrawFn, largest: int = 20) -> Window:
    size = draw(st.integers(1, largest))
    return Window(size, draw(st.integers(1, size)), draw(st.integers(-30, 30)))


def ends_by_hand(window: Window, low: int, high: int, panes: list[int]) -> list[int]:
    """Ends in (low, high] of windows that hold one of the panes."""
    intervals = {w for p in panes for w in window.assign(p)}
    return sorted(w.end for w in intervals if low < w.end <= high)


def ends_in_range(window: Window, before: int, after: int, times: list[int]) -> list[int]:
    """The same by `end_range`, whose windows are given for each pane."""
    panes = window.panes_of(np.array(times, np.int64))
    bounds = zip(*window.end_range(before, after, panes), strict=True)
    numbers = {k for first, last in bounds for k in range(int(first), int(last) + 1)}
    return sorted(window.end_of(np.array([*numbers], np.int64)).tolist())


@given(windows(5_000), TIMES)
def test_assign_gives_exactly_the_windows_that_contain_the_time(window: Window, ts: int) -> None:
    found = window.assign(ts)

    assert all(w.start <= ts < w.end == w.start + window.size for w in found)
    assert all((w.start - window.offset) % window.slide == 0 for w in found)
    assert found[0].end - window.slide <= ts < found[-1].start + window.slide


@given(windows(), st.lists(NEAR, min_size=1))
def test_times_in_one_pane_are_in_the_same_windows(window: Window, times: list[int]) -> None:
    panes = window.panes_of(np.array(times))

    for ts, pane in zip(times, panes.tolist(), strict=True):
        assert pane <= ts < pane + window.pane_size
        assert window.assign(pane) == window.assign(ts)


@given(windows(), st.lists(NEAR, min_size=1), NEAR, st.integers(0, 30))
def test_a_row_is_late_when_all_its_windows_have_ended(
    window: Window, times: list[int], watermark: int, lateness: int
) -> None:
    late = window.is_late(np.array(times), watermark, lateness)

    by_hand = [all(w.end + lateness <= watermark for w in window.assign(t)) for t in times]
    assert late.tolist() == by_hand


@given(windows(), NEAR, NEAR)
def test_the_oldest_needed_pane_is_the_first_in_a_window_still_to_fire(
    window: Window, ts: int, watermark: int
) -> None:
    pane = int(window.panes_of(np.array([ts]))[0])

    needed = any(w.end > watermark for w in window.assign(ts))
    assert needed == (pane >= window.oldest_needed_pane(watermark))


@given(windows(), NEAR, st.integers(0, 80), st.lists(NEAR))
def test_the_end_range_has_the_windows_that_hold_a_live_pane(
    window: Window, before: int, span: int, times: list[int]
) -> None:
    ends = ends_in_range(window, before, before + span, times)

    assert ends == ends_by_hand(window, before, before + span, times)


@given(windows(), NEAR, st.lists(NEAR))
def test_next_end_is_the_earliest_that_is_still_to_fire(
    window: Window, after: int, times: list[int]
) -> None:
    panes = window.panes_of(np.array(times, np.int64))

    to_come = ends_by_hand(window, after, 10**6, times)
    assert window.next_end(after, panes) == (to_come[0] if to_come else None)


@given(windows(), NEAR, st.integers(0, 80), NEAR)
def test_panes_between_are_those_in_a_window_that_ends_there(
    window: Window, before: int, span: int, ts: int
) -> None:
    pane = int(window.panes_of(np.array([ts]))[0])

    low, high = window.panes_between(before, before + span)

    assert (low <= pane < high) == bool(ends_by_hand(window, before, before + span, [ts]))


def test_a_watermark_that_jumps_from_the_beginning_to_the_end_of_time_costs_nothing() -> None:
    window = sliding("60s", every="7s")
    times = [-5, 1_700_000_000_000]
    panes = window.panes_of(np.array(times))

    ends = ends_in_range(window, MIN_TIME, MAX_TIME, times)

    assert len(ends) == len(window.assign(-5)) + len(window.assign(1_700_000_000_000))
    assert window.next_end(MIN_TIME, panes) == window.assign(-5)[0].end
    assert window.next_end(MAX_TIME, panes) is None
    assert not window.is_late(panes, MIN_TIME).any()
    assert window.is_late(panes, MAX_TIME).all()
    assert window.oldest_needed_pane(MIN_TIME) == MIN_TIME


def test_durations_and_offset_are_read_as_the_user_writes_them() -> None:
    assert tumbling("5s") == Window(5_000, 5_000)
    assert sliding("1m", "5s", offset="2s") == Window(60_000, 5_000, 2_000)
    assert tumbling("1d", offset=-3600) == Window(86_400_000, 86_400_000, 82_800_000)
    assert str(sliding("60s", every="5s")) == "sliding 1m every 5s"
    assert str(tumbling("1h", offset="5m")) == "tumbling 1h offset 5m"


@pytest.mark.parametrize(
    ("size", "slide", "code"),
    [
        ("0s", "0s", "HR-WINDOW-001"),
        (-5, 1, "HR-WINDOW-001"),
        ("60s", "0s", "HR-WINDOW-002"),
        ("60s", -1, "HR-WINDOW-002"),
        ("60s", "90s", "HR-WINDOW-003"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(size: str, slide: str, code: str) -> None:
    with pytest.raises(PlanError) as refusal:
        sliding(size, every=slide)

    assert refusal.value.code == code
    assert refusal.value.hint
    assert refusal.value.site and refusal.value.site.file == __file__
