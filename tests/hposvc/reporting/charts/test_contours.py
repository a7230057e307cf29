from hposvc.reporting.charts import contours


def test_each_pair_has_a_grid_of_expected_values(history_of):
    chart = contours.build(history_of("asha"))
    assert 1 <= len(chart.data["pairs"]) <= 3
    for pair in chart.data["pairs"]:
        assert len(pair["mean"]) == len(pair["at_x"])
        assert {len(row) for row in pair["mean"]} == {len(pair["at_y"])}
        assert 0 <= pair["interaction"] <= pair["share"] <= 1
