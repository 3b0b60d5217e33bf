"""Doctor held against what a whole job does with each kind of damaged file, in short."""

from __future__ import annotations

import random

import pytest
from damage.doctor import judge_doctor, judge_whole
from damage.kinds import KINDS, kind_of
from damage.matrix import Moment, Tally
from damage.world import small

MOMENTS = ["at rest", "crashed"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_doctor_finds_what_refuses_the_job_and_nothing_else(tmp_path, moment):
    tally, chance = Tally(), random.Random(f"doctor {moment}")
    with small():
        one = Moment(tmp_path / "moment", moment)
        judge_whole(one, tally)
        by_kind = dict[str, list]()
        for case in one.cases(1, 1, chance):
            by_kind.setdefault(kind_of(case.place), []).append(case)
        for kind in sorted(KINDS)[MOMENTS.index(moment) :: len(MOMENTS)]:
            if kind in by_kind:
                judge_doctor(one, chance.choice(by_kind[kind]), tally)
        one.close()

    assert tally.violations == []
    assert tally.refused and tally.unchanged
