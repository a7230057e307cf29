from hposvc.reporting.charts import slices


def test_it_has_the_trials_and_the_models_line_for_each_parameter(history_of):
    data = slices.build(history_of("asha")).data
    names = {parameter["name"] for parameter in data["parameters"]}
    (metric,) = data["metrics"]
    assert {one["parameter"] for one in metric["expected"]} == names == set(data["params"])
    for one in metric["expected"]:
        assert len(one["at"]) == len(one["mean"]) == len(one["deviation"])
    assert {len(column) for column in data["params"].values()} == {len(data["trial"])}
    assert 0 < sum(data["complete"]) < len(data["complete"])


def test_with_few_trials_it_has_the_dots_alone(history_of):
    chart = slices.build(history_of("one"))
    assert chart.data["metrics"][0]["expected"] == []
    assert "too few for a model" in chart.message


def test_there_is_none_without_values(history_of):
    for name in ("empty", "failed", "nan", "constant"):
        assert slices.build(history_of(name)) is None
