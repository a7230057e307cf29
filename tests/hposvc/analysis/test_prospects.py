"""What more trials would gain."""

import math

import numpy as np

from hposvc.analysis.prospects import prospect


def test_a_promise_holds_for_random_search_of_a_bowl():
    held = []
    for rng in np.random.default_rng(0).spawn(60):
        losses = ((rng.random((60, 3)) - 0.3) ** 2).sum(axis=1)
        found = prospect([*losses[:40]], 20, adaptive=False)
        true = max(0.0, float(losses[:40].min() - losses[40:].min()))
        held.append(found.low <= true <= found.high)
    assert np.mean(held) >= 0.8


def test_the_more_trials_before_the_less_is_promised():
    losses = [*np.random.default_rng(1).random(400)]
    gains = [prospect(losses[:trials], 20, adaptive=False).chance for trials in (20, 80, 400)]
    assert gains == sorted(gains, reverse=True)


def test_equal_values_promise_nothing_and_few_values_tell_nothing():
    assert prospect([1.0] * 30, 20, adaptive=True).gain == 0
    assert prospect([0.1, 0.2, 0.3], 20, adaptive=False) is None
    assert prospect([math.inf] * 30, 20, adaptive=False) is None
    assert prospect([], 20, adaptive=False) is None


def test_trials_without_a_value_count_as_trials_that_gain_nothing():
    losses = [*np.random.default_rng(2).random(40)]
    stopped = [each for loss in losses for each in (loss, math.inf, math.inf)]
    assert prospect(stopped, 20, False).chance < prospect(losses, 20, False).chance
