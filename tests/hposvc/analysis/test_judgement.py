"""The statistics of a judgement: noise, the luck of the best, and the gain over the default."""

import numpy as np
import pytest
from replicated import Seeded
from simulated_sweeps import make_spec

from hposvc.analysis.findings import why
from hposvc.analysis.judgement import (
    Noise,
    expectations,
    gain,
    judge,
    luckiest,
    noise_of_curves,
    noise_of_repeats,
    spans_decades,
)

NOISE = Noise(1.0, 12, "repeats")


def test_equal_runs_give_the_pooled_deviation_and_an_interval_around_it():
    noise = noise_of_repeats([[1.0, 3.0], [10.0, 12.0], [5.0]])
    assert noise.deviation == pytest.approx(2**0.5)
    assert (noise.freedom, noise.measured) == (2, True)
    low, high = noise.estimate.low, noise.estimate.high
    assert low == pytest.approx((2 * 2 / 5.991) ** 0.5, rel=1e-3)  # chi-square of 2 degrees
    assert low < noise.deviation < high


def test_a_trend_noise_of_curves_is_no_noise_but_their_scatter_is():
    rng = np.random.default_rng(0)
    line = np.arange(12.0)
    assert noise_of_curves([line, line * 3]) is None
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
    assert known.of(best).value > -0.6
    assert known.of(best).low < 0 < known.of(best).high


def test_a_best_far_ahead_keeps_most_of_its_lead_and_replicates_prove_it():
    losses = named([*np.linspace(0, 20, 30), -4.0])
    alone = expectations(losses, NOISE)
    proved = expectations({**losses, "30": [-4.0] * 6, "0": [0.0] * 6}, NOISE)
    assert alone.of("30").value == pytest.approx(-4.0, abs=0.8)
    width = proved.of("30").high - proved.of("30").low
    assert width < 0.6 * (alone.of("30").high - alone.of("30").low)
    assert proved.better("30", "0") > 0.99
    assert proved.lead("30", "0").low > 1


def test_a_default_far_behind_is_not_pulled_to_the_good_ones_that_a_search_has_tried():
    rng = np.random.default_rng(0)
    tried = named(rng.normal(0.0, 0.2, 29) + rng.standard_normal(29))
    known = expectations({**tried, "default": [10.3, 9.4, 10.6]}, NOISE)
    best = min(tried, key=lambda name: tried[name][0])
    assert known.better(best, "default") > 0.99
    assert known.of("default").value == pytest.approx(10.1, abs=0.2)
    assert known.lead(best, "default").holds(10.0)


def test_among_equals_a_lead_is_no_better_than_an_even_bet():
    losses = named(np.random.default_rng(1).standard_normal(30))
    best = min(losses, key=losses.get)
    assert expectations(losses, NOISE).better(best, "0") < 0.5


@pytest.fixture
def judged(lab):
    """A sweep whose default is far worse than the others, and was stopped early."""
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
    [gain] = [each for each in why("s", judged.state) if each.topic == "gain"]
    assert gain.level == "good"
    assert "more than noise" in gain.sentence


STEPS = np.arange(1.0, 13.0)
SMOOTH = {
    "hyperbola": [rate + 1 / STEPS for rate in (0.1, 0.2, 0.4)],
    "decay": [0.05 + np.exp(-rate * STEPS) for rate in (0.2, 0.5, 1.0)],
    "power": [STEPS**-rate for rate in (0.3, 0.7, 2.0)],
    "over-fitting": [(STEPS - 9) ** 2 * rate for rate in (0.1, 0.3)],
    "constant": [np.full(12, 0.3), np.full(12, 0.2)],
}


@pytest.mark.parametrize("kind", SMOOTH)
def test_no_noise_is_read_from_curves_that_converge(kind):
    assert noise_of_curves([list(curve) for curve in SMOOTH[kind]]) is None
    if kind != "over-fitting":  # whose logarithms bend both ways
        assert noise_of_curves([list(np.log(curve)) for curve in SMOOTH[kind]]) is None


def test_noise_is_read_from_curves_that_converge_and_scatter():
    rng = np.random.default_rng(0)
    curves = [0.1 + 1 / STEPS + rng.normal(0, 0.05, 12) for _ in range(200)]
    assert noise_of_curves(curves).deviation == pytest.approx(0.05, rel=0.2)


KINDS = {
    "normal": lambda rng, worth: 10 + worth + rng.normal(0, 0.5),
    "positive": lambda rng, worth: 0.02 * np.exp(2.5 * worth + rng.normal(0, 0.4)),
    "near zero": lambda rng, worth: abs(0.05 * worth + rng.normal(0, 0.05)),
    "heavy tails": lambda rng, worth: 10 + worth + 0.3 * rng.standard_t(3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold_what_more_trainings_give_on_average_and_keep_the_sign(kind):
    """Of 60 sweeps of 16 trials, with a baseline and finalists of five runs each."""
    draw, held = KINDS[kind], 0
    for rng in np.random.default_rng(1).spawn(60):
        worth = rng.normal(0, 1, 16)
        runs = {f"{at}": [draw(rng, w)] for at, w in enumerate(worth)}
        best = min(runs, key=lambda name: runs[name][0])
        for name in dict.fromkeys(("0", best)):  # the same draws in every process
            runs[name] += [draw(rng, worth[int(name)]) for _ in range(5)]
        in_ratios = spans_decades([value for values in runs.values() for value in values])
        scale = np.log if in_ratios else float
        noise = noise_of_repeats([[*map(scale, values[1:])] for values in runs.values()])
        expected = expectations(runs, noise, in_ratios).of(best)
        again = [draw(rng, worth[int(best)]) for _ in range(4000)]
        middle = np.exp(np.mean(np.log(again))) if in_ratios else np.mean(again)
        held += expected.low <= middle <= expected.high
        assert expected.low >= 0
    assert held >= 0.8 * 60, "at a level of 0.9"
