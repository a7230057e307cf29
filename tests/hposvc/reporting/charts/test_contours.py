import re

from hposvc.reporting.charts import contours


def test_each_pair_has_a_grid_of_expected_values(history_of):
    chart = contours.build(history_of("asha"))
    assert 1 <= len(chart.data["pairs"]) <= 3
    for pair in chart.data["pairs"]:
        assert len(pair["mean"]) == len(pair["at_x"])
        assert {len(row) for row in pair["mean"]} == {len(pair["at_y"])}
        assert 0 <= pair["interaction"] <= pair["share"] <= 1


def test_places_where_two_parameters_are_never_together_stay_empty():
    panel = {
        "x": {"name": "optimizer", "scale": "category", "categories": ["sgd", "adam"]},
        "y": {"name": "momentum", "scale": "linear", "low": 0.0, "high": 1.0, "categories": []},
        "at_x": ["sgd", "adam"],
        "at_y": [0.0, 1.0],
        "mean": [[0.1, 0.2], [None, None]],
        "deviation": [[0.1, 0.1], [None, None]],
        "metric": "loss",
        "goal": "minimize",
        "learnt": True,
        "share": 0.5,
        "interaction": 0.1,
    }
    data = {"best": None, "unit": "step", "step": 0, "pairs": [panel], "trial": [], "complete": []}
    svg = contours.draw({**data, "params": {"optimizer": [], "momentum": []}})
    ends = {float(end) for end in re.findall(r"H(\d+)V", svg)}
    assert len(ends) == 1  # the boxes of sgd end in the middle, and adam has none
    assert ends.pop() < 150


def test_there_is_none_with_one_parameter(history_of):
    assert contours.build(history_of("many")) is None
