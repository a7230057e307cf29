"""Whether a gain over the default is more than noise."""

import numpy as np
import pytest

from hposvc.analysis.gain import gain, luckiest


def test_the_luck_of_the_best_is_that_of_dunnetts_tables():
    # Dunnett (1955), one-sided 5 % points for 16 degrees of freedom, equal runs.
    for rivals, point in ((1, 1.75), (3, 2.23), (5, 2.43)):
        assert luckiest(point, [5] * rivals, 5, 16) == pytest.approx(0.05, abs=0.003)


def test_a_large_lead_is_claimed_and_a_small_one_is_not():
    default = [1.0, 1.1, 0.9]
    assert gain([[0.1, 0.0, 0.2], [0.9, 1.0, 1.2]], default).claimed
    small = gain([[0.95, 1.05, 0.85]], default)
    assert small.size == pytest.approx(0.05)
    assert not small.claimed
    assert not gain([[2.0, 2.1]], default).claimed


def test_without_repeats_or_a_default_there_is_no_answer():
    assert gain([[0.5], [0.6]], [1.0]) is None
    assert gain([[0.5, 0.6]], []) is None
    assert gain([[]], [1.0, 1.1]) is None


def claims(lead, sweeps=500):
    """Return the share of sweeps that claim a gain, of three finalists that lead by this much."""
    found = []
    for rng in np.random.default_rng(0).spawn(sweeps):
        finalists = [[*runs] for runs in rng.normal(-lead, 1, (3, 5))]
        found.append(gain(finalists, [*rng.normal(size=5)]).claimed)
    return np.mean(found)


def test_sweeps_of_noise_claim_no_gain_and_those_with_a_gain_of_two_deviations_do():
    assert claims(0) <= 0.05
    assert claims(2) >= 0.8
