import math
import xml.etree.ElementTree as ET

from hypothesis import example, given
from hypothesis import strategies as st

from hposvc.reporting.svg import Linear, LogScale, Picture, round_step

FINITE = st.floats(-1e12, 1e12)


@given(st.lists(FINITE, min_size=1))
def test_a_linear_scale_holds_all_values_and_has_some_ticks_inside(values):
    scale = Linear.around(values, 100.0, 20.0)
    places = [scale(value) for value in values]
    assert all(20 - 1e-6 <= place <= 100 + 1e-6 for place in places)
    assert 2 <= len(scale.ticks) <= 14
    assert all(20 - 1e-6 <= tick.at <= 100 + 1e-6 for tick in scale.ticks)


@given(st.lists(st.floats(1e-12, 1e12), min_size=1))
@example([math.nextafter(1e12, 0), 1e12])
def test_a_logarithmic_scale_holds_all_values_and_has_some_ticks_inside(values):
    scale = LogScale.around(values, 0.0, 100.0)
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value in values)
    assert len(scale.ticks) >= 2
    assert all(-1e-3 <= tick.at <= 100.1 for tick in scale.ticks)


@given(st.floats(1e-12, 1e12))
def test_a_step_is_round_and_not_much_longer_than_asked(rough):
    step = round_step(rough)
    assert rough * 0.99 <= step <= rough * 2.51
    assert f"{step / 10 ** math.floor(math.log10(step * 1.000001)):.4g}" in {"1", "2", "2.5", "5"}


def test_values_that_are_not_finite_widen_no_scale():
    scale = Linear.around([math.nan, 1.0, math.inf, 2.0], 0.0, 1.0)
    assert (scale.low, scale.high) == (1.0, 2.0)


def test_a_picture_is_xml_whatever_it_is_told_and_says_what_it_shows():
    picture = Picture('a "title" <b>', "x & y")
    picture.text(1, 2, "<script>alert(1)</script>")
    picture.dot(1, 2, "red", hover="</title><script>")
    root = ET.fromstring(picture.svg())
    assert root.get("aria-label") == 'a "title" <b>. x & y'
    assert not root.findall(".//{*}script")
