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


def test_a_trend_fits_its_width():
    assert trend([1, 2, 3], 8) == "▁▄▇"
    assert len(trend(list(range(1000)), 24)) == 24
