"""Groups of parameters, written out as names with points."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.spec.parsing.document import from_mapping
from hposvc.spec.parsing.nested_names import write_out

NAMES = st.sampled_from(["lr", "optimizer", "min", "max", "values", "type", "step", "when", "b-1"])
DOMAINS = st.one_of(
    st.just({"min": 1e-3, "max": 1.0, "log": True}),
    st.just({"values": [1, 2], "when": {"optimizer.name": "sgd"}}),
    st.just({"values": [{"layers": 2}, {"layers": 3}]}),
)
GROUPS = st.recursive(
    DOMAINS, lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3), max_leaves=6
)
RANGE = {"min": 1e-4, "max": 0.1, "log": True}
SPEC = {
    "trainable": "train.py:train",
    "metric": {"name": "loss", "goal": "minimize"},
    "trials": {"max": 4},
}


def is_domain(declared):
    return any(not isinstance(declared.get(key, {}), dict) for key in ("min", "values"))


def leaves(group, *path):
    for name, declared in group.items():
        if is_domain(declared):
            yield ".".join((*path, name)), declared
        else:
            yield from leaves(declared, *path, name)


def written(parameters):
    return write_out(from_mapping({"parameters": parameters})).data["parameters"]


@given(st.dictionaries(NAMES, GROUPS, min_size=1, max_size=4))
def test_every_range_of_every_group_has_its_name(parameters):
    assert written(parameters) == dict(leaves(parameters))


@pytest.mark.parametrize(
    "parameters",
    [
        {"lr": RANGE, "depth": 3},
        {"lr": {"low": 1, "high": 2}},
        {"lr": {"when": {"optimizer": "sgd"}, "mn": 0, "mx": 1}},
        {"lr": {"min": 1, "max": 2, "when": {"optimizer": "sgd"}}},
        {"lr": {}},
        {"space": "module:function"},
    ],
)
def test_what_is_no_group_stays(parameters):
    assert written(parameters) == parameters


def refusal(tmp_path, parameters, set=None):
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump({**SPEC, "parameters": parameters}, sort_keys=False))
    with pytest.raises(SpecError) as caught:
        specs.load(file, set or {})
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_an_error_within_a_group_has_its_line_and_name(tmp_path):
    assert refusal(tmp_path, {"optimizer": {"lr": {**RANGE, "stpe": 1}}}).startswith(
        "sweep.yaml:13:13: parameters.optimizer.lr.stpe: "
    )


def test_a_parameter_that_is_there_twice_is_refused(tmp_path):
    assert refusal(tmp_path, {"optimizer.lr": RANGE, "optimizer": {"lr": RANGE}}).startswith(
        "sweep.yaml:13:5: parameters.optimizer.lr: optimizer.lr is there twice; remove one of them"
    )


def test_python_and_yaml_give_the_same_spec(tmp_path):
    parameters = {"optimizer": {"lr": RANGE, "deeper": {"beta": {"values": [0.9, 0.99]}}}}
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump({**SPEC, "parameters": parameters}))
    flat = {"optimizer.lr": RANGE, "optimizer.deeper.beta": {"values": [0.9, 0.99]}}
    read = specs.load(file)
    assert dict(read.parameters) == flat
    assert dict(read.space) == dict(specs.load({**SPEC, "parameters": parameters}).space)
