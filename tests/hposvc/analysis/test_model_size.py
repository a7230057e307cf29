"""The sizes of trials. If they fail, a scaling law is fitted to other sizes than trained."""

from dataclasses import replace

from simulated_sweeps import make_spec
from trial_rows import row

from hposvc.analysis.model_size import Names, points
from hposvc.analysis.scaling_law import ScalePoint

METRICS = {"tokens": 1e6, "loss": 1.5}
TRIAL = row("t0001", "COMPLETED", 1.5, step=3, params={"width": 64}, metrics=METRICS)


def test_trials_say_their_sizes_as_metrics_or_parameters():
    others = [replace(TRIAL, state="STOPPED"), replace(TRIAL, value=None)]
    result = points(make_spec(), [TRIAL, *others], Names("width", "tokens"))
    assert result == [ScalePoint(64.0, 1e6, 1.5)]


def test_samples_of_a_last_batch_that_is_dropped_do_not_count():
    spec = make_spec(fidelity=None, engine="local", trainable="small:Dropping")
    assert points(spec, [TRIAL], Names("width")) == [ScalePoint(64.0, 3 * 16.0, 1.5)]
