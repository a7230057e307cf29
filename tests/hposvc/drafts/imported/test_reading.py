"""Specs of other tools become ours, with the same ranges; what is lost is named."""

import functools
import json
import math
import operator
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hposvc import spec as specs
from hposvc.drafts.imported import determined, reading, wandb
from hposvc.errors import SpecError
from hposvc.spec.parsing.document import from_mapping, read_text

PAGE = Path(__file__).parents[4] / "docs" / "import.md"
SWEEP = {"method": "random", "program": "t.py", "metric": {"name": "loss"}, "run_cap": 5}
EXPERIMENT = {
    "name": "a study",
    "entrypoint": "python3 train.py --data d",
    "searcher": {"name": "random", "metric": "loss", "max_trials": 8, "max_length": {"epochs": 9}},
}


def wandb_domain(method="random", **domain):
    made = wandb.convert(from_mapping({**SWEEP, "method": method, "parameters": {"x": domain}}))
    return checked(made)["parameters"]["x"], [str(each) for each in made.lost]


def determined_domain(name="random", **domain):
    searcher = {**EXPERIMENT["searcher"], "name": name}
    data = {**EXPERIMENT, "searcher": searcher, "hyperparameters": {"x": domain}}
    return checked(determined.convert(from_mapping(data)))["parameters"]["x"]


def checked(made):
    """Return the spec as it reads back; hposvc accepts it."""
    document = read_text(made.text(), "spec")
    specs.load(document)
    return document.data


def test_the_page_shows_what_is_printed(tmp_path):
    given, printed = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "theirs.yaml"
    file.write_text(given)
    imported = reading.convert(file, None)
    assert imported.text == printed
    assert any(f"{file}:1:" in str(lost) and "hposvc.report" in str(lost) for lost in imported.lost)


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ({"value": 3}, 3),
        ({"distribution": "constant", "value": "a"}, "a"),
        ({"distribution": "categorical", "values": [1, "b"]}, {"values": [1, "b"]}),
        ({"min": 1, "max": 5}, {"min": 1, "max": 5, "type": "int"}),
        ({"min": 1.0, "max": 5.0}, {"min": 1.0, "max": 5.0}),
        (
            {"distribution": "q_uniform", "min": 1, "max": 63, "q": 8},
            {"min": 8, "max": 56, "step": 8, "type": "int"},
        ),
        ({"distribution": "beta", "a": 2, "b": 5}, {"min": 0.0, "max": 1.0}),
        (
            {"distribution": "normal", "mu": 1, "sigma": 2},
            {"min": -5.0, "max": 7.0, "normal": {"mean": 1.0, "deviation": 2.0}},
        ),
    ],
)
def test_a_parameter_of_wandb(domain, expected):
    assert wandb_domain(**domain)[0] == expected


@given(low=st.floats(-20, 3), width=st.floats(0.1, 10), inverse=st.booleans())
def test_logarithmic_ranges_of_wandb_have_the_same_ends(low, width, inverse):
    high = low + width
    name = "inv_log_uniform" if inverse else "log_uniform"
    domain, _ = wandb_domain(distribution=name, min=low, max=high)
    ends = (-high, -low) if inverse else (low, high)
    assert domain == {"min": math.exp(ends[0]), "max": math.exp(ends[1]), "log": True}


def test_a_grid_of_wandb_tries_each_whole_number():
    assert wandb_domain("grid", min=2, max=4)[0] == {"values": [2, 3, 4]}


def test_mappings_of_wandb_are_tied():
    domain = {"values": [{"layers": 2, "width": 64}, {"layers": 8, "width": 512}]}
    found, lost = wandb_domain(**domain)
    assert found == {"values": [{"x.layers": 2, "x.width": 64}, {"x.layers": 8, "x.width": 512}]}
    assert any("a command gets --x.NAME=VALUE" in each for each in lost)


@pytest.mark.parametrize("values", [[{"a": 1}, {"a": 1}], [{"a": 1}, 2], [{"a": 1}, {"b": 1}]])
def test_mappings_of_wandb_that_cannot_be_tied_are_named(values):
    made = wandb.convert(from_mapping({**SWEEP, "parameters": {"x": {"values": values}}}))
    assert any("values[0]: a value can't be a mapping" in f"{each}" for each in made.lost)


def test_what_wandb_loses_is_named():
    _, lost = wandb_domain(distribution="beta", a=2, b=5)
    assert any("beta becomes a range from 0 to 1" in each for each in lost)
    nested = {"opt": {"parameters": {"lr": {"min": 0.1, "max": 0.2}, "betas": {"value": [1, 2]}}}}
    early = {"type": "hyperband", "min_iter": 3}
    data = {**SWEEP, "parameters": nested, "early_terminate": early, "entity": "us"}
    made = wandb.convert(
        from_mapping({**data, "command": ["${env}", "sh", "${envvar:X}", "${args}"]})
    )
    spec = checked(made)
    betas = {"values": [[1, 2]]}
    assert spec["parameters"] == {"opt.lr": {"min": 0.1, "max": 0.2}, "opt.betas": betas}
    assert spec["command"] == ["sh", "${args}"]
    text = "\n".join(map(str, made.lost))
    for part in ("entity", "command[2]", "early_terminate"):
        assert part in text


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ({"type": "const", "val": 2}, 2),
        ({"type": "categorical", "vals": ["a", "b"]}, {"values": ["a", "b"]}),
        ({"type": "int", "minval": 1, "maxval": 9}, {"min": 1, "max": 9, "type": "int"}),
        ({"type": "double", "minval": 0, "maxval": 1}, {"min": 0.0, "max": 1.0}),
        (
            {"type": "log", "base": 2, "minval": -4, "maxval": 3},
            {"min": 0.0625, "max": 8.0, "log": True},
        ),
    ],
)
def test_a_hyperparameter_of_determined(domain, expected):
    assert determined_domain(**domain) == expected


def test_a_grid_of_determined_has_the_same_values():
    assert determined_domain("grid", type="int", minval=0, maxval=2, count=100) == {
        "values": [0, 1, 2]
    }
    values = determined_domain("grid", type="log", minval=-2, maxval=0, count=3, base=10)
    assert values == {"values": [0.01, 0.1, 1.0]}


def test_mappings_of_determined_are_tied():
    found = determined_domain(type="categorical", vals=[{"n": 2, "w": 64}, {"n": 8, "w": 512}])
    assert found == {"values": [{"x.n": 2, "x.w": 64}, {"x.n": 8, "x.w": 512}]}


@pytest.mark.parametrize(
    ("domain", "place", "message"),
    [
        ({"tpye": "int", "minval": 1, "maxval": 3}, "6:", "x.tpye: .*did you mean 'type'"),
        ({"Type": "categorical", "vals": [1, 2]}, "6:", "x.Type: .*did you mean 'type'"),
        ({"minval": 1, "maxval": 3}, "5:", "x: has no type; write type: int, double or log"),
    ],
)
def test_a_hyperparameter_of_determined_without_a_type_is_named(domain, place, message):
    given = {"searcher": EXPERIMENT["searcher"], "hyperparameters": {"x": domain}}
    text = json.dumps({"hyperparameters": given["hyperparameters"]}, indent=1)
    made = determined.convert(read_text(f"\n\n{text}", "theirs"))
    assert made.spec["parameters"] == {}
    assert any(re.match(rf"theirs:{place}.*{message}", f"{each}") for each in made.lost)


def test_an_experiment_of_determined():
    searcher = {"name": "adaptive_asha", "metric": "acc", "smaller_is_better": False}
    searcher |= {"max_trials": 30, "max_length": {"batches": 1024}, "mode": "aggressive"}
    made = determined.convert(
        from_mapping(
            {
                **EXPERIMENT,
                "entrypoint": "python3 -m determined.launch.torch_distributed -- python3 t.py",
                "searcher": searcher,
                "hyperparameters": {"opt": {"lr": {"type": "double", "minval": 0, "maxval": 1}}},
                "resources": {"slots_per_trial": 2},
                "environment": {"environment_variables": ["A=1=2"], "image": "x"},
                "max_restarts": 2,
            }
        )
    )
    spec = checked(made)
    assert spec["name"] == "a-study"
    assert spec["metric"] == {"name": "acc", "goal": "maximize"}
    assert spec["command"] == ["python3", "t.py", "${args}"]
    assert spec["fidelity"] == {"unit": "batches", "min": 4, "max": 1024}
    assert spec["scheduler"] == {"type": "asha", "eta": 4}
    assert spec["trials"] == {"max": 30, "parallel": 16}
    assert spec["resources"] == {"workers": 2, "gpus_per_worker": 1}
    assert spec["environment"] == {"env": {"A": "1=2"}}
    assert spec["failure"] == {"user_retries": 2}
    assert list(spec["parameters"]) == ["opt.lr"]
    assert {"searcher.mode", "environment.image"} <= {
        ".".join(map(str, each.path)) for each in made.lost
    }


def test_what_belongs_to_no_tool_is_refused(tmp_path):
    file = tmp_path / "other.yaml"
    file.write_text("a: 1\n")
    with pytest.raises(SpecError, match="--from"):
        reading.convert(file, None)
    with pytest.raises(SpecError, match="wandb"):
        reading.convert(file, "wandbb")
    file.write_text(
        "method: random\nparameters: {}\nearly_terminate: {type: hyperband, eta: two}\n"
    )
    with pytest.raises(SpecError, match=r"yaml:3:1.*early_terminate.*correct it first"):
        reading.convert(file, None)


WANDB = {
    **SWEEP,
    "name": "us",
    "command": ["${env}", "${interpreter}", "${program}", "--fast", "${args}"],
    "parameters": {
        "lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 0.1},
        "depth": {"values": [1, 2], "probabilities": [0.5, 0.5]},
        "width": {"distribution": "q_normal", "mu": 64, "sigma": 8, "q": 8},
        "opt": {"parameters": {"momentum": {"min": 0.1, "max": 0.9}}},
    },
    "early_terminate": {"type": "hyperband", "max_iter": 27, "s": 2, "eta": 3},
}
DETERMINED = {
    **EXPERIMENT,
    "searcher": {
        "name": "adaptive_asha",
        "metric": "loss",
        "max_trials": 8,
        "max_length": 9,
        "divisor": 3,
    },
    "hyperparameters": {
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        "opt": {"name": {"type": "categorical", "vals": ["a", "b"]}},
        "layers": {"type": "int", "minval": 1, "maxval": 4},
        "seed": {"type": "const", "val": 1},
    },
    "resources": {"slots_per_trial": 2},
    "environment": {"environment_variables": ["A=1"]},
    "max_restarts": 2,
}
KATIB = {
    "apiVersion": "kubeflow.org/v1beta1",
    "kind": "Experiment",
    "metadata": {"name": "us"},
    "spec": {
        "objective": {"type": "maximize", "objectiveMetricName": "acc", "goal": 0.9},
        "algorithm": {"algorithmName": "tpe"},
        "maxTrialCount": 12,
        "parameters": [
            {
                "name": "lr",
                "parameterType": "double",
                "feasibleSpace": {"min": "0.01", "max": "0.1", "distribution": "logUniform"},
            },
            {
                "name": "opt",
                "parameterType": "categorical",
                "feasibleSpace": {"list": ["a", "b"]},
            },
        ],
        "trialTemplate": {
            "primaryContainerName": "main",
            "trialParameters": [{"name": "rate", "reference": "lr"}],
            "trialSpec": {
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "main",
                                    "command": ["python", "--lr=${trialParameters.rate}"],
                                }
                            ]
                        }
                    }
                }
            },
        },
    },
}
SPECS = {"wandb": WANDB, "determined": DETERMINED, "katib": KATIB}


def places(value, path=()):
    """Yield the path of each value in a document, the outer ones first."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*path, key))


def changed(value, path, new):
    """Return a copy of the document with another value, or another name of its key, at a path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def lines(document):
    """Write the document as YAML with a line for each value."""
    return json.dumps(document, indent=1)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 10**6)
    | st.floats()
    | st.text("a${}'\" ", max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=3,
)


@given(st.sampled_from([*SPECS]), st.data())
def test_whatever_stands_in_a_spec_an_error_has_its_line(tool, data):
    path = data.draw(st.sampled_from([*places(SPECS[tool])]))
    document = read_text(lines(changed(SPECS[tool], path, data.draw(ANYTHING))), "theirs")
    problems = ()
    try:
        problems = reading.TOOLS[tool].convert(document).lost
    except SpecError as error:
        problems = error.problems
    assert all(re.match(r"theirs:\d+:\d+", each.place) for each in problems)


@pytest.mark.parametrize(
    ("tool", "path"),
    [(tool, path) for tool, given in SPECS.items() for path in places(given)],
    ids=str,
)
def test_no_unknown_key_vanishes(tool, path):
    """A key beside each key of a spec is named with its line, unless its section is free text."""
    document = SPECS[tool]
    for part in path[:-1]:
        document = document[part]
    if not isinstance(document, dict):
        return
    if path[:-1] and path[-2] in {"parameters", "hyperparameters", "opt"}:  # their keys are names
        return
    wrong = f"{path[-1]}x"
    text = lines(changed(SPECS[tool], path[:-1], {**document, wrong: 1}))
    made = reading.TOOLS[tool].convert(read_text(text, "theirs"))
    (lost,) = (each for each in made.lost if each.path == (*path[:-1], wrong))
    line = next(at for at, each in enumerate(text.splitlines(), 1) if f'"{wrong}"' in each)
    assert lost.place.startswith(f"theirs:{line}:")
    assert (f"did you mean {path[-1]!r}?" in lost.message) is (len(path[-1]) > 1)


def convert_with(tool, given):
    return reading.TOOLS[tool].convert(read_text(lines(given), "theirs"))


@pytest.mark.parametrize(
    ("tool", "path"),
    [
        (tool, path)
        for tool, given in SPECS.items()
        for path in places(given)
        if isinstance(functools.reduce(operator.getitem, path, given), dict | list)
    ],
    ids=str,
)
def test_a_number_in_place_of_a_section_is_named(tool, path):
    before = {str(each.message) for each in convert_with(tool, SPECS[tool]).lost}
    try:
        made = convert_with(tool, changed(SPECS[tool], path, 7))
        problems = made.lost
        if 7 in made.spec["parameters"].values():
            return  # a constant
    except SpecError as error:
        problems = error.problems
    said = [each for each in problems if each.message not in before or each.path == path]
    assert any(each.path and each.path == path[: len(each.path)] for each in said)


def test_what_a_searcher_or_a_strategy_does_not_use_is_named():
    searcher = {**DETERMINED["searcher"], "name": "random"}
    ranged = {"x": {"type": "int", "minval": 1, "maxval": 3, "count": 2}}
    given = {**DETERMINED, "searcher": searcher, "hyperparameters": ranged}
    lost = {each.path for each in convert_with("determined", given).lost}
    assert {("searcher", "divisor"), ("hyperparameters", "x", "count")} <= lost


def test_a_file_whose_method_is_a_list_belongs_to_no_tool(tmp_path):
    file = tmp_path / "theirs.yaml"
    file.write_text("method: [random]\nparameters: {}\n")
    with pytest.raises(SpecError, match="--from"):
        reading.convert(file, None)


def test_parameters_of_wandb_that_are_a_list_have_their_line(tmp_path):
    file = tmp_path / "theirs.yaml"
    file.write_text("method: random\nrun_cap: 3\nparameters:\n  - {min: 1, max: 2}\n")
    imported = reading.convert(file, None)
    assert any("theirs.yaml:3:1: parameters: is a list" in str(each) for each in imported.lost)
    assert any("parameters" in str(each) for each in imported.wrong)


def test_a_misspelt_macro_of_wandb_is_named():
    made = wandb.convert(from_mapping({**SWEEP, "command": ["python", "${progam}", "${args}"]}))
    assert made.spec["command"] == ["python", "${args}"]
    assert any("${progam}" in str(each) for each in made.lost)


def test_early_termination_by_its_first_step_names_what_it_lacks():
    data = {**SWEEP, "early_terminate": {"type": "hyperband", "min_iter": 3, "etta": 2}}
    lost = "\n".join(map(str, wandb.convert(from_mapping(data)).lost))
    assert "fidelity: {min: 3, max: STEPS}" in lost
    assert "did you mean 'eta'?" in lost
