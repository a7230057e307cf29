"""Weights and normal ranges. If these fail, values are tried at another rate than was asked."""

import math

import numpy as np
import pytest
from scipy import stats

from searchers import Choice, Observation, Space, SpaceError, create
from searchers.distributions import at_quantile, draw, quantile
from searchers.evolution import evolve
from searchers.methods import load

SPACE = Space.from_dict(
    {
        "linear": {"min": 0.0, "max": 1.0, "normal": {"mean": 0.8, "deviation": 0.3}},
        "log": {"min": 1e-5, "max": 0.1, "log": True, "normal": {"mean": 1e-3, "deviation": 1.0}},
        "whole": {"min": 1, "max": 9, "normal": {"mean": 3, "deviation": 2}},
        "stepped": {"min": 0.0, "max": 1.0, "step": 0.1, "normal": {"mean": 0.5, "deviation": 0.1}},
        "kind": {"values": ["x", "y", "z"], "weights": [3, 1, 1]},
        "plain": {"min": 0.0, "max": 1.0},
    }
)
ENOUGH = 1e-3  # least p-value; draws have fixed seeds


def cut_off(low, high, mean, deviation):
    return stats.truncnorm((low - mean) / deviation, (high - mean) / deviation, mean, deviation)


def draws(method, count):
    searcher = create(method, SPACE, seed=3)
    return [searcher.ask().params for _ in range(count)]


def shares(values, among):
    return [sum(value == each for value in values) / len(values) for each in among]


@pytest.mark.parametrize("method", ["random", "sobol"])
def test_values_are_drawn_by_the_distributions(method):
    params = draws(method, 1000)
    linear = [each["linear"] for each in params]
    assert stats.kstest(linear, cut_off(0, 1, 0.8, 0.3).cdf).pvalue > ENOUGH
    logs = [math.log(each["log"]) for each in params]
    known = cut_off(math.log(1e-5), math.log(0.1), math.log(1e-3), 1.0)
    assert stats.kstest(logs, known.cdf).pvalue > ENOUGH
    whole = np.diff(cut_off(0.5, 9.5, 3, 2).cdf(np.arange(0.5, 10)))
    assert shares([each["whole"] for each in params], range(1, 10)) == pytest.approx(
        whole, abs=0.05
    )
    cells = np.diff(cut_off(-0.05, 1.05, 0.5, 0.1).cdf(np.arange(-0.05, 1.1, 0.1)))
    tenths = [round(10 * each["stepped"]) for each in params]
    assert shares(tenths, range(11)) == pytest.approx(cells[:11], abs=0.05)
    kinds = [each["kind"] for each in params]
    assert shares(kinds, "xyz") == pytest.approx([0.6, 0.2, 0.2], abs=0.05)
    assert stats.kstest([each["plain"] for each in params], "uniform").pvalue > ENOUGH


@pytest.mark.parametrize("name", SPACE)
def test_a_quantile_is_found_again_at_its_place(name):
    domain = SPACE[name]
    for at in np.linspace(0.01, 0.99, 25):
        if domain.count is None:
            assert quantile(domain, float(at_quantile(domain, at))) == pytest.approx(at)
        else:  # the middle of the cell that holds it
            middle = quantile(domain, domain.to_unit(draw(domain, at)))
            assert draw(domain, middle) == draw(domain, at)


@pytest.mark.parametrize("method", ["gp", "tpe", "nsga2", "cmaes"])
def test_the_first_trials_of_a_method_that_learns_follow_the_distributions(method):
    kind = load(method)()
    first, histories = [], range(60)
    for seed in histories:
        (proposal,) = kind.suggest(SPACE, [], 1, np.random.default_rng(seed))
        (second,) = kind.suggest(
            SPACE,
            [Observation("t1", proposal.params, proposal.note)],
            1,
            np.random.default_rng(seed),
        )
        first += [proposal.params, second.params]
    assert shares([each["kind"] for each in first], "x")[0] > 0.45
    assert abs(np.mean([each["linear"] for each in first]) - 0.68) < 0.1
    assert abs(np.mean([math.log10(each["log"]) for each in first]) + 3.0) < 0.2


def test_cmaes_begins_at_the_medians():
    log = SPACE.searched.index("log")
    assert evolve(SPACE, []).mean[log] == pytest.approx(0.5)
    linear = SPACE.searched.index("linear")
    assert evolve(SPACE, []).mean[linear] == pytest.approx(cut_off(0, 1, 0.8, 0.3).median())


def test_a_grid_draws_nothing_so_it_refuses_them():
    with pytest.raises(ValueError, match="grid tries the values of linear one by one, and normal"):
        create("grid", SPACE)
    weighted = Space({"k": Choice(("a", "b"), weights=(1, 2))})
    with pytest.raises(ValueError, match="weights is about draws; leave weights out, or search by"):
        create("grid", weighted)


@pytest.mark.full
def test_where_constraints_leave_little_the_rest_is_drawn_by_its_distributions():
    kinds = {"values": [*range(4)], "weights": [7, 1, 1, 1]}
    ends = {"min": 0.0, "max": 1.0, "normal": {"mean": 0.5, "deviation": 0.2}}
    space = Space.from_dict(
        {"a": ends, "b": {"min": 0.0, "max": 1.0}, "k": kinds}, ["a - b > 0.95"]
    )
    assert space.is_rare
    samples = [space.sample(np.random.default_rng(seed)) for seed in range(100)]
    assert all(each["a"] - each["b"] > 0.95 for each in samples)
    assert shares([each["k"] for each in samples], [0])[0] > 0.5


def test_tied_values_have_weights_too():
    sizes = {"values": [{"layers": 2, "width": 8}, {"layers": 4, "width": 16}], "weights": [9, 1]}
    space = Space.from_dict({"size": sizes})
    assert Space.from_dict(space.to_dict()).to_dict() == space.to_dict()
    rng = np.random.default_rng(0)
    layers = [space.sample(rng)["layers"] for _ in range(200)]
    assert shares(layers, [2])[0] == pytest.approx(0.9, abs=0.06)


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        ({"normal": {"mean": 2, "deviation": 0.1}}, "normal.mean: is 2, outside 0.0 to 1.0"),
        ({"normal": {"mean": 0.2, "deviation": 0}}, "normal.deviation: is 0; give a number above"),
        ({"normal": True}, "normal: is True; write {mean: M, deviation: D}"),
        ({"normal": {"mean": 0.2, "deviation": 1e-5}}, "normal.deviation: is 1e-05, 1e-05 times"),
        ({"normal": {"mean": 0.2, "deviation": 1e9}}, "normal.deviation: .*; leave normal out"),
        ({"prior": "normal"}, "prior: is no key of a parameter: .*write normal: {mean: M, dev"),
        ({"weights": [1]}, "weights: is no key of a parameter"),
        ({"log": True, "min": 0.1, "normal": {"mean": 0.5, "deviation": 1e4}}, "times the range"),
    ],
)
def test_a_wrong_normal_range_is_named_with_what_it_may_be(domain, message):
    with pytest.raises(SpaceError, match=message):
        Space.from_dict({"p": {"min": 0.0, "max": 1.0, **domain}})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1], "weights: has 1 numbers for 2 values; give one for each"),
        ([1, 0], r"weights\[1\]: is 0; give a number above 0; leave out a value that is never"),
        ([1, math.nan], r"weights\[1\]: is nan; give a number above 0"),
        ([1e308, 1e308], "weights: have no finite sum"),
        ("ab", "weights: is 'ab'; give a list, a number for each value"),
    ],
)
def test_wrong_weights_are_named_with_what_they_may_be(weights, message):
    with pytest.raises(SpaceError, match=message):
        Space.from_dict({"p": {"values": ["a", "b"], "weights": weights}})


def test_other_words_lead_to_ours():
    with pytest.raises(SpaceError, match=r"probabilities: is no key of a parameter: write weights"):
        Space.from_dict({"p": {"values": ["a", "b"], "probabilities": [0.1, 0.9]}})
