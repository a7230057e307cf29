from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, kstest

from searchers import Space, SpaceError, create

SOME = settings(max_examples=3, deadline=None)


def shares(count, **more):
    return {f"x{index}": {"min": 0.0, "max": 1.0, **more} for index in range(count)}


RARE = {
    "seven shares": (shares(7), ["x0 + x1 + x2 + x3 + x4 + x5 + x6 <= 1"]),
    "a chain": (shares(8), [f"x{index} < x{index + 1}" for index in range(7)]),
    "steps that make a whole": (shares(8, step=0.1), ["+".join(shares(8)) + " == 1"]),
    "a small ball": (shares(4), ["+".join(f"(x{i} - 0.3) ** 2" for i in range(4)) + " < 1e-6"]),
    "log scales": (
        {f"x{index}": {"min": 1e-6, "max": 1.0, "log": True} for index in range(5)},
        ["x0 + x1 + x2 + x3 + x4 <= 1e-5"],
    ),
    "whole numbers": (
        {name: {"min": 1, "max": 1000} for name in "abcd"},
        ["a + b + c + d == 1000", "a < b"],
    ),
    "conditions and labels": (
        {
            "kind": {"values": ["one", "two", "three"]},
            "width": {"min": 1, "max": 4096, "log": True, "when": {"kind": ["two", "three"]}},
            "depth": {"values": [1, 2, 4, 8, 16], "ordered": True},
            **shares(5),
        },
        ["kind != 'one'", "width * depth <= 2", "x0 < x1 < x2 < x3 < x4 and x0 > 0.5"],
    ),
}


@cache
def rare(kind):
    return Space.from_dict(*RARE[kind])


@pytest.mark.parametrize("kind", RARE)
@SOME
@given(seed=st.integers(0, 2**32 - 1))
def test_a_sample_meets_rare_constraints(kind, seed):
    space = rare(kind)
    rng = np.random.default_rng(seed)
    samples = [space.sample(rng) for _ in range(3)] + space.sample_related(3, rng)
    for params in samples:
        space.validate(params)
    assert len({space.key(params) for params in samples}) > 3


@pytest.mark.parametrize(
    ("method", "options", "kind"),
    [
        ("random", {}, "conditions and labels"),
        ("sobol", {}, "seven shares"),
        ("cmaes", {"population": 4}, "whole numbers"),
        ("gp", {}, "conditions and labels"),
    ],
)
def test_every_method_goes_on_under_rare_constraints(kind, method, options):
    space = rare(kind)
    optimizer = create(method, space, seed=0, **options)
    seen = set()
    for _ in range(8):
        (trial,) = optimizer.ask(1)
        space.validate(trial.params)
        seen.add(space.key(trial.params))
        optimizer.tell(trial, float(space.encode(trial.params).sum()))
    assert len(seen) == 8


@pytest.mark.parametrize("count", [5, pytest.param(7, marks=pytest.mark.full)])
def test_shares_are_sampled_uniformly_in_their_simplex(count):
    space = Space.from_dict(shares(count), ["+".join(shares(count)) + " <= 1"])
    assert count == 5 or space.is_rare
    rng = np.random.default_rng(0)
    x_ND = np.array([space.encode(space.sample(rng)) for _ in range(60)])
    # Each share of a uniform point of the simplex has the distribution Beta(1, D).
    for x_N in x_ND.T:
        assert kstest(x_N, beta(1, count).cdf).pvalue > 1e-3


@pytest.mark.full
def test_an_ordered_chain_is_sampled_uniformly():
    space = rare("a chain")
    rng = np.random.default_rng(0)
    x_ND = np.array([space.encode(space.sample(rng)) for _ in range(60)])
    # They are the order statistics of eight uniform numbers.
    for index, x_N in enumerate(x_ND.T):
        assert kstest(x_N, beta(index + 1, 8 - index).cdf).pvalue > 1e-3


def test_the_rest_of_a_given_configuration_meets_rare_constraints():
    space = rare("seven shares")
    params = space.complete({"x0": 0.9, "x3": 0.05}, np.random.default_rng(0))
    space.validate(params)
    assert (params["x0"], params["x3"]) == (0.9, 0.05)
    with pytest.raises(SpaceError, match="does not hold"):
        space.complete({"x0": 0.9, "x3": 0.2}, np.random.default_rng(0))


def test_perturbation_moves_under_rare_constraints():
    space = rare("a chain")
    rng = np.random.default_rng(0)
    params = space.sample(rng)
    moved = [space.perturb(params, rng) for _ in range(20)]
    assert all(space.allows(each) for each in moved)
    assert sum(each != params for each in moved) > 10


@pytest.mark.parametrize(
    ("parameters", "constraints", "message"),
    [
        (shares(2), ["x0 + x1 > 2.5"], r"meets 'x0 \+ x1 > 2.5'; the nearest, .* by 0.5"),
        (shares(2), ["x0 > x1", "x1 > x0"], "together with the other constraints; the nearest"),
        (shares(3), ["x0 + x1 + x2 == 1"], "x2 is a real number; declare numbers with a fixed"),
        (shares(2, step=0.5), ["x0 == 0.2"], "no configuration was found that meets 'x0 == 0.2'"),
        ({"a": {"values": ["x", "y"]}}, ["a == 'z'"], "no configuration was found"),
    ],
)
def test_an_empty_region_is_refused_with_the_constraint(parameters, constraints, message):
    with pytest.raises(SpaceError, match=message) as error:
        Space.from_dict(parameters, constraints)
    assert error.value.path[0] == "constraints"


def test_pulled_goes_towards_what_is_wanted():
    space = Space.from_dict(shares(2), ["x0 + x1 <= 1"])
    pulled = space.pulled({"x0": 1.0, "x1": 0.6}, {"x0": 0.2, "x1": 0.2})
    assert pulled == pytest.approx({"x0": 0.6, "x1": 0.4})


def test_a_grid_skips_what_no_constraint_allows_without_listing_it():
    # 5 ** 15 points; 3,876 of them, C(19, 4), have a sum of 1 at most.
    space = Space.from_dict(shares(15), ["+".join(shares(15)) + " <= 1"])
    grid = space.grid(5)
    assert sum(1 for _ in zip(range(100), grid, strict=False)) == 100
    last = {**dict.fromkeys(space, 0.0), "x0": 1.0}
    assert list(space.grid(5, after={**last, "x0": 0.75, "x1": 0.25})) == [last]


@settings(max_examples=20, deadline=None)
@given(
    coefficients=st.lists(st.integers(-3, 3), min_size=3, max_size=3),
    op=st.sampled_from(["<=", ">=", "<", ">", "==", "!="]),
    bound=st.integers(-4, 4),
)
def test_a_grid_has_all_points_that_meet_a_constraint(coefficients, op, bound):
    names = [*shares(3)]
    left = " + ".join(f"{c} * {name}" for c, name in zip(coefficients, names, strict=True))
    parameters = {name: {"min": -1.0, "max": 1.0, "step": 0.5} for name in names}
    parameters["sub"] = {"min": 1, "max": 3, "when": {"x0": 0.5}}
    domains = Space.from_dict(parameters)
    space = Space(domains, [f"{left} {op} {bound} or x0 * x1 > 0.5", "sub < 2"])
    assert list(space.grid(1)) == [params for params in domains.grid(1) if space.allows(params)]
