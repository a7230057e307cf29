"""What is wrong with a declaration of shares: where, what was found, what to do."""

import pytest

from searchers import Constant, Space, SpaceError

NAMES = ["web", "code"]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"shares": "web"}, "mix.shares: is 'web'; give a list of names, such as [web, code], or"),
        ({"shares": {"web": 1}}, "mix.shares: is {'web': 1}; give a list of names"),
        ({"shares": None}, "mix.shares: is None; give a list of names"),
        ({"shares": True}, "mix.shares: is True; give a list of names"),
        ({"shares": 2.0}, "mix.shares: is 2.0; give a list of names"),
        ({"shares": 1}, "mix.shares: is 1; give 2 to 200 shares"),
        ({"shares": 201}, "mix.shares: is 201; give 2 to 200 shares"),
        ({"shares": ["web"]}, "mix.shares: holds 1; give 2 to 200 names"),
        ({"shares": [f"n{i}" for i in range(201)]}, "mix.shares: holds 201; give 2 to 200 names"),
        ({"shares": ["web", 2]}, "mix.shares[1]: 2 is no valid name; use letters"),
        ({"shares": ["web", "a b"]}, "mix.shares[1]: 'a b' is no valid name; use letters"),
        ({"shares": ["web", "a.b"]}, "mix.shares[1]: 'a.b' is no valid name; use letters"),
        ({"shares": ["web", "code", "web"]}, "mix.shares[2]: 'web' is there twice; remove one"),
        ({"total": 0}, "mix.total: is 0; give a number above 0"),
        ({"total": -1}, "mix.total: is -1; give a number above 0"),
        ({"total": "1"}, "mix.total: is '1'; give a number above 0"),
        ({"total": 1e-20}, "mix.total: is 1e-20; give 1e-12 to 1e+15, in another unit"),
        ({"total": 1e20}, "mix.total: is 1e+20; give 1e-12 to 1e+15, in another unit"),
        ({"step": 0}, "mix.step: is 0; give a number above 0"),
        ({"step": True}, "mix.step: is True; give a number above 0"),
        ({"step": 0.3}, "mix.step: is 0.3, and the total of 1 is no multiple of it; change one"),
        ({"step": 2}, "mix.step: is 2, and the total of 1 is no multiple of it; change one"),
        ({"step": 1e-9}, "mix.step: is 1e-09, a 1,000,000,000th of the total of 1; give a larger"),
        ({"zeros": "yes"}, "mix.zeros: is 'yes'; write true for shares of exactly 0"),
        ({"zeros": 0}, "mix.zeros: is 0; write true for shares of exactly 0"),
        ({"min": -0.1}, "mix.min: is -0.1; give a number from 0 to 1"),
        ({"min": "low"}, "mix.min: is 'low'; give a number from 0 to 1"),
        ({"min": [0.1, 0.2]}, "mix.min: is [0.1, 0.2]; give a number from 0 to 1"),
        ({"max": 1.5}, "mix.max: is 1.5; give a number from 0 to 1"),
        ({"max": {"web": 2}}, "mix.max.web: is 2; give a number from 0 to 1"),
        ({"max": {"web": 0}}, "mix.max.web: is 0; leave the share out, or give a number above 0"),
        ({"max": {"wbe": 0.5}}, "mix.max.wbe: is none of the shares: did you mean 'web'"),
        ({"min": {7: 0.5}}, "mix.min.7: is none of the shares: known: code, web"),
        ({"min": {"web": 0.6}, "max": 0.5}, "mix: min is 0.6 and max is 0.5 for web; swap them"),
        ({"min": 0.6}, "mix.min: leaves more than the total of 1 for the shares together: 1.2;"),
        ({"max": 0.4}, "mix.max: leaves less than the total of 1 for the shares together: 0.8;"),
        (
            {"min": {"web": 0.11}, "max": {"web": 0.14}, "step": 0.1},
            "mix.min.web: is 0.11, max is 0.14, and no multiple of the step of 0.1 lies between",
        ),
        (
            {"min": {"web": 1e-7}, "max": {"web": 2e-7}},
            "mix.min.web: is 1e-07, max is 2e-07, and no multiple of a millionth of the total",
        ),
        (
            {"min": 0.6, "max": 0.9, "zeros": True},
            "mix.min: and max leave no shares that add up to the total beside those that are 0",
        ),
        ({"prior": 0.5}, "mix.prior: is 0.5; give a list, a number for each share"),
        ({"prior": "web"}, "mix.prior: is 'web'; give a list, a number for each share"),
        ({"prior": [1, 2, 3]}, "mix.prior: has 3 numbers for 2 shares; give one for each"),
        ({"prior": [1, 0]}, "mix.prior[1]: is 0; give a number above 0; zeros: true draws"),
        ({"prior": [1, "2"]}, "mix.prior[1]: is '2'; give a number above 0"),
        ({"prior": {"web": 1}}, "mix.prior: has no code; give a number for each share"),
        ({"prior": {"web": 1, "cod": 1}}, "mix.prior.cod: is none of the shares: did you mean"),
        ({"concentration": 0}, "mix.concentration: is 0; give a number above 0"),
        ({"concentration": [1, 2]}, "mix.concentration: is [1, 2]; give a number above 0"),
        ({"values": [1, 2]}, "mix.values: is no key of a parameter"),
        ({"log": True}, "mix.log: is no key of a parameter"),
        ({"weights": [1, 2]}, "mix.weights: is no key of a parameter"),
        ({"when": {"size": 3}}, "mix.when.size: can never be met, since size is 3"),
        ({"when": 3}, "mix.when: is 3; write {name: value}"),
    ],
)
def test_a_declaration_that_means_nothing_says_where_and_what_to_do(declared, message):
    parameters = {"size": {"values": [1, 2]}, "mix": {"shares": NAMES, **declared}}
    with pytest.raises(SpaceError) as caught:
        Space.from_dict(parameters)
    assert str(caught.value).startswith("parameters.")
    assert message in str(caught.value)


@pytest.mark.parametrize("key", ["simplex", "dirichlet", "fractions", "sum_to"])
def test_the_words_of_others_lead_to_shares(key):
    with pytest.raises(SpaceError, match=r"mix.*write shares: \[\.\.\.\]"):
        Space.from_dict({"mix": {key: NAMES}})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"mix": {"shares": NAMES}, "mix.web": {"min": 0.0, "max": 1.0}},
            "parameters.mix.shares[0]: is a parameter of its own too, or a member of another one",
        ),
        (
            {"mix.web": 3, "mix": {"shares": NAMES}},
            "parameters.mix.shares[0]: is a parameter of its own too, or a member of another one",
        ),
        (
            {"mix": {"shares": NAMES}, "lr": {"min": 0.0, "max": 1.0, "when": {"mix": 0.5}}},
            "parameters.lr.when.mix: has shares; name a member: mix.web, mix.code",
        ),
        (
            {
                "mix": {"shares": NAMES},
                "lr": {"min": 0.0, "max": 1.0, "when": {"mix.web": {"min": 0.5}}},
            },
            "parameters.lr.when.mix.web: is a range of mix.web, which has real numbers; give",
        ),
        (
            {"mix": {"shares": NAMES}, "lr": {"min": 0.0, "max": 1.0, "when": {"mix.web": 3}}},
            "parameters.lr.when.mix.web: can never be met, since mix.web is 3; give 0 to 1",
        ),
    ],
)
def test_other_parameters_that_do_not_fit_shares_say_so(parameters, message):
    with pytest.raises(SpaceError) as caught:
        Space.from_dict(parameters)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ("mix <= 0.5", "mix"),
        ("mix.web == 0.5", "holds for next to no configuration, since mix.web is a real number"),
        ("mix.web > 2", "no configuration was found that meets 'mix.web > 2'"),
        ("mix.web + mix.code < 0.9", "no configuration was found that meets"),
    ],
)
def test_a_constraint_that_shares_cannot_meet_is_refused(constraint, message):
    with pytest.raises(SpaceError) as caught:
        Space.from_dict({"mix": {"shares": NAMES}}, [constraint])
    assert caught.value.path == ("constraints", 0)
    assert message in str(caught.value)


def test_numbers_of_one_kind_are_shares_of_that_kind():
    kinds = {"whole": (64, 1), "real": (64.0, 1), "step": (64, 0.5)}
    for name, (total, step) in kinds.items():
        space = Space.from_dict({"mix": {"shares": NAMES, "total": total, "step": step}})
        assert space.shares[0].whole == (name == "whole")


def test_a_constant_beside_shares_may_be_in_their_group():
    space = Space.from_dict({"mix": {"shares": NAMES}, "mix.seed": 3})
    assert space["mix.seed"] == Constant(3)
    assert [*space.shares[0].members] == ["mix.web", "mix.code"]
