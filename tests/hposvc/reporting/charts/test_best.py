from hposvc.reporting.charts import best


def test_its_columns_have_one_entry_for_each_new_best_value(history_of):
    history = history_of("asha")
    chart = best.build(history)
    columns = [chart.data[name] for name in ("trial", "value", "trials", "seconds", "cost")]
    assert {len(column) for column in columns} == {len(history.improvements)}
    assert chart.data["trial"][-1] == history.state.best
    assert history.state.best in chart.message
