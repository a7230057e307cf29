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
