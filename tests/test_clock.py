import re
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis.strategies import fractions, integers, lists, sampled_from, tuples

from headrace.clock import LONGEST, MAX_TIME, MIN_TIME, ManualClock, SystemClock, millis, pretty
from headrace.errors import PlanError

SRC = Path(__file__).resolve().parents[1] / "src" / "headrace"

SIZES = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1_000, "sec": 1_000, "secs": 1_000, "second": 1_000, "seconds": 1_000,
    "m": 60_000, "min": 60_000, "mins": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
    "w": 604_800_000, "week": 604_800_000, "weeks": 604_800_000,
}  # fmt: skip


@given(ms=integers(0, LONGEST))
def test_pretty_is_read_back_exactly(ms):
    assert millis(pretty(ms)) == ms


@given(ms=integers(-(10**12), 10**12))
def test_pretty_is_the_largest_unit_that_is_exact(ms):
    number, unit = pretty(ms).rstrip("dhms"), pretty(ms).lstrip("-0123456789")
    assert int(number) * SIZES[unit] == ms
    assert not any(ms and ms % size == 0 for size in SIZES.values() if SIZES[unit] < size < 10**8)


@given(parts=lists(tuples(integers(0, 10**6), sampled_from(sorted(SIZES))), min_size=1, max_size=4))
def test_the_parts_of_a_duration_add_up_however_they_are_spaced(parts):
    total = sum(number * SIZES[unit] for number, unit in parts)

    assert millis(" ".join(f"{number}{unit}" for number, unit in parts)) == total
    spaced = [(number, unit if unit == "m" else unit.upper()) for number, unit in parts]
    assert millis("".join(f" {number} {unit} " for number, unit in spaced)) == total


@given(hundredths=integers(0, 10**9), unit=sampled_from(sorted(SIZES)))
def test_a_decimal_fraction_is_rounded_once_to_the_nearest_millisecond(hundredths, unit):
    exact = Fraction(hundredths, 100) * SIZES[unit]
    assert abs(millis(f"{hundredths // 100}.{hundredths % 100:02}{unit}") - exact) <= Fraction(1, 2)


@given(seconds=fractions(-(10**9), 10**9, max_denominator=1_000))
@example(Fraction(1, 400))  # half a millisecond: the float is a little more
def test_numbers_are_seconds_and_agree_with_timedeltas(seconds):
    assert abs(millis(float(seconds)) - seconds * 1_000) < 1
    assert millis(timedelta(seconds=float(seconds))) == millis(float(seconds))


def test_whole_numbers_of_any_kind_are_seconds():
    assert millis(5) == millis(np.int64(5)) == millis(np.float32(5)) == millis(5.0) == 5_000


@pytest.mark.parametrize(
    "wrong",
    ["", "  ", "5", "s", "5 x", "5mss", "-5s", "5s,", "5s 5", ".5s", "1e3s", "\u0665s", True, None,
     b"5s", float("inf"), float("nan"), [5]],
)  # fmt: skip
def test_what_is_not_a_duration_is_refused(wrong):
    with pytest.raises(PlanError) as caught:
        millis(wrong)
    assert caught.value.code == "HR-TIME-001"


@pytest.mark.parametrize("long", ["9" * 30 + "d", 10**400, -(10**20), 1e300])
def test_a_duration_that_arithmetic_could_not_hold_is_refused(long):
    with pytest.raises(PlanError) as caught:
        millis(long)
    assert caught.value.code == "HR-TIME-002"


def test_the_ends_of_time_leave_room_for_arithmetic_in_64_bits():
    bounds, ages = np.iinfo(np.int64), millis("100000000d")
    assert bounds.min < MIN_TIME - ages < -ages < 0 < ages < MAX_TIME + ages < bounds.max


def test_a_manual_clock_moves_only_by_hand():
    clock = ManualClock(1_000)
    assert (clock.now(), clock.now()) == (1_000, 1_000)
    clock.advance(500)
    assert clock.now() == 1_500


def test_the_system_clock_tells_milliseconds_of_this_century():
    assert millis("1w") * 52 * 50 < SystemClock().now() < millis("1w") * 52 * 200


def test_only_the_clock_reads_wall_time():
    readers = re.compile(r"\btime\.time\b|time_ns\(|datetime\.now|utcnow|\.today\(")
    used = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if readers.search(path.read_text(encoding="utf-8"))
    }
    alone = "server/launcher.py"  # it imports nothing of Headrace
    assert used == {"clock.py", alone}


@pytest.mark.parametrize("text", ["1M", "1 M", "1h 5M"])
def test_what_may_be_a_month_is_no_minute(text: str) -> None:
    with pytest.raises(PlanError, match=r"may mean minutes or months"):
        millis(text)
    assert millis("5MS") == 5 and millis("3Min") == 180_000
