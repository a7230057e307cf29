"""Moves of single parameters, and of configurations, which must stay in their space."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hposvc.schedulers import pbt_mutation
from hposvc.schedulers.pbt_mutation import explore, members, read_move, read_moves
from searchers.distributions import Normal
from searchers.domains import Choice, Constant, Float, Int
from searchers.space import Space
from searchers.values import SpaceError, identity

LR = Float(1e-5, 0.1, log=True)
WIDTH = Int(8, 64, step=8)
KIND = Choice(("sgd", "adamw", "lars"))
BATCH = Choice((32, 64, 128, 256), ordered=True)

SPACE = Space.from_dict(
    {
        "lr": {"min": 1e-5, "max": 0.1, "log": True},
        "decay": {"min": 0.0, "max": 0.5},
        "width": {"min": 8, "max": 64, "step": 8},
        "batch": {"values": [32, 64, 128, 256], "ordered": True},
        "kind": {"values": ["sgd", "adamw", "lars"]},
        "momentum": {"min": 0.8, "max": 0.99, "when": {"kind": ["sgd", "lars"]}},
        "nesterov": {"values": [True, False], "when": {"kind": "sgd"}},
        "seeds": 3,
    },
    ["lr * batch <= 12", "decay + momentum <= 1.4"],
)
DECLARED = {
    "lr": [{}, {"min": 1e-4}, {"min": 1e-4, "max": 1e-2, "log": False}, [1e-3, 1e-2, 1e-4], 1.5],
    "decay": [{}, {"max": 0.25}, [0.0, 0.1], 0.5],
    "width": [{}, {"min": 16, "max": 48}, [64, 8], 2, 1.1],
    "batch": [{}, [256, 32]],
    "kind": [{}, ["lars", "sgd"]],
    "momentum": [{}, {"min": 0.9}, [0.8, 0.85, 0.95], 1.05],
    "nesterov": [{}],
}
SOME = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in DECLARED.items()})


def moves_of(mutate):
    return {name: read_move(SPACE[name], declared) for name, declared in mutate.items()}


@settings(max_examples=300, deadline=None)
@given(mutate=SOME, seed=st.integers(0, 2**32), resample=st.sampled_from([0.0, 0.25, 1.0]))
def test_a_line_of_copies_never_leaves_the_space_and_changes_what_may_change_alone(
    mutate, seed, resample
):
    rng = np.random.default_rng(seed)
    params = SPACE.sample(rng)
    for _ in range(10):
        moved = explore(SPACE, params, moves_of(mutate), resample, rng)
        SPACE.validate(moved)
        fixed = [name for name in moved if name in params and name not in mutate]
        assert {name: moved[name] for name in fixed} == {name: params[name] for name in fixed}
        for name in mutate.keys() & moved.keys() & params.keys():
            if resample == 1.0 and isinstance(mutate[name], list) and moved != params:
                assert moved[name] in mutate[name]
        params = moved


def explored(move, value, count=200):
    """Return the values to which a move changes a value."""
    rng = np.random.default_rng(0)
    return {move.moved(value, rng) for _ in range(count)}


@pytest.mark.parametrize(
    ("domain", "declared", "value", "expected"),
    [
        (LR, {}, 1e-3, {8e-4, 1.2e-3}),
        (LR, {"max": 1e-3}, 1e-3, {8e-4, 1e-3}),
        (LR, {"max": 1e-3}, 5e-2, {1e-3}),  # the first population was drawn from all of it
        (LR, 2, 1e-3, {5e-4, 2e-3}),
        (LR, 0.5, 1e-3, {5e-4, 2e-3}),
        (LR, 2, 0.08, {0.04, 0.1}),
        (Float(0.0, 0.5), 1.5, 0.0, {0.0, 0.0005}),
        (WIDTH, {}, 32, {24, 40}),
        (WIDTH, {"min": 16, "max": 32}, 16, {16, 24}),
        (WIDTH, 1.1, 32, {24, 40}),
        (WIDTH, 2, 16, {8, 32}),
        (LR, [1e-2, 1e-3, 1e-4], 1e-3, {1e-2, 1e-4}),
        (LR, [1e-2, 1e-3, 1e-4], 3e-3, {1e-2, 1e-3}),
        (LR, [1e-2, 1e-3], 0.1, {1e-2}),
        (BATCH, {}, 64, {32, 128}),
        (BATCH, [256, 32], 32, {32, 256}),
        (BATCH, [256, 32], 64, {32, 256}),
        (KIND, {}, "sgd", {"sgd"}),
        (KIND, ["adamw", "lars"], "sgd", {"adamw", "lars"}),
    ],
)
def test_a_move_goes_a_step_from_where_it_is(domain, declared, value, expected):
    assert explored(read_move(domain, declared), value) == expected


@pytest.mark.parametrize(
    ("domain", "declared", "low", "high"),
    [
        (Choice(("a", "b"), weights=(9, 1)), {}, 0.8, 0.99),
        (Choice(("a", "b"), weights=(9, 1)), ["a", "b"], 0.8, 0.99),
        (Choice(("a", "b", "c"), weights=(98, 1, 1)), ["a", "b"], 0.4, 0.6),
        (Float(0.0, 1.0, normal=Normal(0.1, 0.05)), {}, 0.95, 1.0),
        (Float(0.0, 1.0, normal=Normal(0.1, 0.05)), 1.2, 0.95, 1.0),
        (Float(0.0, 1.0, normal=Normal(0.1, 0.05)), {"min": 0.2}, 0.0, 0.2),
    ],
)
def test_its_own_range_or_choices_are_drawn_by_their_distribution(domain, declared, low, high):
    rng = np.random.default_rng(0)
    drawn = [read_move(domain, declared).fresh(rng) for _ in range(300)]
    few = [value == "a" if isinstance(domain, Choice) else value < 0.3 for value in drawn]
    assert low <= sum(few) / 300 <= high


@pytest.mark.parametrize(
    ("domain", "declared", "where", "message"),
    [
        (Constant(3), {}, (), "is a constant of 3; give it a range in parameters"),
        (LR, {"min": 1e-9}, ("min",), "is 1e-09, outside 1e-05 to 0.1"),
        (LR, {"min": 0.01, "max": 0.001}, (), "min is 0.01, max is 0.001; swap them"),
        (LR, {"mix": 0.01}, ("mix",), "is no key of a range here; did you mean 'min'?"),
        (WIDTH, [8, 17], (1,), "is 17, off the step of 8"),
        (LR, [0.8, 1.25], (0,), "is 0.8, outside 1e-05 to 0.1 (a list has values of the parameter"),
        (KIND, ["sgd", "adam"], (1,), "is 'adam'; choose from 'sgd', 'adamw', 'lars'"),
        (BATCH, [32, 32], (1,), "32 is there twice"),
        (KIND, {"min": 1}, (), "is a range, but it is a choice; list some of its values"),
        (LR, -1, (), "is -1; give a positive factor"),
        (LR, "x1.2", (), "is 'x1.2'; give a range"),
    ],
)
def test_what_does_not_fit_the_parameter_is_refused(domain, declared, where, message):
    with pytest.raises(SpaceError) as caught:
        read_move(domain, declared)
    assert caught.value.path == where
    assert caught.value.message.startswith(message)


def test_a_list_is_read_in_a_time_that_grows_as_the_list_does(monkeypatch):
    asked = []
    monkeypatch.setattr(
        pbt_mutation, "identity", lambda value: asked.append(value) or identity(value)
    )
    values = [1e-3 + number * 1e-6 for number in range(500)]
    assert read_move(LR, values).values == tuple(values)
    assert len(asked) <= 2 * len(values)


MIXTURE = Space.from_dict(
    {
        "mix": {"shares": ["web", "code", "books"], "zeros": True, "max": {"books": 0.5}},
        "experts": {"shares": 3, "total": 12, "step": 1},
        "lr": {"min": 1e-5, "max": 0.1, "log": True},
    }
)


@settings(max_examples=100, deadline=None)
@given(
    mutate=st.fixed_dictionaries(
        {}, optional={"mix": st.sampled_from([{}, 1.5]), "mix.web": st.just(2), "lr": st.just({})}
    ),
    seed=st.integers(0, 2**32),
    resample=st.sampled_from([0.0, 0.25, 1.0]),
)
def test_a_line_of_copies_keeps_the_sum_of_shares(mutate, seed, resample):
    rng = np.random.default_rng(seed)
    params = MIXTURE.sample(rng)
    for _ in range(10):
        moved = explore(MIXTURE, params, read_moves(MIXTURE, mutate), resample, rng)
        MIXTURE.validate(moved)
        of_mix = {name for name in MIXTURE if name.startswith("mix.")}
        may_change = {name for name in mutate if name in MIXTURE}
        may_change |= of_mix if mutate.keys() & {"mix", "mix.web"} else set()
        assert {name for name in moved if moved[name] != params[name]} <= may_change
        params = moved


def test_a_share_that_moves_changes_its_weight_beside_the_others():
    before = {"mix.web": 0.4, "mix.code": 0.4, "mix.books": 0.2, "lr": 1e-3}
    before |= {"experts.s1": 4, "experts.s2": 4, "experts.s3": 4}
    rng = np.random.default_rng(0)
    moves = read_moves(MIXTURE, {"mix.web": 2})
    moved = [explore(MIXTURE, before, moves, 0.0, rng) for _ in range(50)]
    webs = {round(params["mix.web"], 4) for params in moved}
    assert webs == {round(0.8 / 1.4, 4), round(0.2 / 0.8, 4)}
    for params in moved:
        assert params["mix.code"] == pytest.approx(2 * params["mix.books"], abs=2e-6)


def test_a_share_of_zero_stays_until_it_is_drawn_afresh():
    before = {"mix.web": 0.6, "mix.code": 0.4, "mix.books": 0.0, "lr": 1e-3}
    before |= {"experts.s1": 4, "experts.s2": 4, "experts.s3": 4}
    moves, rng = read_moves(MIXTURE, {"mix": {}}), np.random.default_rng(0)
    moved = [explore(MIXTURE, before, moves, 0.0, rng)["mix.books"] for _ in range(50)]
    assert {*moved} == {0.0}
    fresh = [explore(MIXTURE, before, moves, 1.0, rng)["mix.books"] for _ in range(50)]
    assert 0 < fresh.count(0.0) < 50


def test_the_name_of_shares_stands_for_all_of_them():
    assert members(MIXTURE, "mix") == ("mix.web", "mix.code", "mix.books")
    assert members(MIXTURE, "mix.web") == ("mix.web",)
    assert read_moves(MIXTURE, {"experts": 1.5}).keys() == {f"experts.s{n}" for n in (1, 2, 3)}


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            {"min": 0.1},
            "is {'min': 0.1}, but it is a share of mix; give {} for its whole range, or",
        ),
        ([0.1, 0.2], "is [0.1, 0.2], but it is a share of mix; give {} for its whole range, or"),
        (-1, "is -1; give a positive factor that is not 1"),
        (True, "is True, but it is a share of mix"),
    ],
)
def test_a_move_that_shares_do_not_have_is_refused(declared, message):
    with pytest.raises(SpaceError) as caught:
        read_moves(MIXTURE, {"mix": declared})
    assert caught.value.message.startswith(message)
