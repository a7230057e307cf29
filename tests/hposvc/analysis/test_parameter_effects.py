import math

import numpy as np
import pytest
from simulated_sweeps import make_spec

from hposvc.analysis.parameter_effects import explained
from searchers.explain.belief import ROWS
from searchers.searcher import Observation

PARAMETERS = {
    "lr": {"min": 1e-5, "max": 1e-1, "log": True},
    "width": {"min": 1, "max": 64},
    "optimizer": {"values": ["sgd", "adam"]},
    "momentum": {"min": 0.0, "max": 0.99, "when": {"optimizer": "sgd"}},
}


def sweep_of(loss, count, seed=0, **sections):
    """Return a spec, and trials at random with losses that depend on their parameters."""
    spec = make_spec(**{"parameters": PARAMETERS, **sections})
    rng = np.random.default_rng(seed)
    trials = []
    for index in range(count):
        params = spec.space.sample(rng)
        value = loss(params, rng)
        name = f"t{index:04d}"
        trials.append(Observation(name, params, loss=value, curve=((9, value),), state="done"))
    return spec, trials


def by_rate(params, rng):
    """Return a loss of the rate, of which the optimizer changes a little."""
    return (math.log10(params["lr"]) + 3) ** 2 + 0.8 * (params["optimizer"] == "sgd")


def noise(params, rng):
    return rng.normal()


def test_the_parameters_that_matter_are_found_with_an_interval():
    (answer,) = explained(*sweep_of(by_rate, 40))
    first, second = answer.importance[:2]
    assert (first.name, second.name) == ("lr", "optimizer")
    assert first.total.low <= first.total.value <= first.total.high
    assert first.total.low > 0.6
    assert answer.learnt
    assert answer.slices[0].names == ("lr",)
    assert answer.pairs[0].dependence.names == ("lr", "optimizer")


@pytest.mark.full
def test_pure_noise_teaches_nothing():
    """A false claim has a chance of a fortieth each."""
    answers = [explained(*sweep_of(noise, 16, seed))[0] for seed in range(10)]
    assert sum(answer.learnt for answer in answers) <= 2
    assert np.mean([share.total.half for share in answers[0].importance]) > 0.1


@pytest.mark.full
def test_of_many_trials_the_best_and_others_at_random_are_explained():
    spec, trials = sweep_of(by_rate, 3 * ROWS)
    (answer,) = explained(spec, trials)
    assert (answer.trials, answer.of) == (ROWS, 3 * ROWS)
    assert answer.importance[0].name == "lr"


def test_each_of_several_metrics_is_explained_alone():
    both = [{"name": "loss", "goal": "minimize"}, {"name": "speed", "goal": "maximize"}]
    spec, trials = sweep_of(by_rate, 30, metric=None, metrics=both)
    trials = [
        Observation(
            seen.id,
            seen.params,
            losses=(seen.loss, -float(seen.params["width"])),
            curve=seen.curve,
            state="done",
        )
        for seen in trials
    ]
    loss, speed = explained(spec, trials)
    assert (loss.metric, loss.importance[0].name) == ("loss", "lr")
    assert (speed.metric, speed.importance[0].name) == ("speed", "width")
    assert speed.slices[0].mean[-1] > speed.slices[0].mean[0]  # in the user's sign


def test_stopped_trials_do_not_make_long_trials_look_worse():
    """The loss grows with the steps, so that a comparison across steps would be misled."""
    spec, trials = sweep_of(by_rate, 36)
    order = sorted(range(len(trials)), key=lambda index: trials[index].loss)
    stopped = set(order[12:])
    trials = [
        Observation(
            seen.id,
            seen.params,
            loss=seen.loss if index in stopped else seen.loss + 2,
            curve=((1, seen.loss),) if index in stopped else ((1, seen.loss), (9, seen.loss + 2)),
            state="done",
            reason="rung" if index in stopped else "",
        )
        for index, seen in enumerate(trials)
    ]
    (answer,) = explained(spec, trials)
    assert (answer.step, answer.stopped) == (9, 24)
    assert answer.learnt
    along = answer.slices[0]
    best = along.grids[0][int(np.argmin(along.mean))]
    assert 1e-4 < best < 1e-2


def test_the_same_trials_are_explained_once():
    spec, trials = sweep_of(by_rate, 20)
    assert explained(spec, trials)[0] is explained(spec, [*trials])[0]
    assert explained(spec, trials)[0] is not explained(spec, trials[1:])[0]
