"""Absurd numbers in a spec: each numeric key refuses them, or nothing is as large as they are."""

import copy
import math
from dataclasses import fields

import pytest

from hposvc.errors import SpecError
from hposvc.spec import dump, json_schema, load, restore
from hposvc.spec.registry import SCHEDULERS, SEARCHERS, resolve

SCHEMA = json_schema.build({})
SPEC = {
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
    "metric": {"name": "loss", "goal": "minimize"},
    "engine": {"type": "simulate", "curve": "simulated_sweeps:smooth"},
    "trials": {"max": 4},
    "fidelity": {"max": 9},
}
COMPARED = {  # numbers that are compared with others, or passed on, and size nothing
    *("metric.target", "metrics.0.target", "stop.plateau.delta", "stop.worth.gain"),
    "training.clip",
    *("register.gate", "register.gate.improvement", "initial.0.x", "baseline.params.x"),
    "finalists.set.x",
    *("environment.env.x", "tags.x"),
}
OPTIONS = {  # that a plug-in needs
    "pbt": {"interval": 3, "mutate": {"x": 1.2}},
    "pb2": {"interval": 3, "mutate": {"x": {"min": 0.0, "max": 1.0}}},
    "fire": {"interval": 3, "mutate": {"x": 1.2}},
}
BESIDE = {  # what must stand beside a key
    "resources.workers.min": {"workers": {"max": 8}},
    "resources.workers.max": {"workers": {"min": 1}},
    "resources.market.after": {"market": {"first": "spot"}},
    "warm_start.top": {"from": "auto"},
    "scale.from": {"over": "width", "to": 4},
    "scale.to": {"over": "width", "from": 1},
    "scale.tokens_per_weight": {"over": "x"},
    "scale.at_target": {"over": "x"},
    "trials.seeds.min": {"max": 4, "seeds": {"max": 3}},
    "serve.start_timeout": {"command": ["a"], "load": ["b"], "ready": "http://a:${HPOSVC_PORT}/"},
    "stop.worth.gain": {"worth": {"trials": 1}},
    "stop.worth.gpu_hours": {"worth": {"gain": 1.0}},
    "stop.worth.cpu_hours": {"worth": {"gain": 1.0}},
    "stop.worth.energy_kwh": {"worth": {"gain": 1.0}},
    "stop.worth.trials": {"worth": {"gain": 1.0}},
    "metrics.0.target": {"name": "loss", "goal": "minimize"},
}
REFUSED = (10**30, 10**400, 1e30, 1e308, math.inf, math.nan)


def numeric_keys(part, path=(), inside=()):
    """Yield the path of each number in a schema; x is a key that the user names, 0 an entry."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        if name not in inside:
            yield from numeric_keys(SCHEMA["$defs"][name], path, (*inside, name))
        return
    kinds = part.get("type", ())
    if {"integer", "number"} & {*([kinds] if isinstance(kinds, str) else kinds)}:
        yield path
    for branch in (*part.get("anyOf", ()), part.get("items"), part.get("additionalProperties")):
        if isinstance(branch, dict):
            step = {"items": (0,), "additionalProperties": ("x",)}
            here = next((step[key] for key in step if part.get(key) is branch), ())
            yield from numeric_keys(branch, (*path, *here), inside)
    for name, branch in part.get("properties", {}).items():
        if path or name not in ("parameters", "search", "scheduler", "version"):
            yield from numeric_keys(branch, (*path, name), inside)


# Of `chosen` what is not the value of its key is dropped.
KEYS = sorted({".".join(map(str, path)) for path in numeric_keys(SCHEMA)} - {"chosen.x"})


def spec_with(key, value):
    spec = copy.deepcopy(SPEC)
    at, path = spec, [int(part) if part.isdigit() else part for part in key.split(".")]
    if len(path) > 1 and isinstance(path[1], str):
        spec[path[0]] = copy.deepcopy({**spec.get(path[0], {}), **BESIDE.get(key, {})})
    for part, following in zip(path, [*path[1:], None], strict=True):
        if following is None:
            at[part] = value
        elif isinstance(part, int):
            at.append({})
            at = at[part]
        else:
            at = at.setdefault(part, [] if isinstance(following, int) else {})
    return spec


def message_of(spec):
    with pytest.raises(SpecError) as refused:
        load(spec)
    return str(refused.value)


def test_the_schema_shows_the_numbers_of_all_sections():
    assert {"trials.max", "finalists.seeds", "failure.grace", "resources.workers"} <= {*KEYS}
    assert {"resources.custom.x", "price.gpu_hour", "checkpoints.every", "seed"} <= {*KEYS}
    assert len(KEYS) > 55


@pytest.mark.parametrize("key", [key for key in KEYS if key not in COMPARED])
def test_an_absurd_number_is_refused_at_its_key(key):
    for value in REFUSED:
        message = message_of(spec_with(key, value))
        assert key in message or f"{key.rpartition('.')[0]}: " in message


@pytest.mark.parametrize("key", sorted(COMPARED & {*KEYS}))
def test_numbers_that_are_only_compared_are_finite(key):
    for value in (math.inf, math.nan, 10**400):
        message = message_of(spec_with(key, value))
        assert key.partition(".")[0] in message
        assert "finite" in message or "float" in message


def options_of(kind, plain):
    for name, path in kind.classes.items():
        for field in fields(resolve(path)):
            if "int" in str(field.type) or "float" in str(field.type):
                yield plain, name, field.name


@pytest.mark.parametrize(
    ("section", "plug_in", "option"),
    [*options_of(SEARCHERS, "search"), *options_of(SCHEDULERS, "scheduler")],
)
def test_an_absurd_number_of_a_plug_in_is_refused(section, plug_in, option):
    name = {"search": "method", "scheduler": "type"}[section]
    for value in (10**30, 1e30, math.inf):
        given = {**OPTIONS.get(plug_in, {}), option: value}
        spec = {**SPEC, section: {name: plug_in, **given}}
        assert option in message_of(spec)


@pytest.mark.parametrize("scheduler", [{"type": "median"}, {"type": "pbt", **OPTIONS["pbt"]}])
def test_a_trial_that_would_be_judged_too_often_is_refused(scheduler):
    spec = {**SPEC, "fidelity": {"max": 10**12}, "scheduler": {**scheduler, "interval": 3}}
    expected = "scheduler.interval: is 3, so a trial is judged 333,333,333,333 times; "
    assert f"{expected}give 100,000,000 or more" in message_of(spec)
    load({**spec, "scheduler": {**scheduler, "interval": 10**8}})


def test_a_recorded_spec_keeps_its_numbers():
    frozen = dump(load({**SPEC, "baseline": {"params": {"x": 0.5}}}))
    frozen["baseline"]["seeds"] = frozen["trials"]["max"] = 10**12
    assert restore(frozen).baseline.seeds == 10**12
