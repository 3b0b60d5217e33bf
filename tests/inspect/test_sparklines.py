"""Small plots: what is drawn is where the values are."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis.strategies import floats, integers, lists, none

from headrace.inspect.sparklines import as_svg, as_text

MINUTE = 60_000


def test_a_line_of_text_rises_with_the_values_and_ends_now():
    times = [1_000 * i for i in range(60)]
    assert as_text(times, [float(i) for i in range(60)], 8, MINUTE) == "▂▃▃▄▅▆▇█"
    assert as_text(times[-8:], [0.0] * 8, 4, MINUTE) == "   ▁"  # older ones are not known
    assert as_text([0, 59_000], [5.0, 5.0], 4, MINUTE) == "████"  # nobody has looked between
    assert as_text(times, [5.0, *[None] * 59], 4, MINUTE) == "█   "  # it was not known since
    assert as_text([0, 1_000, 59_000], [5.0, None, 5.0], 4, MINUTE) == "█  █"
    assert as_text([], [], 4, MINUTE) == "    "


def test_what_is_older_is_not_drawn():
    assert as_text([0, MINUTE, 2 * MINUTE], [9.0, None, 1.0], 4, MINUTE)[-1] == "█"
    assert "polyline" not in as_svg([0, 2 * MINUTE], [9.0, 1.0], MINUTE)


def test_a_gap_divides_the_line():
    svg = as_svg([0, 1, 2, 3, 4], [1.0, 2.0, None, 2.0, 1.0], 4, width=40, height=20)
    assert svg.count("<polyline") == 2
    assert "points='0.0,10.0 10.0,1.0'" in svg


values = lists(none() | floats(allow_nan=True, allow_infinity=True), max_size=40)


@given(values, integers(1, 40), integers(1, 10**6))
def test_every_plot_stays_within_its_bounds(values, width, past):
    times = [i * 1_000 for i in range(len(values))]
    assert len(as_text(times, values, width, past)) == width
    svg = as_svg(times, values, past, width=100, height=20)
    for x, y in re.findall(r"(-?[\d.]+|nan|inf),(-?[\d.]+|nan|inf)", svg):
        assert 0 <= float(x) <= 100 and 0 <= float(y) <= 20
