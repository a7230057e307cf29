"""The search over sizes: small models first, checks between, the largest last."""

import math

import numpy as np
import pytest

from searchers import AcrossSizes, Observation, Optimizer, Sizes, Space, SpaceError
from searchers.methods import load_method
from searchers.optimizer import Exhausted

WIDTHS = [256, 512, 1024, 2048]
WIDTH = {"values": WIDTHS, "ordered": True}
LR = {"min": 1e-5, "max": 1e-1, "log": True}
PLAIN = {"lr": LR, "decay": {"min": 0.0, "max": 0.3}}


def loss_of(params):
    """Return a loss whose best learning rate falls with the width: 0.01 at 256, 1e-3 at 2048."""
    doublings = math.log2(params["width"] / 256)
    off = math.log10(params["lr"]) + 2 + doublings / 3
    return 3 * 0.9**doublings + 0.05 * off**2 + 0.2 * (params.get("decay", 0.1) - 0.1) ** 2


def across(parameters, trials=20, at_target=1, method="random", constraints=(), seed=0, **sizes):
    """Return an optimizer of a sweep over sizes."""
    declared = {**parameters, **(sizes or {"width": WIDTH})}
    space = Space.from_dict(declared, constraints)
    searcher = AcrossSizes(load_method(method)(), "width", trials, at_target)
    return Optimizer(searcher, space, seed=seed)


def carry_out(optimizer, count, loss=loss_of):
    """Ask for trials, tell each a loss, and return their parameters."""
    asked = []
    for _ in range(count):
        trial = optimizer.ask()
        asked.append(trial.params)
        optimizer.tell(trial, loss(trial.params))
    return asked


def widths(asked):
    return [params["width"] for params in asked]


@pytest.mark.parametrize(
    ("trials", "at_target", "sizes", "expected"),
    [
        (40, 2, 4, {"search": 28, "check": 10, "target": 2}),
        (40, 1, 2, {"search": 39, "target": 1}),
        (13, 1, 3, {"search": 9, "check": 3, "target": 1}),
        (21, 1, 12, {"search": 10, "check": 10, "target": 1}),
        (100, 20, 3, {"search": 60, "check": 20, "target": 20}),
    ],
)
def test_trials_are_divided_by_their_place(trials, at_target, sizes, expected):
    searcher = AcrossSizes(load_method("random")(), "width", trials, at_target)
    roles = [searcher.role(index, sizes) for index in range(trials)]
    assert {role: roles.count(role) for role in dict.fromkeys(roles)} == expected
    assert list(dict.fromkeys(roles)) == list(expected), "in this order"
    assert searcher.role(trials + 5, sizes) == "target"


def test_small_models_search_then_checks_go_upwards_and_the_target_is_last():
    asked = carry_out(across(PLAIN, 24, at_target=2), 24)
    assert widths(asked[:16]) == [256] * 16
    assert widths(asked[16:18]) == [512, 1024], "no size is left out"
    assert set(widths(asked[18:22])) <= {512, 1024}
    assert widths(asked[22:]) == [2048] * 2


def test_what_is_trained_at_the_target_is_near_its_best():
    asked = carry_out(across(PLAIN, 30), 30)
    assert asked[-1]["width"] == 2048
    best = {"width": 2048, "lr": 1e-3, "decay": 0.1}
    assert loss_of(asked[-1]) - loss_of(best) < 0.01
    copied = min(asked[:20], key=loss_of)
    assert loss_of({**copied, "width": 2048}) - loss_of(best) > 0.03, "nor would a copy do"


@pytest.mark.parametrize("method", ["gp", "tpe", "sobol"])
def test_any_method_searches_the_smallest_size_and_sees_that_size_alone(method):
    optimizer = across(PLAIN, 16, method=method)
    space = optimizer.space
    alone = Optimizer(load_method(method)(), space.fix({"width": 256}), seed=0)
    asked = carry_out(optimizer, 16)
    assert widths(asked[:11]) == [256] * 11
    assert asked[:11] == carry_out(alone, 11)


def test_the_same_seed_gives_the_same_trials_and_another_one_does_not():
    once, again, other = (carry_out(across(PLAIN, seed=seed), 20) for seed in (3, 3, 4))
    assert once == again
    assert not any(params in once for params in other)


def test_nothing_is_proposed_twice_where_there_is_little():
    few = {"lr": {"values": [1e-4, 1e-3, 1e-2], "ordered": True}, "on": {"values": [True, False]}}
    asked = carry_out(across(few, 20, at_target=2), 16)
    assert len({tuple(params.items()) for params in asked}) == 16


def test_a_size_that_is_used_up_leaves_its_trials_to_the_next_ones():
    """Or else a sweep would end before the largest model was trained."""
    few = {"lr": {"values": [1e-4, 1e-3, 1e-2], "ordered": True}}
    optimizer = across(few, 40, at_target=1)
    asked = carry_out(optimizer, 10)
    assert widths(asked[:3]) == [256] * 3
    assert sorted(widths(asked[3:9])) == [512] * 3 + [1024] * 3
    assert widths(asked[9:]) == [2048]
    with pytest.raises(Exhausted):
        optimizer.ask()


def test_a_grid_of_the_smallest_size_is_followed_by_the_others():
    grid = {"lr": {"values": [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]}, "decay": {"values": [0.0, 0.1]}}
    asked = carry_out(across(grid, 30, method="grid"), 20)
    assert widths(asked[:10]) == [256] * 10
    assert 256 not in widths(asked[10:])


def test_constraints_hold_at_every_size():
    constraints = ["lr * width <= 2", "decay >= lr"]
    optimizer = across(PLAIN, 30, at_target=4, constraints=constraints)
    for params in carry_out(optimizer, 30):
        optimizer.space.validate(params)
        assert params["lr"] * params["width"] <= 2
        assert params["decay"] >= params["lr"]


def test_conditions_and_categories_hold_at_every_size():
    parameters = {
        "lr": LR,
        "optimizer": {"values": ["adam", "sgd"]},
        "momentum": {"min": 0.0, "max": 0.99, "when": {"optimizer": "sgd"}},
        "heads": {"values": [4, 8], "when": {"width": [512, 1024, 2048]}},
        "layers": {"min": 2, "max": 8},
    }

    def loss(params):
        return loss_of(params) + 0.3 * (params["optimizer"] == "sgd") + params["layers"] / 100

    optimizer = across(parameters, 40, at_target=4)
    asked = carry_out(optimizer, 40, loss)
    for params in asked:
        optimizer.space.validate(params)
        assert ("momentum" in params) == (params["optimizer"] == "sgd")
        assert ("heads" in params) == (params["width"] > 256)
    assert asked[-1]["optimizer"] == "adam"


def test_shares_add_up_at_every_size_and_the_best_mixture_is_found():
    shares = {"mix": {"shares": ["web", "code", "books"]}}

    def loss(params):
        return loss_of({**params, "lr": 0.01}) + (params["mix.code"] - 0.5) ** 2

    optimizer = across(shares, 24, at_target=2)
    asked = carry_out(optimizer, 24, loss)
    for params in asked:
        optimizer.space.validate(params)
        total = math.fsum(params[f"mix.{name}"] for name in ("web", "code", "books"))
        assert total == pytest.approx(1.0, rel=1e-12)
    assert asked[-2]["mix.code"] == pytest.approx(0.5, abs=0.1)


def test_fixed_values_are_kept():
    optimizer = across(PLAIN, 20)
    for _ in range(20):
        trial = optimizer.ask(fixed={"decay": 0.2})
        assert trial.params["decay"] == 0.2
        optimizer.tell(trial, loss_of(trial.params))
    assert optimizer.ask(fixed={"decay": 0.0}).params["width"] == 2048
    assert Sizes(optimizer.space, "width").values == tuple(WIDTHS)


@pytest.mark.parametrize("before", [0, 3, 12])
def test_a_fixed_size_is_kept_at_any_time(before):
    """Someone who asks `hposvc propose` for a size gets it."""
    optimizer = across(PLAIN, 20)
    carry_out(optimizer, before)
    asked = [optimizer.ask(fixed={"width": width}).params for width in (1024, 2048, 1024)]
    assert widths(asked) == [1024, 2048, 1024]
    with pytest.raises(SpaceError, match="width"):
        optimizer.ask(fixed={"width": 300})


def test_failed_trials_teach_nothing_and_are_not_tried_again():
    optimizer = across(PLAIN, 24, at_target=3)
    asked = []
    for index in range(24):
        trial = optimizer.ask()
        asked.append(trial.params)
        optimizer.tell(trial, None if index % 4 == 3 else loss_of(trial.params))
    assert widths(asked[-3:]) == [2048] * 3
    assert len({tuple(params.items()) for params in asked}) == 24
    assert abs(math.log10(asked[-1]["lr"]) + 3) < 0.3


def test_a_target_that_failed_is_followed_by_one_that_should_be_good():
    optimizer = across(PLAIN, 24, at_target=2)
    carry_out(optimizer, 22)
    optimizer.tell(optimizer.ask(), None, "oom")
    best = {"width": 2048, "lr": 1e-3, "decay": 0.1}
    assert loss_of(optimizer.ask().params) - loss_of(best) < 0.03


def test_trials_that_diverged_do_no_harm():
    def loss(params):
        return loss_of(params) if params["lr"] < 0.03 else 1e12

    asked = carry_out(across(PLAIN, 30), 30, loss)
    assert abs(math.log10(asked[-1]["lr"]) + 3) < 0.35


def test_where_every_trial_fails_each_size_has_its_trials_all_the_same():
    optimizer = across(PLAIN, 20)
    asked = []
    for _ in range(20):
        trial = optimizer.ask()
        asked.append(trial.params)
        optimizer.tell(trial, None)
    assert set(widths(asked[:14])) == {256}
    assert widths(asked[14:16]) == [512, 1024]
    assert set(widths(asked[16:19])) <= {512, 1024}
    assert widths(asked[19:]) == [2048]


def test_all_at_once_are_of_every_size():
    """As on a cluster with a place for each trial: then no law is known yet."""
    asked = [trial.params for trial in across(PLAIN, 20, at_target=2).ask(20)]
    assert widths(asked[:14]) == [256] * 14
    assert set(widths(asked[14:18])) == {512, 1024}
    assert widths(asked[18:]) == [2048] * 2
    assert len({tuple(params.items()) for params in asked}) == 20


def test_pending_trials_are_counted_and_not_proposed_again():
    optimizer = across(PLAIN, 20, at_target=3)
    carry_out(optimizer, 12)
    asked = [trial.params for trial in optimizer.ask(8)]
    assert widths(asked[:3]) == [256, 512, 1024]
    assert set(widths(asked[3:5])) <= {512, 1024}
    assert widths(asked[5:]) == [2048] * 3
    assert len({tuple(params.items()) for params in asked}) == 8


def test_two_sizes_need_no_checks():
    asked = carry_out(across(PLAIN, 20, width={"values": [256, 1024], "ordered": True}), 20)
    assert widths(asked) == [256] * 19 + [1024]


def test_members_of_a_size_go_with_it():
    tied = [
        {"width": width, "layers": layers, "tokens": tokens}
        for width, layers, tokens in [(256, 4, 1e8), (512, 6, 1e8), (1024, 8, 4e8)]
    ]
    sizes = {"size": {"values": tied, "ordered": True}}
    optimizer = across(PLAIN, 20, **sizes)
    members = [{name: params[name] for name in tied[0]} for params in carry_out(optimizer, 20)]
    assert members[0] == tied[0]
    assert members[-1] == tied[2]
    assert all(each in tied for each in members)


def logs(tied, over="width"):
    sizes = Sizes(Space.from_dict({"lr": LR, "size": {"values": tied, "ordered": True}}), over)
    return np.array([sizes.size_of(size) for size in tied])


def test_a_number_that_goes_its_own_way_is_a_second_size():
    tied = [{"width": 256, "tokens": 1e8}, {"width": 512, "tokens": 1e8}]
    np.testing.assert_array_equal(logs(tied), [[8], [9]])
    tied = [*tied, {"width": 1024, "tokens": 4e8}]
    assert logs(tied).shape == (3, 2)
    np.testing.assert_allclose(logs(tied)[:, 1], np.log2([1e8, 1e8, 4e8]))


def test_a_number_that_goes_the_same_way_is_not():
    tied = [{"width": 2**n, "tokens": 4**n, "name": f"{n}", "heads": 0} for n in (8, 9, 11)]
    assert logs(tied).shape == (3, 1)


def test_the_best_rate_follows_tokens_that_go_their_own_way():
    """The best rate of 1024 at as many tokens as 256 had would be another one."""
    tied = [
        {"width": width, "tokens": tokens}
        for width, tokens in [(256, 1e8), (257, 8e8), (512, 1e8), (513, 8e8), (1024, 8e8)]
    ]

    def best(params):
        sizes = math.log2(params["width"] / 256), math.log2(params["tokens"] / 1e8)
        return -2 - sizes[0] / 4 + sizes[1] / 4

    def loss(params):
        return 0.05 * (math.log10(params["lr"]) - best(params)) ** 2

    sizes = {"size": {"values": tied, "ordered": True}}
    asked = carry_out(across({"lr": LR}, 40, **sizes), 40, loss)
    assert asked[-1]["width"] == 1024
    assert math.log10(asked[-1]["lr"]) == pytest.approx(best(asked[-1]), abs=0.25)


def test_there_is_no_law_of_a_few_trials():
    sizes = Sizes(Space.from_dict({**PLAIN, "width": WIDTH}), "width")
    rng = np.random.default_rng(0)
    seen = [
        Observation(f"{index}", params, loss=loss_of(params), state="done")
        for index, params in enumerate(sizes.space.sample(rng) for _ in range(6))
    ]
    unknown = Observation("x", {"lr": 0.1}, loss=1.0, state="done")  # of another sweep
    infinite = Observation("y", seen[0].params, loss=math.inf, state="done")
    pending = Observation("z", seen[0].params)
    assert sizes.law([*seen[:5], unknown, infinite, pending]) is None
    assert sizes.law(seen) is not None


def test_candidates_are_new_and_known_ones_of_the_size_the_best_first():
    optimizer = across(PLAIN, 30)
    carry_out(optimizer, 25)
    sizes = Sizes(optimizer.space, "width")
    law = sizes.law(optimizer.history)
    configs = sizes.candidates(law, 2048, optimizer.history, np.random.default_rng(0))
    assert widths(configs) == [2048] * len(configs)
    assert len({tuple(params.items()) for params in configs}) == len(configs) > 100
    part = optimizer.space.fix({"width": 2048})
    assert all(map(part.allows, configs))
    drawn_SM = sizes.draws(law, configs, 2048, 400, np.random.default_rng(0))
    mean_M = drawn_SM.mean(axis=0)
    assert mean_M[:10].mean() < mean_M[-10:].mean()
