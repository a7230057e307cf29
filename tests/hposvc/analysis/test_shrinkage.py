"""Expected values of trials: the best one's luck is taken off."""

import numpy as np
import pytest

from hposvc.analysis.noise import Noise
from hposvc.analysis.shrinkage import expectations

NOISE = Noise(1.0, 12, "repeats")


def named(values):
    return {str(number): [float(value)] for number, value in enumerate(values)}


def test_among_equals_the_luckiest_is_pulled_back_to_the_others():
    losses = named(np.random.default_rng(0).standard_normal(200))
    best = min(losses, key=losses.get)
    known = expectations(losses, NOISE)
    assert losses[best][0] < -2.3
    assert known.of(best).mean > -0.6
    assert known.of(best).low < 0 < known.of(best).high


def test_a_best_far_ahead_keeps_most_of_its_lead_and_replicates_prove_it():
    losses = named([*np.linspace(0, 20, 30), -4.0])
    alone = expectations(losses, NOISE)
    proved = expectations({**losses, "30": [-4.0] * 6, "0": [0.0] * 6}, NOISE)
    assert alone.of("30").mean == pytest.approx(-4.0, abs=0.8)
    width = proved.of("30").high - proved.of("30").low
    assert width < 0.6 * (alone.of("30").high - alone.of("30").low)
    assert proved.better("30", "0") > 0.99
    assert proved.lead("30", "0").low > 1


def test_among_equals_a_lead_is_no_better_than_an_even_bet():
    losses = named(np.random.default_rng(1).standard_normal(30))
    best = min(losses, key=losses.get)
    assert expectations(losses, NOISE).better(best, "0") < 0.5
