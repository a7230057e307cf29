from hposvc.reporting.charts import parallel


def test_each_axis_has_a_column_and_missing_values_are_null(history_of):
    data = parallel.build(history_of("asha")).data
    assert [axis["name"] for axis in data["axes"]][-2:] == ["epoch", "accuracy"]
    assert {len(column) for column in data["columns"]} == {len(data["trial"])}
    columns = {
        axis["name"]: column for axis, column in zip(data["axes"], data["columns"], strict=True)
    }
    for optimizer, momentum in zip(columns["optimizer"], columns["momentum"], strict=True):
        assert (momentum is not None) == (optimizer == "sgd")


def test_of_several_metrics_the_front_ranks_first(history_of):
    history = history_of("several")
    data = parallel.build(history).data
    ranked = sorted(zip(data["rank"], data["trial"], strict=True), reverse=True)
    front = set(history.state.front)
    assert {trial for _, trial in ranked[: len(front)]} == front
    assert data["best"] is None
