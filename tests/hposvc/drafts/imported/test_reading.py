"""Specs of other tools become ours, with the same ranges; what is lost is named."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hposvc import spec as specs
from hposvc.drafts.imported import determined, reading, wandb
from hposvc.errors import SpecError
from hposvc.spec.parsing.document import from_mapping, read_text

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "coming-from.md"
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


def test_mappings_of_wandb_are_tied():
    domain = {"values": [{"layers": 2, "width": 64}, {"layers": 8, "width": 512}]}
    found, lost = wandb_domain(**domain)
    assert found == {"values": [{"x.layers": 2, "x.width": 64}, {"x.layers": 8, "x.width": 512}]}
    assert any("a command gets --x.NAME=VALUE" in each for each in lost)


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
            {"name": "opt", "parameterType": "categorical", "feasibleSpace": {"list": ["a", "b"]}},
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
