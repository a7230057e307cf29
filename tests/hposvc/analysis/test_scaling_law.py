"""Scaling laws from a sweep's trials. If they fail, people train models of the wrong size."""

import numpy as np
import pytest

from hposvc.analysis.scaling_law import Law, ScalePoint, TooFew, check, fit, frontier

# Hoffmann et al. (2022), appendix D.3.
CHINCHILLA = Law(floor=1.69, a=406.4, alpha=0.34, b=410.7, beta=0.28)
NOISE = 0.003  # of log losses
SIZES, AMOUNTS = np.geomspace(4e7, 1.6e10, 6), np.geomspace(1e9, 4e11, 5)


def seen(law: Law, seed: int) -> list[ScalePoint]:
    rng = np.random.default_rng(seed)
    return [
        ScalePoint(weights, samples, law.loss(weights, samples) * np.exp(rng.normal(0, NOISE)))
        for weights in SIZES
        for samples in AMOUNTS
    ]


@pytest.mark.full
def test_intervals_hold_the_truth_nearly_always():
    held = []
    for seed in range(8):
        fitted = fit(seen(CHINCHILLA, seed), seed, resamples=40)
        truth = vars(CHINCHILLA)
        held += [each.holds(truth[name]) for name, each in fitted.coefficients.items()]
        best, _ = CHINCHILLA.optimum(5.76e23)
        held.append(fitted.optimum(5.76e23)[0].holds(best))
    assert np.mean(held) > 0.8


def test_without_noise_the_coefficients_come_back():
    exact = [
        ScalePoint(weights, samples, CHINCHILLA.loss(weights, samples))
        for weights in SIZES
        for samples in AMOUNTS
    ]
    law = fit(exact, resamples=2).law
    for name, value in vars(CHINCHILLA).items():
        assert getattr(law, name) == pytest.approx(value, rel=1e-3), name


@pytest.mark.parametrize("kept", ["weights", "samples"])
def test_a_size_that_does_not_vary_is_left_out(kept):
    law = Law(2.0, 100.0, 0.4, 0.0, 0.0)
    sizes = np.geomspace(1e3, 1e6, 6)
    other = {"weights": "samples", "samples": "weights"}[kept]
    given_points = [
        ScalePoint(**{kept: size, other: 7.0}, loss=law.loss(size, 1.0)) for size in sizes
    ]
    fitted = fit(given_points, resamples=2).law
    exponent = fitted.alpha if kept == "weights" else fitted.beta
    assert exponent == pytest.approx(0.4, rel=1e-3)
    assert (fitted.beta if kept == "weights" else fitted.alpha) == 0.0
    with pytest.raises(ValueError, match="vary both"):
        fitted.optimum(1e20)


def test_the_optimum_spends_the_budget_and_no_neighbour_is_better():
    weights, samples = CHINCHILLA.optimum(1e21)
    assert 6 * weights * samples == pytest.approx(1e21)
    for factor in (0.9, 1.1):
        beside = CHINCHILLA.loss(weights * factor, samples / factor)
        assert beside > CHINCHILLA.loss(weights, samples)


def test_the_frontier_has_the_best_finite_loss_of_equal_sizes():
    many = [
        ScalePoint(1, 1, 2.0),
        ScalePoint(1, 1, 1.5),
        ScalePoint(2, 1, float("nan")),
        ScalePoint(3, 1, -1.0),
    ]
    assert frontier(many) == [ScalePoint(1, 1, 1.5)]


@pytest.mark.parametrize(
    ("given_points", "reason"),
    [
        ([], "0 points"),
        ([ScalePoint(1, 1, 1.0), ScalePoint(2, 1, 0.9)], "needs 3 different values"),
        ([ScalePoint(size, 1, 1 / size) for size in (1, 2, 3)], "needs 4 or more"),
        ([ScalePoint(size, size, 1 / size) for size in (1, 2, 3, 4, 5)], "needs 6 or more"),
    ],
)
def test_too_few_points_are_refused_with_the_reason(given_points, reason):
    with pytest.raises(TooFew, match=reason):
        check(given_points)
