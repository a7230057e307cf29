from collections import Counter

from hposvc.reporting.charts import failures


def test_every_failure_is_counted_with_its_cause(history_of):
    history = history_of("asha")
    data = failures.build(history).data
    counts = {row["cause"]: row["count"] for row in data["causes"]}
    told = Counter(failure.cause for failure in history.failures)
    diverged = sum(trial.diverged for trial in history.state.trials.values())
    assert counts == {**told, **({"diverged": diverged} if diverged else {})}
    lost = sum(row["given_up"] for row in data["causes"])
    over = [trial for trial in history.state.trials.values() if trial.diverged]
    over += [trial for trial in history.state.trials.values() if trial.state == "FAILED"]
    assert lost == len({trial.id for trial in over})


def test_an_order_that_a_driver_lost_is_a_failure_and_is_tried_again(history_of):
    (row,) = failures.build(history_of("running")).data["causes"]
    assert (row["cause"], row["count"], row["given_up"]) == ("lost", 1, 0)


def test_the_message_of_a_trial_is_shown(history_of):
    chart = failures.build(history_of("failed"))
    assert "no such file: &lt;data&gt;" in failures.draw(chart.data)
