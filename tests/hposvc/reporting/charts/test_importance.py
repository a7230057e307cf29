from hposvc.reporting.charts import importance


def test_its_message_names_the_first_parameter_with_its_interval(history_of):
    chart = importance.build(history_of("asha"))
    metric = chart.data["metrics"][0]
    assert metric["learnt"]
    assert chart.message.startswith(f"{metric['parameter'][0]} explains {metric['total'][0]:.0%} (")
    assert f"{metric['stopped']} trials that stopped early count by their curves" in chart.message


def test_it_says_when_nothing_was_learnt(history_of):
    chart = importance.build(history_of("pbt"))
    assert not chart.data["metrics"][0]["learnt"]
    assert chart.message.startswith("Nothing can be said yet")
    assert "not known yet" in importance.draw(chart.data)


def test_each_metric_has_its_own(history_of):
    data = importance.build(history_of("several")).data
    assert [metric["metric"] for metric in data["metrics"]] == ["accuracy", "latency"]


def test_there_is_none_with_one_parameter_or_few_results(history_of):
    assert importance.build(history_of("many")) is None
    assert importance.build(history_of("one")) is None
