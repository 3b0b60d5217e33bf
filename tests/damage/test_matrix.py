"""Damage of a whole job's files, in short; `make damage` is the long form."""

from __future__ import annotations

import random

import pytest
from damage.kinds import KINDS, kind_of
from damage.matrix import Moment, Tally, judge
from damage.world import expected, small

# Files that only some moments have: tests of the sinks damage them.
RARE = {"staged for files"}
SHARE = 8  # of the cases, one in so many


@pytest.mark.parametrize("moment", ["at rest", "crashed"])
def test_rows_are_right_or_the_error_is_named(tmp_path, moment):
    tally, kinds = Tally(), set[str]()
    with small():
        one = Moment(tmp_path / "moment", moment)
        cases = list(one.cases(1, 1, random.Random(moment)))
        kinds = {kind_of(case.place) for case in cases}
        for case in random.Random(moment).sample(cases, len(cases) // SHARE):
            judge(one, case, tally)
        one.close()

    assert tally.violations == []
    assert tally.unchanged and tally.refused
    assert KINDS.keys() - kinds <= RARE


def test_undamaged_the_job_gives_what_the_model_says(tmp_path):
    with small():
        one = Moment(tmp_path / "moment", "crashed")
        driver = one.world.start()
        one.world.run(driver)
        driver.close()
        one.close()

    assert one.world.outputs() == expected()


def test_a_new_kind_of_file_is_not_forgotten():
    with pytest.raises(LookupError, match=r"list it in damage/kinds\.py"):
        kind_of("job/something new")
