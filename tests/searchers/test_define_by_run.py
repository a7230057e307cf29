"""A function that suggests becomes the space that it suggests."""

import itertools
import math
import random
from functools import partial

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import Choice, Constant, Float, Int, Space, SpaceError


def typical(trial):
    """Suggest as many of Optuna's examples do."""
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam", "rmsprop"])
    lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    if optimizer == "sgd":
        trial.suggest_float("momentum", 0.0, 0.99)
        if trial.suggest_categorical("nesterov", [True, False]):
            trial.suggest_float("dampening", 0.0, 0.0)
    if optimizer in ("adam", "rmsprop"):
        trial.suggest_float("eps", 1e-8, 1e-4, log=True)
    for layer in range(trial.suggest_int("n_layers", 1, 3)):
        trial.suggest_int(f"units_l{layer}", 16, 512, log=True)
    trial.suggest_int("batch", 16, 4096, step=16)
    trial.suggest_float("dropout", 0.0, 0.5, step=0.1)
    return {"optimizer": optimizer, "lr": lr}


def model(trial):
    match trial.suggest_categorical("model", ["cnn", "mlp"]):
        case "cnn":
            norm = trial.suggest_categorical("norm", ["batch", None])
            if norm is not None:
                trial.suggest_float("decay", 0.1, 0.9)
            trial.suggest_int("channels", 8, 64)
        case str(other):
            trial.suggest_int(f"{other}_width", 8, 64)


def test_a_loop_that_never_ends_is_told():
    def endless(trial):
        for number in itertools.count(1):
            trial.suggest_float(f"x{number}", 0.0, 1.0)

    message = r"endless\(\) suggests 100,000 times in one call, at last x100001; does a loop"
    with pytest.raises(SpaceError, match=message):
        Space.from_function(endless)


def test_branches_become_conditions():
    assert dict(Space.from_function(typical)) == {
        "optimizer": Choice(("sgd", "adam", "rmsprop")),
        "lr": Float(1e-5, 1e-1, log=True),
        "momentum": Float(0.0, 0.99, when={"optimizer": ("sgd",)}),
        "nesterov": Choice((True, False), when={"optimizer": ("sgd",)}),
        "dampening": Constant(0.0, when={"nesterov": (True,)}),
        "eps": Float(1e-8, 1e-4, log=True, when={"optimizer": ("adam", "rmsprop")}),
        "n_layers": Int(1, 3),
        "units_l0": Int(16, 512, log=True),
        "units_l1": Int(16, 512, log=True, when={"n_layers": (2, 3)}),
        "units_l2": Int(16, 512, log=True, when={"n_layers": (3,)}),
        "batch": Int(16, 4096, step=16),
        "dropout": Float(0.0, 0.5, step=0.1),
    }
    assert dict(Space.from_function(model)) == {
        "model": Choice(("cnn", "mlp")),
        "norm": Choice(("batch", None), when={"model": ("cnn",)}),
        "decay": Float(0.1, 0.9, when={"norm": ("batch",)}),
        "channels": Int(8, 64, when={"model": ("cnn",)}),
        "mlp_width": Int(8, 64, when={"model": ("mlp",)}),
    }


@pytest.mark.parametrize("function", [typical, model])
def test_it_is_the_space_that_optuna_sees(function):
    space = Space.from_function(function)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(200):
        trial = study.ask()
        function(trial)
        space.validate(trial.params)
    rng = np.random.default_rng(0)
    for _ in range(50):
        params = space.sample(rng)
        fixed = optuna.trial.FixedTrial(params)
        function(fixed)
        assert fixed.params == params


def test_the_declarations_of_a_function_describe_its_space():
    space = Space.from_function(typical, ["batch <= 2048"])
    assert dict(Space.from_dict(space.to_dict())) == dict(space)
    assert space.constraints[0].text == "batch <= 2048"


@pytest.mark.full
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_tree_of_branches_is_found_again(data):
    """Any nesting of branches on choices, whole numbers and flags."""
    names = iter(range(100))

    def branches(depth):
        parts = []
        for _ in range(data.draw(st.integers(1, 2))):
            values = data.draw(st.sampled_from([("a", "b", "c"), (True, False), (None, 7), (1, 2)]))
            allowed = data.draw(st.sets(st.sampled_from(values), min_size=1, max_size=2))
            inner = branches(depth - 1) if depth else []
            parts.append((f"p{next(names)}", values, allowed, inner))
        return parts

    def suggest(parts, trial):
        for name, values, allowed, inner in parts:
            if values == (1, 2):
                value = trial.suggest_int(name, 1, 2)
            else:
                value = trial.suggest_categorical(name, values)
            trial.suggest_float(f"{name}_x", 0, 1)
            if inner and value in allowed:
                suggest(inner, trial)

    tree = branches(2)
    space = Space.from_function(partial(suggest, tree))
    for seed in range(20):
        params = space.sample(np.random.default_rng(seed))
        fixed = optuna.trial.FixedTrial(params)
        suggest(tree, fixed)
        assert fixed.params == params


def test_only_what_is_looked_at_opens_branches():
    runs = []

    def wide(trial):
        runs.append(trial)
        for name in "abcdefgh":
            trial.suggest_categorical(name, ["x", "y", "z"])
            trial.suggest_int(f"{name}_size", 1, 10_000)

    assert len(Space.from_function(wide)) == 16
    assert len(runs) < 100


def test_code_of_c_gets_real_values():
    def squares(trial):
        for index in range(int(math.sqrt(trial.suggest_categorical("count", [1, 4])))):
            trial.suggest_float("_".join(["x", str(index)]), 0, 1)
        " ".join([trial.suggest_categorical("word", ["a", "b"])])

    space = Space.from_function(squares)
    assert list(space) == ["count", "x_0", "word", "x_1"]
    assert space["x_1"].when == {"count": (4,)}


def lr_decides(trial):
    if trial.suggest_float("lr", 0, 1) > 0.5:
        trial.suggest_float("momentum", 0, 1)


def range_of_a_number(trial):
    trial.suggest_int("heads", 1, trial.suggest_int("layers", 2, 3))


def either(trial):
    first, second = trial.suggest_int("one", 1, 2), trial.suggest_int("other", 1, 2)
    if first == 1 or second == 1:
        trial.suggest_float("lr", 0, 1)


def many(trial):
    if sum(trial.suggest_int(f"n{index}", 1, 10) for index in range(4)) == 9:
        trial.suggest_float("lr", 0, 1)


def chance(trial):
    trial.suggest_float("lr", 0, 1)
    if random.random() < 0.5:
        trial.suggest_float("momentum", 0, 1)


def identity(trial):
    if trial.suggest_categorical("flag", [True, False]) is True:
        trial.suggest_float("lr", 0, 1)


def pruned(trial):
    if trial.suggest_categorical("optimizer", ["sgd", "lars"]) == "lars":
        raise optuna.TrialPruned("no lars today")


def broken(trial):
    trial.suggest_int("width", 1, 10**9)
    raise KeyError("x")


def renamed(trial):
    return {"learning_rate": trial.suggest_float("lr", 0, 1)}


def squared(trial):
    return {"width": 2 ** trial.suggest_int("width", 4, 9)}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lr_decides, "lr_decides() looks at the value of lr, which is continuous; what is sugg"),
        (range_of_a_number, "range_of_a_number() suggests heads from {'min': 1, 'max': 2, 'type"),
        (either, "either() suggests lr in some combinations of one, other alone, and conditions"),
        (many, "many() opens more than 1,000 branches by looking at n0 (10 values), n1 (10 val"),
        (chance, "chance() suggests "),
        (identity, "identity() suggests flag, lr where the values are {'flag': True}, and not fl"),
        (pruned, f"pruned() raises TrialPruned: no lars today ({__file__}, line "),
        (broken, f"broken() raises KeyError: 'x' ({__file__}, line "),
        (renamed, "renamed() returns 'learning_rate', but has not suggested that value by that n"),
        (squared, "squared() returns 'width', but has not suggested that value by that name"),
        (lambda trial: 0.5, "<lambda>() returns float; return nothing, or a dict"),
        (lambda trial: None, "<lambda>() suggests nothing; call trial.suggest_categorical"),
        (
            lambda: None,
            "<lambda>() raises TypeError: <lambda>() takes 0 positional "
            f"arguments but 1 was given ({__file__}, line ",
        ),
        (lambda trial: trial.number, "<lambda>() asks for trial.number, but may only suggest: "),
        (
            lambda trial: trial.suggest_int("x y", 1, 2),
            "parameters.x y: is not a valid name; use letters",
        ),
        (
            lambda trial: trial.suggest_categorical("x", [[{1}], [2]]),
            "parameters.x.values[0]: is [{1",
        ),
    ],
)
def test_what_is_no_space_says_why(function, message):
    with pytest.raises(SpaceError) as caught:
        Space.from_function(function)
    assert str(caught.value).startswith(message)


def test_a_name_that_is_suggested_twice_keeps_its_value_and_its_range():
    def twice(trial, high):
        first = trial.suggest_int("n", 1, 3)
        assert trial.suggest_int("n", 1, high) == first

    assert dict(Space.from_function(partial(twice, high=3))) == {"n": Int(1, 3)}
    with pytest.raises(SpaceError, match=r"partial\(\) suggests n from .*; give it another name"):
        Space.from_function(partial(twice, high=4))
