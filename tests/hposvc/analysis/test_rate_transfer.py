"""If these fail, a rate is said to suit large models that does not, or the other way round.

Axes: N trials of a size.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from hposvc.analysis.rate_transfer import RateTransfer, SizeTrials, judge_transfer
from hposvc.errors import SpecError
from hposvc.estimate import Estimate

SIZES = (32, 64, 128, 256)
BEST = -8.0  # log2 of the best rate between the sizes


def curves(
    seed: int, shift: float, trials: int = 12, noise: float = 0.01, steep: float = 2.0
) -> list[SizeTrials]:
    """Return trials of parabolas that are steeper above their optimum, where trials diverge."""
    rng = np.random.default_rng(seed)
    sizes = []
    for at, size in enumerate(SIZES):
        x_N = rng.uniform(BEST - 5, BEST + 5, trials)
        away_N = x_N - BEST - shift * (at - 1.5)
        y_N = 1 - 0.05 * at + 0.02 * away_N**2 * np.where(away_N > 0, steep, 1)
        y_N += rng.normal(0, noise, trials)
        y_N[away_N > 3] += 5.0
        y_N[away_N > 4] = math.inf
        sizes.append(SizeTrials(size, tuple(2.0**x_N), tuple(map(float, y_N))))
    return sizes


def judged(sizes: list[SizeTrials]) -> RateTransfer:
    return judge_transfer(sizes, "lr", "width", "loss")


@pytest.mark.parametrize(
    "shift", [-1.0, *(pytest.param(shift, marks=pytest.mark.full) for shift in (-0.5, 0.0, 0.5))]
)
def test_a_known_shift_is_recovered_and_its_interval_is_neither_narrow_nor_wide(shift):
    """Of 14 intervals at 90 %, 10 or more hold in 99.1 % of cases."""
    found = [judged(curves(seed, shift, steep=1.0)).shift for seed in range(14)]
    assert np.mean([each.value for each in found]) == pytest.approx(shift, abs=0.06)
    assert sum(each.holds(shift) for each in found) >= 10
    assert np.median([each.half for each in found]) < 0.3


@pytest.mark.parametrize("noise", [pytest.param(0.005, marks=pytest.mark.full), 0.03])
def test_intervals_of_shifts_hold_them_on_lopsided_curves_too(noise):
    """Of 20 intervals at 90 %, 15 or more hold in 98.9 % of cases."""
    held = [judged(curves(seed, -0.5, noise=noise)).shift.holds(-0.5) for seed in range(20)]
    assert sum(held) >= 15


def test_the_answer_follows_the_shift():
    answers = {shift: judged(curves(1, shift, 16, 0.004)).answer for shift in (0.0, -1.0)}
    assert answers == {0.0: "transfers", -1.0: "does not transfer"}


@pytest.mark.parametrize("shift", [0.0, pytest.param(-1.0, marks=pytest.mark.full)])
def test_the_wrong_answer_is_rare(shift):
    wrong = "does not transfer" if shift == 0 else "transfers"
    answers = [judged(curves(seed, shift, 12, 0.03)).answer for seed in range(20)]
    assert answers.count(wrong) <= 2


def test_flat_curves_tell_nothing():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        flat = [
            replace(each, losses=tuple(rng.normal(1, 0.01, len(each.rates))))
            for each in curves(seed, 0.0)
        ]
        assert judged(flat).answer == "cannot tell"
    equal = [replace(each, losses=(1.0,) * len(each.rates)) for each in curves(0, 0.0)]
    assert judged(equal).answer == "cannot tell"


@pytest.mark.parametrize("seed", range(6))
def test_each_figure_lies_in_its_interval(seed):
    found = judged(curves(seed, -0.3, 10 + seed, 0.05))
    for each in (found.shift, found.cost, *(best.rate for best in found.optima)):
        assert each.low <= each.value <= each.high
    assert found.cost.low >= 0


def test_an_optimum_at_an_end_of_the_range_may_lie_beyond_it():
    sizes = [
        SizeTrials(each.size, *zip(*kept, strict=True))
        for each in curves(0, 0.0, 40, 0.004)
        for kept in [
            [pair for pair in zip(each.rates, each.losses, strict=True) if pair[0] < 2**-9.0]
        ]
    ]
    found = judged(sizes)
    assert [best.beyond for best in found.optima] == ["higher"] * 4
    assert found.answer == "cannot tell"
    assert "may lie outside the values that were tried with width 32 (higher)" in found.reason
    bounded = [  # where the next higher rates diverge, nothing lies beyond
        SizeTrials(each.size, (*each.rates, 2**-8.9), (*each.losses, math.inf)) for each in sizes
    ]
    assert not any(best.beyond for best in judged(bounded).optima)


def test_the_cost_is_what_the_small_rate_loses_at_the_largest_size():
    rates = tuple(2.0 ** np.linspace(-16, 0, 33))
    rng = np.random.default_rng(0)
    found = judged(
        [
            SizeTrials(size, rates, tuple(0.02 * (np.log2(rates) - best) ** 2 + noise_N))
            for size, best in zip(SIZES, (-6, -7, -8, -9), strict=True)
            for noise_N in [rng.normal(0, 0.003, len(rates))]
        ]
    )
    assert found.cost.low <= found.cost.value <= found.cost.high
    assert found.cost.value == pytest.approx(0.02 * 3**2, rel=0.1)
    far = judged(curves(2, -2.0, 30, 0.003))  # above the highest rate with a loss
    assert far.cost == Estimate(*(math.inf,) * 3)


def test_repeated_rates_are_taken_as_they_are():
    rates = tuple(2.0 ** np.repeat(np.arange(-13.0, -4), 2))
    rng = np.random.default_rng(0)
    sizes = [
        SizeTrials(size, rates, tuple(0.02 * (np.log2(rates) + 8) ** 2 + rng.normal(0, 0.004, 18)))
        for size in SIZES
    ]
    assert judged(sizes).answer == "transfers"


def test_too_few_sizes_or_rates_are_refused():
    with pytest.raises(SpecError, match=r"have 2 values of width; a line .* needs 3"):
        judged(curves(0, 0.0)[:2])
    with pytest.raises(SpecError, match=r"width 32, 3 values of lr have a loss; .* needs 5"):
        judged(curves(0, 0.0, trials=3))
