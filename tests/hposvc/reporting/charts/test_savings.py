import pytest

from hposvc.reporting.charts import savings


def test_what_was_saved_is_what_the_sweep_would_have_cost(history_of):
    """All steps of this simulation take a minute with two ranks on a GPU each."""
    history = history_of("asha")
    chart = savings.build(history)
    stopped = [trial for trial in history.state.trials.values() if trial.reason == "rung"]
    steps = sum(27 - trial.step for trial in stopped)
    assert chart.data["stopped"] == len(stopped)
    assert chart.data["saved"] == pytest.approx(steps * 60 * 2 / 3600, rel=0.02)
    assert chart.data["spent"] == pytest.approx(history.state.gpu_hours, rel=1e-4)
    assert sum(chart.data["by_step"]["trials"]) == len(stopped)
    assert sum(chart.data["by_step"]["saved"]) == pytest.approx(chart.data["saved"], rel=1e-4)
