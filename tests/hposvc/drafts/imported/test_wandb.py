"""Each key that W&B documents for a sweep is imported or named, and its macros mean the same."""

import copy
import math

import pytest
from foreign_specs import PAGE, convert, fate, places, spec_of, written
from sweeps.config import schema_violations_from_proposed_config
from sweeps.config.schema import sweep_config_jsonschema as SCHEMA
from sweeps.params import PARAM_DEPRECATION_MAP, HyperParameter

from hposvc.spec import load as check_spec
from hposvc.spec.parsing.document import read_text
from trainables.programs.arguments import render

EVERYTHING = {
    "apiVersion": "1",
    "kind": "sweep",
    "name": "digits",
    "project": "vision",
    "entity": "us",
    "description": "how far it goes",
    "program": "fit.py",
    "command": ["${env}", "${interpreter}", "${program}", "--fast", "${args}"],
    "controller": {"type": "local"},
    "job": "us/vision/job:latest",
    "image_uri": "registry/image",
    "method": "bayes",
    "run_cap": 9,
    "metric": {
        "name": "acc",
        "goal": "maximize",
        "target": 0.9,
        "impute": "best",
        "impute_while_running": "latest",
    },
    "early_terminate": {"type": "hyperband", "max_iter": 27, "s": 2, "eta": 4, "strict": False},
    # Each kind of parameter is called as the schema calls its definition.
    "parameters": {
        "param_single_value": {"value": 3, "distribution": "constant"},
        "param_categorical": {"values": [1, 2], "distribution": "categorical"},
        "param_categorical_w_probabilities": {
            "values": [1, 2],
            "probabilities": [0.25, 0.75],
            "distribution": "categorical_w_probabilities",
        },
        "param_dict": {"parameters": {"inner": {"min": 1, "max": 3}}},
        "param_int_uniform": {"min": 1, "max": 8, "distribution": "int_uniform"},
        "param_uniform": {"min": 1, "max": 8, "distribution": "uniform"},
        "param_quniform": {"min": 0, "max": 8, "q": 2, "distribution": "q_uniform"},
        "param_loguniform": {"min": -3, "max": 0, "distribution": "log_uniform"},
        "param_loguniform_v2": {"min": 0.1, "max": 1, "distribution": "log_uniform_values"},
        "param_inv_loguniform": {"min": 0, "max": 3, "distribution": "inv_log_uniform"},
        "param_inv_loguniform_v2": {"min": 0.1, "max": 1, "distribution": "inv_log_uniform_values"},
        "param_qloguniform": {"min": 0, "max": 3, "q": 2, "distribution": "q_log_uniform"},
        "param_qloguniform_v2": {
            "min": 1,
            "max": 9,
            "q": 2,
            "distribution": "q_log_uniform_values",
        },
        "param_normal": {"mu": 1, "sigma": 2, "distribution": "normal"},
        "param_qnormal": {"mu": 8, "sigma": 2, "q": 2, "distribution": "q_normal"},
        "param_lognormal": {"mu": 1, "sigma": 2, "distribution": "log_normal"},
        "param_qlognormal": {"mu": 1, "sigma": 2, "q": 2, "distribution": "q_log_normal"},
        "param_beta": {"a": 2, "b": 5, "distribution": "beta"},
        "param_qbeta": {"a": 2, "b": 5, "q": 0.25, "distribution": "q_beta"},
    },
}
FIRST_STEP = {
    "method": "random",
    "early_terminate": {"type": "hyperband", "min_iter": 3},
    "parameters": {"param_uniform": EVERYTHING["parameters"]["param_uniform"]},
}
OWN = {
    "method": "custom",
    "metrics": [EVERYTHING["metric"], {"name": "loss", "goal": "minimize"}],
    "scheduler": {"engine": "optuna", "source": "own.py", "optimizer": "o", "search_space": "s"},
    "parameters": {"param_uniform": EVERYTHING["parameters"]["param_uniform"]},
}
RANGES = {
    kind: domain
    for kind, domain in EVERYTHING["parameters"].items()
    if {"min", "a", "mu"} & domain.keys()
}
PROBABILITIES = ("parameters", "x", "probabilities")
KEPT = ("method", "parameters", "run_cap")


def documented(schema=SCHEMA, path=()):
    """Yield the keys of the schema with their schemas; a parameter is called as its kind."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].split("/")[-1]]
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from documented(option, path)
    yield from documented(schema["items"], path) if "items" in schema else ()
    for name, inner in schema.get("properties", {}).items():
        yield (*path, name), inner
        if name != "parameters":
            yield from documented(inner, (*path, name))


def all_documented():
    yield from documented()
    for kind, schema in SCHEMA["definitions"].items():
        if kind.startswith("param_"):
            yield ("parameters", kind), schema
            yield from documented(schema, ("parameters", kind))


KEYS = {written(path): schema for path, schema in all_documented()}


def specs():
    """Return a spec for each key, with the key's path in it."""
    found = {}
    for given in (EVERYTHING, FIRST_STEP, OWN):
        for path in places(given):
            spec = copy.deepcopy(spec_of(path, given, KEPT))
            kind = path[1] if path[0] == "parameters" and len(path) > 1 else "param_uniform"
            spec["parameters"] = {kind: given["parameters"][kind]}
            found.setdefault(written(path), (spec, path))
    return found


SPECS = specs()


def violations(given):
    """Return what W&B's sweep engine has against a sweep, but that there is a newer word."""
    found = schema_violations_from_proposed_config(copy.deepcopy(given))
    return [each for each in found if not each.endswith((*PARAM_DEPRECATION_MAP.values(),))]


def test_there_is_a_spec_for_each_documented_key():
    inside = "parameters.param_dict.parameters.inner"
    assert {key for key in SPECS if not key.startswith(inside)} == KEYS.keys()
    assert f"W&B {len(KEYS)}" in PAGE.read_text()


@pytest.mark.parametrize("key", KEYS)
def test_a_documented_key_is_carried_over_or_named(key):
    spec, path = SPECS[key]
    assert violations(spec) == []
    schema = KEYS[key]
    if schema.get("enum") == [schema.get("default", ...)]:
        return  # it has this one value, with the key or without
    assert fate("wandb", spec, path) != "vanished"


@pytest.mark.parametrize("kind", RANGES)
def test_what_the_engine_of_wandb_draws_lies_in_our_range(kind):
    domain = RANGES[kind]
    ours = convert("wandb", {**FIRST_STEP, "parameters": {"x": domain}}).spec["parameters"]["x"]
    theirs = HyperParameter("x", domain)
    drawn = [theirs.ppf(share) for share in (0.002, 0.25, 0.5, 0.75, 0.998)]
    least, most = ours["min"], ours["max"]
    rounded = theirs.config.get("q", 0) / 2 if "step" not in ours else 0  # ours is not rounded
    assert all(least - rounded <= value <= most + rounded for value in drawn)
    assert all((value - least) % ours["step"] == 0 for value in drawn if "step" in ours)
    scale = math.log if ours.get("log") else float
    middle = (scale(least) + scale(most)) / 2
    if "beta" not in kind:  # whose shape is lost
        assert scale(theirs.ppf(0.5)) == pytest.approx(middle, rel=0.4)


def test_a_macro_gives_a_program_the_words_that_the_agent_of_wandb_gives_it():
    from wandb.sdk.launch.sweeps import utils as wandbs  # it takes seconds

    params = {"lr": 0.5, "fast": True, "slow": False, "optimizer": "sgd"}
    theirs = {"args": {name: {"value": value} for name, value in params.items()}}
    words = wandbs.create_sweep_command_args(theirs)
    macros = {name: made for name, made in words.items() if isinstance(made, list)}
    assert len(macros) > 2
    domains = {name: {"values": [value]} for name, value in params.items()}
    for macro, made in macros.items():
        command = ["${env}", "${interpreter}", "${program}", f"${{{macro}}}"]
        ours = convert("wandb", {**EVERYTHING, "command": command, "parameters": domains})
        assert render(ours.spec["command"], params, {}) == ["python", "fit.py", *made]


@pytest.mark.parametrize(
    ("method", "probabilities", "made", "lost"),
    [
        ("random", [0.25, 0.75], {"values": [1, 2], "weights": [0.25, 0.75]}, ""),
        ("random", [0.0, 1.0], 2, ""),
        ("random", [0.5], {"values": [1, 2]}, "equally likely"),
        ("random", [-1, 2], {"values": [1, 2]}, "weights[0]: is -1; give a number above 0"),
        ("grid", [0.25, 0.75], {"values": [1, 2]}, "equally likely"),
    ],
)
def test_probabilities_become_weights(method, probabilities, made, lost):
    domain = {"values": [1, 2], "probabilities": probabilities}
    imported = convert("wandb", {**FIRST_STEP, "method": method, "parameters": {"x": domain}})
    assert imported.spec["parameters"] == {"x": made}
    messages = [each.message for each in imported.lost if each.path == PROBABILITIES]
    assert len(messages) == bool(lost)
    assert lost in "".join(messages)


def test_a_script_that_reads_only_wandb_config_gets_no_arguments():
    command = ["${env}", "${interpreter}", "${program}"]
    given = {**FIRST_STEP, "program": "fit.py", "command": command}
    made = convert("wandb", {**given, "parameters": {"lr": {"min": 0.1, "max": 1.0}}})
    assert render(made.spec["command"], {"lr": 0.5}, {}) == [
        "env",
        'PARAMETERS={"lr": 0.5}',
        "python",
        "fit.py",
    ]
    check_spec(read_text(made.text(), "spec"))
