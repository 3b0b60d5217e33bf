"""Admission against machines that take so long for a batch, and so long for each row."""

from __future__ import annotations

import random

import pytest

from headrace.driver.admission import Admission

TARGET = 1_000


def played(fixed: float, per_row: float, batches: int = 60, noise: float = 0.3) -> list[tuple]:
    """Rows and time of each batch while there is always more to read."""
    admission, chance, seen = Admission(TARGET), random.Random(7), []
    for number in range(batches):
        rows = admission.rows
        admission.took(rows)
        start = 5_000 if number == 0 else 0
        ms = start + (fixed + per_row * rows) * chance.uniform(1 - noise, 1 + noise)
        admission.lasted(ms)
        seen.append((rows, ms))
    return seen


def rate(seen: list[tuple]) -> float:
    """Rows a second over the later half."""
    late = seen[len(seen) // 2 :]
    return 1_000 * sum(rows for rows, _ in late) / sum(ms for _, ms in late)


@pytest.mark.parametrize("per_row", [0.001, 0.01, 0.1])
def test_batches_come_to_take_as_long_as_they_should(per_row):
    times = sorted(ms for _, ms in played(fixed=100, per_row=per_row)[30:])
    assert 0.5 * TARGET < times[len(times) // 2] < 1.6 * TARGET


def test_a_backlog_does_not_make_a_large_first_batch():
    assert played(fixed=100, per_row=0.01)[0][0] == 20_000


@pytest.mark.parametrize("fixed", [1_500, 5_000])
def test_a_machine_too_slow_for_the_aim_still_gets_through_its_rows(fixed):
    """Reading ever less would not help: most of the time goes whatever is read."""
    assert rate(played(fixed=fixed, per_row=0.01)) > 0.3 * 1_000 / 0.01


def test_it_recovers_when_the_machine_does():
    admission = Admission(TARGET)
    for fixed in [4_000] * 20 + [100] * 20:
        admission.took(admission.rows)
        admission.lasted(fixed + 0.01 * admission.rows)
    assert 100 + 0.01 * admission.rows < 1.6 * TARGET


def test_batches_that_are_not_full_do_not_make_it_grow():
    admission = Admission(TARGET)
    for _ in range(50):
        admission.took(100)
        admission.lasted(50)
    assert admission.rows <= 40_000


def test_with_a_largest_batch_that_is_what_is_read():
    admission = Admission(TARGET, max_batch=123)
    admission.took(123)
    admission.lasted(9_999)
    assert admission.rows == 123
