"""Shares: parameters that add up to a total, for every searcher, exactly."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import METHODS, Observation, Space, SpaceError, create
from searchers.explain.explanation import Explanation
from searchers.gp.encoding import Encoding, Together
from searchers.optimizer import Exhausted
from searchers.translation import translate_params

SOME = settings(max_examples=100, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
LR = {"min": 1e-4, "max": 0.1, "log": True}
MIX = ["web", "code", "books"]
METHODS_OF_CHANCE = [name for name in METHODS if name not in ("auto", "grid")]


def space_of(constraints=(), *, others=None, **mix):
    return Space.from_dict({"mix": {"shares": MIX, **mix}, **(others or {})}, constraints)


def rows_of(space, count, seed=0):
    """Return draws of the shares in a space, a row each."""
    sampled = space.sample_related(count, np.random.default_rng(seed))
    return np.array([[params[name] for name in space.shares[0].members] for params in sampled])


def check(space, params):
    """Check shares one by one, and their sum, without a look at the code that made them."""
    space.validate(params)
    (shares,) = space.shares
    values = [params[name] for name in shares.members]
    assert math.fsum(values) == pytest.approx(shares.total, rel=1e-12)
    slack = 1e-9 * shares.total
    for value, low, high in zip(values, shares.low_K, shares.high_K, strict=True):
        assert (shares.zeros and value == 0) or low - slack <= value <= high + slack
        assert isinstance(value, int if shares.whole else float)
        if shares.step is not None:
            assert value / shares.step == pytest.approx(round(value / shares.step), abs=1e-9)


@SOME
@given(data=st.data(), seed=SEEDS)
def test_draws_add_up_within_their_ranges(mixtures, data, seed):
    space = data.draw(mixtures)
    for params in space.sample_related(20, np.random.default_rng(seed)):
        check(space, params)
        assert space.decode(space.encode(params)) == params


@SOME
@given(data=st.data(), seed=SEEDS)
def test_any_point_of_the_cube_is_made_to_add_up(mixtures, data, seed):
    space, rng = data.draw(mixtures), np.random.default_rng(seed)
    point_ND = rng.choice([0.0, 0.02, 0.3, 1.0, rng.random()], (20, len(space.searched)))
    for point_D in point_ND:
        check(space, space.decode(point_D))
    snapped = Encoding.of(space).snap(point_ND)
    for unit_D in snapped.unit_NP:
        params = space.decode(unit_D)
        check(space, params)
        np.testing.assert_allclose(space.encode(params), unit_D, atol=1e-12)


@SOME
@given(data=st.data(), seed=SEEDS)
def test_moves_keep_the_sum(mixtures, data, seed):
    space, rng = data.draw(mixtures), np.random.default_rng(seed)
    params = space.sample(rng)
    for names in (None, [space.searched[0]], None, [space.searched[-1]]):
        params = space.perturb(params, rng, names)
        check(space, params)


@SOME
@given(data=st.data(), seed=SEEDS)
def test_all_at_once_are_drawn_as_one_by_one(mixtures, data, seed):
    space = data.draw(mixtures)
    rng = np.random.default_rng(seed)
    single = [space.sample(rng) for _ in range(5)]
    assert space.sample_related(5, np.random.default_rng(seed)) == single


@SOME
@given(data=st.data(), seed=SEEDS)
def test_held_shares_stay_and_the_others_make_up_for_them(mixtures, data, seed):
    space, rng = data.draw(mixtures), np.random.default_rng(seed)
    params = space.sample(rng)
    names = data.draw(st.sets(st.sampled_from(sorted(params)), min_size=1))
    held = {name: params[name] for name in names}
    check(space, found := space.complete(held, rng))
    assert held.items() <= found.items()
    check(space, found := space.fix(held).sample(rng))
    assert held.items() <= found.items()


@SOME
@given(data=st.data(), seed=SEEDS)
def test_shares_are_read_as_they_are_written(mixtures, data, seed):
    space = data.draw(mixtures)
    again = Space.from_dict(space.to_dict())
    assert dict(again) == dict(space)
    assert again.to_dict() == space.to_dict()


@pytest.mark.parametrize(
    "declared",
    [
        {"shares": ["a", "b"]},
        {"shares": ["a", "b"], "total": 64, "step": 2, "zeros": True, "when": {"lr": [0.5]}},
        {"shares": ["a", "b"], "total": 2.5, "min": {"a": 0.5}, "max": {"b": 1.0}},
        {"shares": ["a", "b"], "step": 0.05, "prior": [1.0, 3.0], "concentration": 5.0},
    ],
)
def test_what_a_declaration_leaves_out_is_left_out_again(declared):
    space = Space.from_dict({"lr": {"values": [0.1, 0.5]}, "mix": declared})
    assert space.to_dict()["mix"] == declared


def test_a_number_of_shares_gives_them_names():
    space = Space.from_dict({"experts": {"shares": 3, "total": 64, "step": 1}})
    assert [*space] == ["experts.s1", "experts.s2", "experts.s3"]


def balanced(space, values):
    """Return values as the shares nearest to them, by the quanta of a total of 1."""
    (shares,) = space.shares
    amount_1K = np.array([values]) * shares.quanta / shares.total
    return shares.values(shares.balanced(amount_1K))[0].tolist()


def test_what_adds_up_is_left_as_it_is():
    assert balanced(space_of(), [0.2, 0.3, 0.5]) == [0.2, 0.3, 0.5]
    assert balanced(space_of(zeros=True), [0.0, 0.3, 0.7]) == [0.0, 0.3, 0.7]


def test_what_does_not_is_multiplied_by_one_factor():
    assert balanced(space_of(), [0.4, 0.6, 1.0]) == [0.2, 0.3, 0.5]
    assert balanced(space_of(zeros=True), [0.0, 0.1, 0.3]) == [0.0, 0.25, 0.75]
    # What comes to the end of its range there stays there.
    assert balanced(space_of(max=0.5), [0.9, 0.1, 0.1]) == [0.5, 0.25, 0.25]
    assert balanced(space_of(min={"books": 0.4}), [0.5, 0.5, 0.1]) == [0.3, 0.3, 0.4]


def test_of_whole_numbers_the_largest_remainders_are_rounded_up():
    space = space_of(total=10, step=1)
    assert balanced(space, [3.4, 3.4, 3.2]) == [4, 3, 3]
    assert balanced(space, [7.7, 7.7, 0.0]) == [5, 5, 0]


def test_a_zero_is_given_up_only_where_the_others_cannot_make_up_the_total():
    space = space_of(zeros=True, max=0.6)
    assert balanced(space, [0.0, 0.4, 0.6]) == [0.0, 0.4, 0.6]
    some = balanced(space, [0.0, 0.0, 0.6])
    assert sorted(some) == [0.0, 0.4, 0.6]


@settings(max_examples=200, deadline=None)
@given(
    ends=st.lists(
        st.tuples(st.integers(1, 60), st.integers(0, 30)).map(lambda e: (e[0], e[0] + e[1])),
        min_size=2,
        max_size=4,
    ),
    seed=SEEDS,
)
def test_zeros_beside_narrow_ranges_are_found_or_refused(ends, seed):
    """Each share is 0 or within its range: for some declarations few such sums are the total."""
    names = [f"n{index}" for index in range(len(ends))]
    sums = [
        (sum(low for low, _ in some), sum(high for _, high in some))
        for count in range(1, len(ends) + 1)
        for some in itertools.combinations(ends, count)
    ]
    declared = {"shares": names, "total": 100, "step": 1, "zeros": True}
    declared["min"] = {name: low for name, (low, _) in zip(names, ends, strict=True)}
    declared["max"] = {name: high for name, (_, high) in zip(names, ends, strict=True)}
    if not any(low <= 100 <= high for low, high in sums):
        with pytest.raises(SpaceError, match="the total"):
            Space.from_dict({"mix": declared})
        return
    space = Space.from_dict({"mix": declared})
    for params in space.sample_related(10, np.random.default_rng(seed)):
        check(space, params)
    check(space, space.decode(np.random.default_rng(seed).random(len(names))))


def test_each_share_is_zero_half_of_the_time():
    row_NK = rows_of(Space.from_dict({"mix": {"shares": 4, "zeros": True}}), 10_000)
    # Of the sixteenth of the draws in which all would be zeros, one of four is not.
    np.testing.assert_allclose((row_NK == 0).mean(axis=0), 0.5 - 1 / 64, atol=0.02)
    assert (rows_of(Space.from_dict({"mix": {"shares": 4}}), 10_000) > 0).all()


@pytest.mark.parametrize(
    ("declared", "alpha"),
    [
        ({}, [1, 1, 1]),
        ({"prior": [7, 2, 1]}, [2.1, 0.6, 0.3]),
        ({"prior": {"web": 50, "code": 50, "books": 100}}, [0.75, 0.75, 1.5]),
        ({"concentration": 20}, [20, 20, 20]),
        ({"concentration": 0.01}, [0.01, 0.01, 0.01]),
        ({"prior": [2, 1, 1], "concentration": 5}, [7.5, 3.75, 3.75]),
        # A range that hardly cuts anything off changes nothing, however sharp the distribution is.
        ({"concentration": 100, "max": {"books": 0.9}}, [100, 100, 100]),
        ({"prior": [2, 1, 1], "concentration": 300, "max": 0.9}, [450, 225, 225]),
    ],
)
def test_draws_have_the_moments_of_a_dirichlet_distribution(declared, alpha):
    count = 20_000
    row_NK = rows_of(space_of(**declared), count)
    alpha_K = np.array(alpha)
    mean_K = alpha_K / alpha_K.sum()
    covariance_KK = (np.diag(mean_K) - np.outer(mean_K, mean_K)) / (alpha_K.sum() + 1)
    error_K = 4 * np.sqrt(np.diag(covariance_KK) / count)
    assert (np.abs(row_NK.mean(axis=0) - mean_K) < error_K).all()
    np.testing.assert_allclose(np.cov(row_NK.T), covariance_KK, rtol=0.08, atol=1e-6)


def test_a_minimum_leaves_the_rest_to_the_same_distribution():
    row_NK = rows_of(space_of(min=0.2), 20_000)
    rest_NK = (row_NK - 0.2) / 0.4
    np.testing.assert_allclose(rest_NK.mean(axis=0), 1 / 3, atol=0.01)
    np.testing.assert_allclose(rest_NK.var(axis=0), 1 / 18, rtol=0.08)


@pytest.mark.parametrize("high_K", [(0.3, 1, 1), (0.5, 0.5, 0.5), (0.8, 0.8, 0.8)])
def test_where_ranges_cut_the_uniform_distribution_off_draws_are_about_uniform(high_K):
    row_NK = rows_of(space_of(max=dict(zip(MIX, high_K, strict=True))), 20_000)
    every_NK = np.random.default_rng(1).dirichlet([1, 1, 1], 400_000)
    uniform_NK = every_NK[(every_NK <= high_K).all(axis=1)]
    np.testing.assert_allclose(row_NK.mean(axis=0), uniform_NK.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(row_NK.std(axis=0), uniform_NK.std(axis=0), rtol=0.15)


def test_every_way_to_divide_a_small_total_is_drawn():
    row_NK = rows_of(space_of(total=4, step=1), 15_000)
    ways, count = np.unique(row_NK, axis=0, return_counts=True)
    assert len(ways) == math.comb(6, 2)
    assert count.min() > 300
    assert count.max() < 1_700


def test_the_middle_of_the_distribution_follows_the_prior():
    """The first trial of `gp` is there."""
    for zeros in (False, True):
        space = space_of(prior=[7, 2, 1], concentration=20, zeros=zeros)
        middle = space.decode(space.drawn(np.full(3, 0.5)))
        np.testing.assert_allclose([*middle.values()], [0.7, 0.2, 0.1], atol=0.02)


def spaces_to_search():
    whole = {"experts": {"shares": 3, "total": 8, "step": 1, "max": {"s1": 5}}}
    switched = {"kind": {"values": ["mixed", "pure"]}}
    return {
        "uniform": space_of(others={"lr": LR}),
        "zeros": space_of(zeros=True, min=0.05, max={"code": 0.5}, others={"lr": LR}),
        "prior": space_of(prior=[7, 2, 1], min={"books": 0.1}),
        "step": space_of(step=0.05, max=0.7),
        "whole": Space.from_dict(whole),
        "conditional": space_of(when={"kind": "mixed"}, zeros=True, others=switched),
        "constraint": space_of(["mix.web * 2 + mix.code <= 0.8"], zeros=True),
        "rare": space_of(["mix.web + mix.code <= 0.02", "mix.web > mix.code"], max=0.99),
        "one is fixed": space_of(others={"lr": LR}).fix({"mix.code": 1 / 3}),
    }


@pytest.mark.parametrize("name", spaces_to_search())
@pytest.mark.parametrize("method", METHODS_OF_CHANCE)
def test_every_method_proposes_only_what_adds_up(method, name):
    space = spaces_to_search()[name]
    options = {"nsga2": {"population": 4}, "tpe": {"startup": 4}}.get(method, {})
    optimizer = create(method, space, "minimize", seed=1, **options)
    seen = set()
    count = 4 if name == "rare" else 10  # a walk to each configuration takes long
    for _ in range(count):
        trial = optimizer.ask()
        space.validate(trial.params)
        assert space.fixed.items() <= trial.params.items()
        seen.add(space.key(trial.params))
        optimizer.tell(trial, (trial.params.get("mix.web", 0.5) - 0.3) ** 2)
    assert len(seen) == count


@pytest.mark.parametrize("method", ["random", "gp", "tpe"])
def test_where_all_shares_but_one_are_fixed_one_configuration_is_left(method):
    space = space_of(zeros=True).fix({"mix.code": 0.25, "mix.books": 0.0})
    optimizer = create(method, space, "minimize", seed=1)
    trial = optimizer.ask()
    assert trial.params == {"mix.web": 0.75, "mix.code": 0.25, "mix.books": 0.0}
    optimizer.tell(trial, 1.0)
    with pytest.raises(Exhausted):
        optimizer.ask()


def test_gp_finds_a_mixture_without_books():
    space = space_of(zeros=True)
    optimizer = create("gp", space, "minimize", seed=0)
    for _ in range(30):
        trial = optimizer.ask()
        mix = [trial.params[f"mix.{name}"] for name in MIX]
        optimizer.tell(trial, abs(math.sqrt(mix[0]) - math.sqrt(0.7)) + mix[2])
    best = optimizer.best.params
    assert best["mix.books"] < 0.01
    assert best["mix.web"] == pytest.approx(0.7, abs=0.03)
    proposed = [trial.params["mix.books"] for trial in optimizer.history]
    assert 5 < proposed.count(0.0) < 30


def divisions(shares):
    """Return the ways to divide a total, in steps, by trying all."""
    steps = range(round(shares.total / shares.step) + 1)
    return {
        parts
        for parts in itertools.product(steps, repeat=len(shares.names))
        if sum(parts) == steps[-1]
        and all(
            (shares.zeros and part == 0) or low <= part * shares.step + 1e-9 <= high + 2e-9
            for part, low, high in zip(parts, shares.low_K, shares.high_K, strict=True)
        )
    }


@pytest.mark.parametrize(
    "mix",
    [
        {"total": 6, "step": 1},
        {"total": 6, "step": 1, "min": 1, "max": {"web": 3}},
        {"total": 12, "step": 2, "min": 4, "zeros": True},
        {"step": 0.1, "max": 0.6},
        {"total": 0.3, "step": 0.05, "min": {"web": 0.1}},
    ],
)
def test_a_grid_lists_each_way_to_divide_the_total_once(mix):
    space = space_of(**mix)
    listed = list(space.grid(5))
    (shares,) = space.shares
    found = [tuple(round(value / shares.step) for value in each.values()) for each in listed]
    assert sorted(found) == sorted(divisions(shares))
    assert space.size == len(listed)
    for params in listed:
        check(space, params)
    assert list(space.grid(5, after=listed[1])) == listed[2:]


@pytest.mark.parametrize(("resolution", "points"), [(2, 3), (3, 6), (4, 10), (5, 15), (8, 36)])
def test_a_grid_of_real_shares_has_equal_parts_of_the_total(resolution, points):
    space = space_of()
    listed = list(space.grid(resolution))
    assert len(listed) == points
    assert space.size is None
    for params in listed:
        check(space, params)
        parts = [value * (resolution - 1) for value in params.values()]
        np.testing.assert_allclose(parts, np.round(parts), atol=1e-9)


def test_a_grid_of_fixed_shares_lists_the_others():
    space = space_of(total=6, step=1).fix({"mix.code": 2})
    assert [params["mix.web"] for params in space.grid(1)] == [0, 1, 2, 3, 4]
    assert {params["mix.code"] for params in space.grid(1)} == {2}


def test_a_parameter_may_depend_on_a_share():
    declared = {
        "experts": {"shares": ["deep", "wide"], "total": 6, "step": 1},
        "depth": {"min": 2, "max": 4, "when": {"experts.deep": {"min": 4}}},
    }
    space = Space.from_dict(declared)
    rng = np.random.default_rng(0)
    for unit_D in rng.random((200, 3)):
        params = space.decode(unit_D)
        assert ("depth" in params) == (params["experts.deep"] >= 4)
        space.validate(params)
    points = Encoding.of(space).snap(rng.random((200, 3)))
    for unit_D, active_D in zip(points.unit_NP, points.active_NP, strict=True):
        params = space.decode(unit_D)
        assert params.keys() == {
            name for name, active in zip(space.searched, active_D, strict=True) if active
        }
    assert space.size == len(list(space.grid(1))) == 4 + 3 * 3
    assert space.complete({"depth": 3}, rng)["experts.deep"] >= 4


def test_shares_in_groups_are_given_by_nested_names():
    space = Space.from_dict({"data.mix": {"shares": MIX}, "lr": LR})
    rng = np.random.default_rng(0)
    given = {"data": {"mix": {"web": 0.5, "books": 0.5}}}
    found = space.complete(given, rng)
    assert (found["data.mix.web"], found["data.mix.code"], found["data.mix.books"]) == (0.5, 0, 0.5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mix": {"web": 0.7, "code": 0.5}}, "the shares add up to 1.2; they must add up to 1"),
        ({"mix": {"web": 0.3, "code": 0.3, "books": 0.3}}, "the shares add up to 0.9; they must"),
        ({"mix": {"web": 0.7, "cod": 0.3}}, "is no parameter: did you mean 'mix.code'"),
        ({"mix": 0.3}, "is no parameter: did you mean 'mix.web'"),
        ({"mix.web": 1.2}, "is 1.2; give 0 to 1"),
        ({"mix.web": "much"}, "is 'much'; give a number"),
        ({"mix.web": True}, "is True; give a number"),
    ],
)
def test_shares_that_cannot_be_completed_say_why(given, message):
    space = space_of()
    with pytest.raises(SpaceError) as caught:
        space.complete(given, np.random.default_rng(0))
    assert message in str(caught.value)
    with pytest.raises(SpaceError, match=r"mix"):
        space.fix(given)


@pytest.mark.parametrize(
    ("mix", "value", "message"),
    [
        ({"min": 0.1, "zeros": True}, 0.05, "is 0.05; give 0 or 0.1 to 1"),
        ({"min": 0.1}, 0.0, "is 0.0; give 0.1 to 1"),
        ({"total": 64, "step": 1}, 2.5, "is 2.5; give a whole number"),
        ({"total": 64, "step": 4}, 6, "is 6, off the step of 4; the nearest is 8"),
        ({"step": 0.1}, 0.25, "is 0.25, off the step of 0.1; the nearest is 0.2"),
    ],
)
def test_a_value_out_of_its_range_says_which_it_has(mix, value, message):
    assert space_of(**mix)["mix.web"].problem(value) == message


def test_whole_shares_given_as_real_numbers_are_whole():
    found = space_of(total=8, step=1).complete({"mix.web": 2.0}, np.random.default_rng(0))
    assert repr(found["mix.web"]) == "2"


def test_what_held_shares_leave_between_two_quanta_goes_to_a_share_with_room_for_it():
    space = space_of(max={"code": 0.4})
    chosen = {"mix.web": 0.4999996, "mix.code": 0.4, "mix.books": 0.1}
    found = space.build(chosen.__getitem__, ["mix.web"])
    check(space, found)
    assert found["mix.web"] == 0.4999996
    assert found["mix.code"] == 0.4


def test_a_source_that_is_new_is_empty_in_what_is_known():
    """Trials of a sweep over two sources warm-start one over three."""
    two = Space.from_dict({"mix": {"shares": ["web", "code"]}})
    known = translate_params(space_of(), two.sample(np.random.default_rng(0)))
    assert known["mix.books"] == 0
    assert known["mix.web"] + known["mix.code"] == pytest.approx(1)


def quadratic(params):
    """Return a loss that code alone decides."""
    return (params["mix.code"] - 0.4) ** 2


@pytest.fixture(scope="module")
def explained():
    space = space_of(others={"lr": LR})
    sampled = space.sample_related(64, np.random.default_rng(0))
    history = [
        Observation(str(index), params, loss=quadratic(params), state="done")
        for index, params in enumerate(sampled)
    ]
    return Explanation.of(space, history)


def test_dependence_holds_one_share_while_the_others_make_up_for_it(explained):
    curve = explained.dependence("mix.code", resolution=9)
    expected = [quadratic({"mix.code": value}) for value in curve.grids[0]]
    np.testing.assert_allclose(curve.mean, expected, atol=0.04)
    assert curve.grids[0][-1] == 1.0


def test_the_share_that_decides_matters_most(explained):
    total = explained.importance().total
    assert next(iter(total)) == "mix.code"
    assert total["lr"] < 0.05


@pytest.mark.parametrize("mix", [{}, {"zeros": True}, {"min": 0.1}, {"max": {"web": 0.4}}])
def test_the_gradient_of_shares_is_that_of_the_units_that_add_up(mix):
    space = space_of(**mix)
    together = Together.of(space, space.shares[0])
    rng = np.random.default_rng(0)
    unit_SK, weight_K = rng.uniform(0.2, 0.9, (5, 3)), rng.standard_normal(3)

    def value_of(unit_SK):
        return np.sin(3 * together.scaled(unit_SK)[0]) @ weight_K

    scaled_SK, factor_SK = together.scaled(unit_SK)
    own_SK = 3 * np.cos(3 * scaled_SK) * weight_K
    gradient_SK = together.pulled_back(own_SK, scaled_SK, factor_SK)
    for column, move_K in enumerate(1e-6 * np.eye(3)):
        slope_S = (value_of(unit_SK + move_K) - value_of(unit_SK - move_K)) / 2e-6
        np.testing.assert_allclose(gradient_SK[:, column], slope_S, rtol=1e-5, atol=1e-7)
