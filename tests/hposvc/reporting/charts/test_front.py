from itertools import pairwise

from hposvc.reporting.charts import front


def test_the_front_is_that_of_the_state_and_its_volume_grows(history_of):
    history = history_of("several")
    data = front.build(history).data
    assert set(data["front"]) == set(history.state.front)
    assert not set(data["front"]) & set(data["others"])
    assert all(before <= after for before, after in pairwise(data["volume"]))
    assert 0 < data["volume"][-1] <= 1
    assert {len(data[name]) for name in ("trials", "seconds", "cost")} == {len(data["volume"])}


def test_no_trial_of_the_front_is_beaten_by_another_trial(history_of):
    accuracy, latency = front.build(history_of("several")).data["metrics"]
    on = zip(accuracy["front"], latency["front"], strict=True)
    others = [*zip(accuracy["others"], latency["others"], strict=True)]
    for good, fast in on:
        assert not [pair for pair in others if pair[0] > good and pair[1] < fast]
