"""The role of a hyperparameter, by its name, its kind and its neighbours."""

import re

import numpy as np
import pytest

from searchers import Space
from searchers.gp.encoding import Encoding, units
from searchers.gp.learned.prior import LearnedPrior
from searchers.gp.learned.roles import FAMILIES, ChoiceRole, NumberRole, roles_of
from searchers.gp.searcher import GaussianProcess
from searchers.values import SpaceError

RATE = {"min": 1e-5, "max": 1e-1, "log": True}
SHARE = {"min": 0.0, "max": 0.5}
WHOLE = {"min": 1, "max": 64, "type": "int"}


def roles(parameters, names=None):
    found = roles_of(Space.from_dict(parameters), names or {})
    return None if found is None else (found.family, dict(found.of))


def test_three_roles_of_one_family_tell_what_is_trained():
    network = {"lr": RATE, "dropout": SHARE, "batch_size": WHOLE, "seed": WHOLE}
    assert roles(network) == (
        "network",
        {"lr": "lr", "dropout": "dropout", "batch_size": "batch"},
    )
    boosting = {"eta": RATE, "max_depth": WHOLE, "subsample": SHARE, "reg_lambda": RATE}
    assert roles(boosting)[0] == "boosting"
    forest = {"n_estimators": WHOLE, "max_depth": WHOLE, "max_features": SHARE}
    assert roles(forest)[0] == "forest"
    assert roles({"C": RATE, "gamma": RATE}) == ("kernel", {"C": "penalty", "gamma": "gamma"})


@pytest.mark.parametrize(
    "name", ["lr", "learning_rate", "learning-rate", "LearningRate", "optimizer.lr", "model__lr"]
)
def test_names_are_written_in_many_ways(name):
    _, found = roles({name: RATE, "dropout": SHARE, "warmup": SHARE})
    assert found[name] == "lr"


@pytest.mark.parametrize(
    ("family", "parameters", "expected"),
    [
        (  # of torchvision's scripts
            "network",
            {
                "lr": RATE,
                "label_smoothing": SHARE,
                "opt": {"values": ["sgd", "adamw", "rmsprop"]},
                "lr_scheduler": {"values": ["steplr", "cosineannealinglr", "exponentiallr"]},
            },
            {
                "lr": "lr",
                "label_smoothing": "label_smoothing",
                "opt": "optimizer",
                "lr_scheduler": "schedule",
            },
        ),
        (
            "network",
            {"init_lr": RATE, "dropout_1": SHARE, "dropout_2": SHARE, "n_units_l1": WHOLE},
            {
                "init_lr": "lr",
                "dropout_1": "dropout",
                "dropout_2": "dropout",
                "n_units_l1": "width",
            },
        ),
        (
            "network",
            {"max_dropout": SHARE, "learning_rate": RATE, "max_units": WHOLE, "momentum": SHARE},
            {
                "max_dropout": "dropout",
                "learning_rate": "lr",
                "max_units": "width",
                "momentum": "momentum",
            },
        ),
        (
            "tree",
            {"cp": RATE, "maxdepth": WHOLE, "minbucket": WHOLE, "minsplit": WHOLE},
            {
                "cp": "pruning",
                "maxdepth": "depth",
                "minbucket": "leaf_rows",
                "minsplit": "split_rows",
            },
        ),
        (
            "forest",
            {"num.trees": WHOLE, "mtry": SHARE, "min.node.size": WHOLE, "sample.fraction": SHARE},
            {
                "num.trees": "trees",
                "mtry": "columns",
                "min.node.size": "leaf_rows",
                "sample.fraction": "rows",
            },
        ),
        (
            "boosting",
            {"xgb__eta": RATE, "xgb__max_depth": WHOLE, "xgb__subsample": SHARE},
            {"xgb__eta": "shrinkage", "xgb__max_depth": "depth", "xgb__subsample": "rows"},
        ),
    ],
)
def test_prefixes_and_numbers_and_the_names_of_other_libraries_are_known(
    family, parameters, expected
):
    assert roles(parameters) == (family, expected)


def test_parameters_that_differ_by_a_number_share_a_role_and_its_effect():
    one = Space.from_dict({"eta": RATE, "max_depth": WHOLE, "subsample": SHARE})
    numbered = {"subsample_1": SHARE, "subsample_2": SHARE}
    two = Space.from_dict({"eta": RATE, "max_depth": WHOLE, **numbered})
    values = {"eta": 1e-3, "max_depth": 4}
    both = [{**values, "subsample_1": low, "subsample_2": 0.4} for low in (0.1, 0.4)]
    alone = [{**values, "subsample": share} for share in (0.1, 0.4)]
    first, second = (mean_of(two, both) - mean_of(one, alone)).tolist()
    assert second == pytest.approx(0.0, abs=1e-9)  # two alike are as one
    assert first == pytest.approx(float(np.diff(mean_of(one, alone))[0]) / 2.0)
    assert roles({"lr": RATE, "warmup": SHARE, "drop": SHARE, "dropout": SHARE})[1] == {
        "lr": "lr",
        "warmup": "warmup",
        "drop": "dropout",
    }


def mean_of(space, configurations):
    """Return what the learned prior expects of configurations, up to a constant."""
    known = LearnedPrior.of(space)
    encoding = Encoding.of(space)
    return known.mean(encoding.columns_of(encoding.snap(units(space, configurations))))


@pytest.mark.parametrize(
    "parameters",
    [
        {"x": SHARE, "y": SHARE, "z": SHARE},
        {"lr": RATE},
        {"lr": RATE, "dropout": SHARE, "x": SHARE, "y": SHARE},  # two of four
        {"dropout": SHARE, "warmup": SHARE, "batch": WHOLE},  # nothing is learned at a rate
        {"lr": RATE, "wd": RATE, "warmup": SHARE, **{f"x{i}": SHARE for i in range(4)}},
    ],
)
def test_other_spaces_have_no_roles(parameters):
    assert roles(parameters) is None


def test_a_user_says_which_role_a_parameter_has_by_any_of_its_names():
    odd = {"a1": RATE, "p": SHARE, "n": WHOLE}
    assert roles(odd) is None
    names = {"a1": "learning_rate", "p": "dropout", "n": "batch_size"}
    assert roles(odd, names) == ("network", {"a1": "lr", "p": "dropout", "n": "batch"})


def test_a_parameter_without_a_role_by_the_users_word_leaves_it_to_another():
    space = {"lr": RATE, "lr_head": RATE, "dropout": SHARE, "warmup": SHARE}
    names = {"lr": None, "lr_head": "lr"}
    assert roles(space, names)[1] == {"lr_head": "lr", "dropout": "dropout", "warmup": "warmup"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"dropot": "dropout"}, "no parameter of this space; did you mean 'dropout'?"),
        ({"dropout": "learning_rat"}, "learning_rat is no role; did you mean 'learningrate'?"),
        ({"dropout": 3}, "is 3; give a text, or None"),
        ({"kind": "dropout"}, "dropout is a role of numbers only"),
        ({"dropout": "activation"}, "activation is a role of unordered choices only"),
    ],
)
def test_a_wrong_role_is_refused(names, message):
    space = Space.from_dict({"dropout": SHARE, "kind": {"values": ["a", "b"]}})
    with pytest.raises(SpaceError, match=re.escape(message)):
        GaussianProcess(roles=names).check(space)


def test_a_role_of_numbers_has_no_words_and_a_role_of_choices_no_range():
    plain = {"lr": RATE, "dropout": SHARE, "batch": WHOLE}
    assert "width" not in roles({**plain, "width": {"values": ["small", "large"]}})[1]
    assert "schedule" not in roles({**plain, "schedule": SHARE})[1]
    assert roles({**plain, "width": {"values": [16, 64]}})[1]["width"] == "width"


def test_a_name_stands_for_one_role_of_a_kind():
    for family in FAMILIES.values():
        for kind in (NumberRole, ChoiceRole):
            of_kind = [role for role in family.roles.values() if isinstance(role, kind)]
            names = [name for role in of_kind for name in role.names.split()]
            assert len(names) == len(set(names))
    linear = {"alpha": RATE, "l1_ratio": SHARE, "penalty": {"values": ["l1", "l2"]}}
    words = {"learning_rate": {"values": ["constant", "optimal"]}}
    assert roles({**linear, **words})[1]["learning_rate"] == "schedule"
    assert roles({**linear, "learning_rate": RATE})[1]["learning_rate"] == "lr"
