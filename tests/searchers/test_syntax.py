import numpy as np
import pytest

from searchers import Choice, Constant, Float, Int, Space, SpaceError
from searchers.syntax import read_domain


@pytest.mark.parametrize(
    ("declared", "domain"),
    [
        ({"min": 1e-5, "max": 0.1, "log": True}, Float(1e-5, 0.1, log=True)),
        ({"min": 0, "max": 0.5}, Float(0, 0.5)),
        ({"min": 0.0, "max": 1.0, "step": 0.25}, Float(0, 1, step=0.25)),
        ({"min": 1, "max": 8}, Int(1, 8)),
        ({"min": 0, "max": 1, "type": "int"}, Int(0, 1)),
        ({"min": 16, "max": 256, "step": 16}, Int(16, 256, step=16)),
        ({"values": [32, 64], "ordered": True}, Choice((32, 64), ordered=True)),
        ({"values": [None, "a", True, 1]}, Choice((None, "a", True, 1))),
        ({"values": ["only"]}, Constant("only")),
        (64, Constant(64)),
    ],
)
def test_a_declaration_means_a_domain(declared, domain):
    assert read_domain(declared) == domain
    assert type(read_domain(declared)) is type(domain)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"min": 0.1, "max": 1e-5}, "parameters.p: min is 0.1, max is 1e-05; swap them"),
        ({"min": 1.0, "max": 1.0}, "parameters.p: min and max are both 1.0; for a constant"),
        ({"min": 0, "max": 1}, "parameters.p: min 0 and max 1 mean just those two whole numbers"),
        ({"min": 0.0, "max": 1.0, "log": True}, "parameters.p.min: is 0.0, but a log scale"),
        ({"min": 0, "max": 1, "log": True}, "parameters.p.min: is 0, but a log scale has no 0"),
        ({"min": True, "max": 3}, "parameters.p.min: is True; give a finite number"),
        ({"min": 1.5, "max": 4, "type": "int"}, "parameters.p.min: is 1.5 in a range of whole"),
        ({"min": 0, "max": 10, "step": 0.5}, "parameters.p.step: is 0.5 in a range of whole"),
        ({"min": 0.0, "max": 1e6, "step": 1e-9}, "parameters.p.step: 1e-09 is too fine"),
        ({"min": 0, "max": 10**15}, "parameters.p.max: 1000000000000000 is too large"),
        ({"min": -1e308, "max": 1e308}, "parameters.p: -1e+308 to 1e+308 is too wide"),
        ({"min": 1.0}, "parameters.p: has no max; give both ends"),
        ({"min": 1, "max": 4, "log": "yes"}, "parameters.p.log: is 'yes'; write true or false"),
        ({"minimum": 1, "max": 4}, "parameters.p.minimum: is no key of a parameter: did you mean"),
        ({"space": "mod:f"}, "parameters.p.space: is no key of a parameter"),
        ({}, "parameters.p: has neither min and max, nor values, nor shares"),
        ({"values": []}, "parameters.p.values: is []; give a list"),
        ({"values": [1, 2, 1]}, "parameters.p.values[2]: 1 is there twice; remove one"),
        ({"values": [[{1}], [2]]}, "parameters.p.values[0]: is [{1}]; give a finite number, text"),
        ({"values": [3], "ordered": True}, "parameters.p.ordered: a single value has no order"),
        ([1, 2], "parameters.p: is a list; write {values: [...]}"),
        ({"min": 1, "max": 4, "when": ["a"]}, "parameters.p.when: is ['a']; write {name: value}"),
        ({"min": 1, "max": 4, "when": {"q": []}}, "parameters.p.when.q: allows no value"),
        ({"min": 1, "max": 4, "when": {"q": {}}}, "parameters.p.when.q: is an empty range"),
    ],
)
def test_a_wrong_declaration_says_where_what_and_what_to_do(declared, message):
    with pytest.raises(SpaceError) as caught:
        Space.from_dict({"q": {"values": [1, 2]}, "p": declared})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "name", ["", "1st", "a-", "-a", "a--b", "a.", "a b", "a..b", "x" * 251, "é", 3]
)
def test_a_name_that_is_no_identifier_is_refused(name):
    with pytest.raises(SpaceError, match="is not a valid name; use letters"):
        Space.from_dict({name: 1})


def test_a_hyphen_is_written_as_an_underscore_in_constraints():
    space = Space.from_dict(
        {
            "batch-size": {"values": [16, 32, 64]},
            "use-bias": {"values": [True, False]},
            "lr": {"min": 0.1, "max": 1.0, "when": {"use-bias": True}},
        },
        ["batch_size * 2 <= 64"],
    )
    batch_sizes = {space.sample(np.random.default_rng(seed))["batch-size"] for seed in range(30)}
    assert batch_sizes == {16, 32}
    with pytest.raises(SpaceError, match=r"mentions 'batch'.*did you mean 'batch_size'"):
        Space.from_dict({"batch-size": {"values": [1, 2]}}, ["batch-size <= 64"])
    with pytest.raises(SpaceError, match=r"parameters\.a_b: differs from 'a-b' in - and _ alone"):
        Space.from_dict({"a-b": 1, "a_b": 2})


def test_no_parameters_and_too_many_are_refused():
    with pytest.raises(SpaceError, match="parameters: has 0 names"):
        Space.from_dict({})
    with pytest.raises(SpaceError, match="parameters: has 1,001 names; give 1 to 1,000"):
        Space.from_dict({f"p{i}": i for i in range(1_001)})
    with pytest.raises(SpaceError, match="values: has 10001 values"):
        Space.from_dict({"p": {"values": list(range(10_001))}})


LAYERS = {
    "layers": {"min": 1, "max": 6},
    "rate": {"min": 0.0, "max": 0.3, "step": 0.1},
    "size": {"values": [{"name": "small", "heads": 2}, {"name": "large", "heads": 16}]},
    "scale": {"values": [1, 10, "none"]},
    "lr": {"min": 0.1, "max": 1.0},
}


@pytest.mark.parametrize(
    ("when", "listed"),
    [
        ({"layers": {"min": 3}}, {"layers": (3, 4, 5, 6)}),
        ({"layers": {"max": 2}}, {"layers": (1, 2)}),
        ({"layers": {"min": 2.5, "max": 4}, "rate": 0.1}, {"layers": (3, 4), "rate": (0.1,)}),
        ({"rate": {"min": 0.1, "max": 0.3}}, {"rate": (0.1, 0.2, 0.3)}),
        ({"heads": {"min": 8}}, {"name": ("large",)}),
        ({"scale": {"max": 5}}, {"scale": (1,)}),
    ],
)
def test_a_range_in_a_condition_stands_for_the_values_in_it(when, listed):
    space = Space.from_dict({**LAYERS, "drop": {"min": 0.0, "max": 0.5, "when": when}})
    assert space["drop"].when == listed
    assert Space.from_dict(space.to_dict()) == space
    rng = np.random.default_rng(0)
    for params in [space.sample(rng) for _ in range(30)]:
        met = all(params[parent] in allowed for parent, allowed in listed.items())
        assert ("drop" in params) == met


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ({"layers": {"min": 9}}, "when.layers: can never be met, since layers has no number"),
        ({"layers": {"mim": 3}}, "when.layers.mim: is no key of a parameter: did you mean 'min'"),
        ({"layers": {"min": "3"}}, "when.layers.min: is '3'; give a finite number"),
        ({"layer": {"min": 3}}, "when.layer: is no parameter: did you mean 'layers'?"),
        ({"lr": {"min": 0.5}}, "when.lr: is a range of lr, which has real numbers; give lr a step"),
        ({"size": {"min": 1}}, "when.size: is no parameter"),
    ],
)
def test_a_range_that_no_value_is_in_is_refused(when, message):
    with pytest.raises(SpaceError) as error:
        Space.from_dict({**LAYERS, "drop": {"min": 0.0, "max": 0.5, "when": when}})
    assert f"parameters.drop.{message}" in str(error.value)


@pytest.mark.parametrize(
    ("declared", "hint"),
    [
        ({"low": 0.1, "high": 1}, "lr.low: is no key of a parameter: write min"),
        ({"min": 0.1, "upper": 1}, "lr.upper: is no key of a parameter: write max"),
        ({"min": 1, "max": 8, "q": 2}, "lr.q: is no key of a parameter: write step"),
        ({"choices": ["a", "b"]}, "lr.choices: is no key of a parameter: write values: [...]"),
        ({"value": 3}, "lr.value: is no key of a parameter: write a constant without it"),
        ({"distribution": "uniform", "min": 0, "max": 1}, "lr.distribution: is no key of a"),
    ],
)
def test_the_words_of_other_tools_get_a_hint(declared, hint):
    with pytest.raises(SpaceError) as error:
        Space.from_dict({"lr": declared})
    assert hint in str(error.value)
