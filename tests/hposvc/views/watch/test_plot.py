import math

from hposvc.views.watch.plot import plot, trend


def test_a_falling_curve_begins_at_the_top_left_and_ends_at_the_bottom_right():
    lines = plot([(step, 10 - step) for step in range(1, 10)], width=30, height=6, marks=[3, 9])
    assert len(lines) == 6
    assert all(len(line) <= 30 for line in lines)
    assert lines[0].startswith("9 ┤⠉")
    assert lines[3].startswith("1 ┤")
    assert lines[3].rstrip()[-1] != "┤"
    assert lines[4].count("┴") == 3  # the first step, and the rungs
    assert lines[5].split() == ["1", "3", "9"]


def test_what_is_not_finite_is_a_gap_and_alone_no_curve():
    assert plot([(1, math.nan), (2, math.inf)], 30, 6) == []
    with_gap = plot([(1, 1.0), (2, math.nan), (3, 1.0)], 30, 4)
    whole = plot([(1, 1.0), (2, 1.0), (3, 1.0)], 30, 4)
    assert sum(map(len, with_gap)) <= sum(map(len, whole))
    assert with_gap != whole


def test_one_point_and_huge_values_are_drawn():
    assert len(plot([(5, 0.25)], 20, 5)) == 5
    assert len(plot([(1, -1e308), (2, 1e308)], 20, 5)) == 5


def test_a_trend_fits_its_width():
    assert trend([1, 2, 3], 8) == "▁▄▇"
    assert len(trend(list(range(1000)), 24)) == 24
