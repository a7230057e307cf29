"""The statistics of a judgement: noise, the luck of the best, and the gain over the default."""

import numpy as np
import pytest
from replicated import Seeded
from simulated_sweeps import Lab, make_spec

from hposvc.analysis.judgement import (
    Noise,
    expectations,
    gain,
    judge,
    luckiest,
    noise_of_curves,
    noise_of_repeats,
)
from hposvc.analysis.verdict import verdict
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal

NOISE = Noise(1.0, 12, "repeats")


def test_equal_runs_give_the_pooled_deviation_and_an_interval_around_it():
    noise = noise_of_repeats([[1.0, 3.0], [10.0, 12.0], [5.0]])
    assert noise.deviation == pytest.approx(2**0.5)
    assert (noise.freedom, noise.measured) == (2, True)
    low, high = noise.interval
    assert low == pytest.approx((2 * 2 / 5.991) ** 0.5, rel=1e-3)  # chi-square of 2 degrees
    assert low < noise.deviation < high


def test_a_trend_noise_of_curves_is_no_noise_but_their_scatter_is():
    rng = np.random.default_rng(0)
    line = np.arange(12.0)
    assert noise_of_curves([line, line * 3]).deviation == pytest.approx(0.0, abs=1e-12)
    noise = noise_of_curves([line + rng.normal(0, 0.5, 12) for _ in range(400)])
    assert noise.deviation == pytest.approx(0.5, rel=0.15)
    assert not noise.measured


def test_the_luck_of_the_best_is_that_of_dunnetts_tables():
    # Dunnett (1955), one-sided 5 % points for 16 degrees of freedom, equal runs.
    for rivals, point in ((1, 1.75), (3, 2.23), (5, 2.43)):
        assert luckiest(point, [5] * rivals, 5, 16) == pytest.approx(0.05, abs=0.003)


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


@pytest.fixture
def judged(tmp_path):
    """A sweep whose default is far worse than the others, and was stopped early."""
    lab = Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)
    spec = make_spec(
        scheduler={"type": "asha", "mode": "promote"},
        initial=[{"lr": 0.01}, {"lr": 0.001}, {"lr": 0.0015}, {"lr": 0.0008}, {"lr": 0.0012}],
        baseline={"seeds": 4},
        finalists={"top": 2, "seeds": 4},
        trials={"max": 12, "parallel": 2},
    )
    return judge(lab.run(spec, backend=Seeded))


def test_a_default_that_was_stopped_is_compared_by_its_new_runs(judged):
    first = judged.state.trials["t0001"]
    assert (first.state, first.at_end) == ("STOPPED", False)
    assert judged.default is first
    assert judged.default_runs == judged.again["t0001"] == judged.runs["t0001"]
    assert len(judged.default_runs) == 4
    assert judged.measured
    assert judged.gain.claimed
    lead = judged.expectations.lead(judged.best.id, "t0001")
    assert lead.low < 1.0 < lead.high  # (log10(0.01) + 3) ** 2, by the curve
    [gain] = [each for each in verdict("s", judged.state) if each.topic == "gain"]
    assert gain.level == "good"
    assert "more than noise" in gain.sentence
