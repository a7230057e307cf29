"""If these fail, trials that train at once report no times, or times that nobody spent."""

import pytest
from small import Small, again, together, worker

PARTS = {"data", "forward", "backward", "communication", "optimizer"}


def perf(trial, step):
    """Return the times of a report, in milliseconds."""
    metrics = trial.reports[step - 1].metrics
    return {name: value for name, value in metrics.items() if name.endswith("_ms")}


def test_trials_at_once_report_the_times_that_a_trial_alone_reports():
    trials = [worker(until=3, seed=k) for k in range(3)]
    alone = again(trials[0])
    together([Small() for _ in trials], trials)
    Small().train(alone)
    for trial in trials:
        for own, theirs in zip(trial.reports, alone.reports, strict=True):
            assert own.metrics.keys() == theirs.metrics.keys()
    assert perf(trials[0], 2).keys() == {f"perf/{name}_ms" for name in (*PARTS, "step")}


def test_a_trials_times_are_its_part_of_the_turn_and_its_speed_is_its_own():
    trials = [worker(until=2, seed=k) for k in range(4)]
    together([Small() for _ in trials], trials)
    reports = [trial.reports[1].metrics for trial in trials]
    assert reports[0]["perf/step_ms"] > 0
    for metrics in reports[1:]:
        assert perf(trials[0], 2) == {name: metrics[name] for name in perf(trials[0], 2)}
        assert metrics["perf/memory_peak_gb"] == reports[0]["perf/memory_peak_gb"]
    # Four trials take four parts of an update; each learns from 23 samples in its three updates.
    seconds = 3 * 4 * reports[0]["perf/step_ms"] / 1e3
    assert reports[0]["perf/samples_per_s"] == pytest.approx(23 / seconds)
    parts = sum(reports[0][f"perf/{name}_ms"] for name in PARTS)
    assert parts <= reports[0]["perf/step_ms"] * (1 + 1e-9)
