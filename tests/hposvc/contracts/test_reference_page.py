"""docs/reference has what the code accepts and prints, and nothing else."""

import re
from dataclasses import fields
from typing import get_args

import pages
import pytest
from reference_page import TEXT, braced, codes, rows, spec_keys, verb_documents
from ruamel.yaml import YAML

import hposvc
from hposvc import errors
from hposvc.analysis.memory import StrategyForecast
from hposvc.analysis.model_size import BestUse
from hposvc.analysis.scaling_law import Law
from hposvc.analysis.verdict import EXIT_CODES
from hposvc.analysis.worker_scaling import ScalingSpeed
from hposvc.estimate import Estimate
from hposvc.spec import dump, thaw
from hposvc.spec.parsing.unsupported import PLANNED
from hposvc.spec.registry import SCHEDULERS, resolve
from hposvc.state import summary
from hposvc.state.receipt import RequestReceipt
from hposvc.state.sweep import SweepPhase
from hposvc.state.trial import TrialPhase
from hposvc.tracking.answers import Promotion
from hposvc.verbs.doctor import Check
from hposvc.verbs.garbage import Garbage
from hposvc.verbs.notify import Sent
from searchers.methods import METHODS, load_method
from trainables.memory_estimation.forecast import Forecast, Variant
from trainables.training import Training

# Every section that is left out of a spec by default, with its required keys.
FULL = {
    "parameters": {"lr": {"min": 1e-5, "max": 0.1}},
    "metric": {"name": "loss", "goal": "minimize"},
    "collect": {"stdout": "(?P<loss>.*)"},
    "serve": {"command": ["a"], "ready": "http://a:${HPOSVC_PORT}/", "load": ["b"]},
    "fidelity": {"max": 9},
    "scale": {"over": "width", "sizes": [64, 128]},
    "trials": {"seeds": {"max": 5}},
    "resources": {"market": {"first": "spot"}},
    "scheduler": {"type": "fifo", "plateau": {"patience": 5}},
    "stop": {
        "plateau": {"trials": 30},
        "worth": {"gain": 0.001, "trials": 10},
        "max_failed": {},
    },
    "baseline": {"params": {"lr": 0.01}},
    "finalists": {},
    "register": {"model": "digits"},
}
# Mappings with names of users' own, and the options of training, which have a table of their own.
LEAVES = {"parameters", "training", "tags", "resources.custom", "resources.labels"}
LEAVES |= {"baseline.params", "finalists.set", "chosen"}
LEAVES |= {
    "driver.custom",
    "driver.labels",
    "environment.env",
    "environment.secrets",
    "environment.runtime_env",
    "datasets",
}
KEYS = spec_keys()
WITH_DEFAULT = [key for key, (_, default) in KEYS.items() if default.startswith("`")]


def names_of(cls):
    return {field.name for field in fields(cls)}


def flat(data, path=""):
    """Yield the dotted keys of a frozen spec, with their values."""
    for key, value in data.items():
        dotted = f"{path}{key}"
        if isinstance(value, dict) and dotted not in LEAVES:
            yield from flat(value, f"{dotted}.")
        else:
            yield dotted, value


def test_the_page_has_every_key_and_no_other():
    accepted = dict(flat(dump(thaw(FULL)))).keys() | {"scheduler.plateau.delta", "command"}
    assert KEYS.keys() == accepted


@pytest.mark.parametrize("key", WITH_DEFAULT)
def test_a_default_of_the_page_is_that_of_the_code(key):
    default = codes(KEYS[key][1])[0]
    if default in KEYS:  # that of another key
        return
    data = dump(thaw(FULL))
    *sections, name = key.split(".")
    target = data
    for each in sections:
        target = target[each]
    target[name] = YAML(typ="safe").load(default)
    if key == "scheduler.plateau.delta":
        assert thaw(data).plateau == thaw(FULL).plateau
    else:
        assert thaw(data) == thaw(FULL)


def test_a_key_without_a_default_on_the_page_has_none_in_the_code():
    data = dict(flat(dump(thaw({key: FULL[key] for key in ("parameters", "metric")}))))
    without = [key for key, (_, default) in KEYS.items() if not default and key in data]
    without.remove("training")  # its page has its defaults
    assert len(without) > 30
    assert [(key, data[key]) for key in without if data[key] not in (None, "", [], {})] == []


def test_a_required_key_of_the_page_is_required():
    required = {key for key, (_, default) in KEYS.items() if default == "required"}
    for key in required - {"parameters"}:
        data = dump(thaw(FULL))
        *sections, name = key.split(".")
        target = data
        for each in sections:
            target = target[each]
        del target[name]
        with pytest.raises(ValueError, match=rf"(?s){name}.*is missing"):
            assert thaw(data).plateau is None


def test_the_page_has_every_search_method_and_scheduler_with_all_options():
    methods = {name: load_method(name) for name in METHODS}
    own_page = {"gp"}  # explanation/gp.md has its options
    schedulers = {name: resolve(path) for name, path in SCHEDULERS.classes.items()}
    for heading, classes in (("search method", methods), ("scheduler", schedulers)):
        listed = {}
        for names, options, *_ in rows(heading, "options (defaults)"):
            listed |= dict.fromkeys(codes(names), options)
        assert listed.keys() == classes.keys()
        for name, cls in classes.items():
            for option in () if name in own_page else fields(cls):
                assert f"`{option.name}`" in listed[name], (name, option.name)
                if isinstance(option.default, int | float | str):
                    default = str(option.default).lower()
                    assert f"`{option.name}` ({default}" in listed[name].replace("(`", "("), name


def test_the_page_has_no_planned_key():
    for feature in PLANNED:
        if not feature.words:
            assert not re.search(rf"`{feature.key}\b", TEXT)
        else:
            assert not {*feature.words} & {*codes(KEYS[feature.key][0])}, feature.key


def test_the_page_has_every_exit_code():
    codes_of_the_page = {int(code) for code, *_ in rows("code", "means")}
    classes = [each for each in vars(errors).values() if hasattr(each, "exit_code")]
    every = {errors.BUG, errors.NO_VALUE, *(c.exit_code for c in classes), *EXIT_CODES.values()}
    assert codes_of_the_page == every


def test_the_page_has_the_fields_of_json_documents_that_classes_write():
    cells = verb_documents()
    classes = {
        "gc": Garbage,
        "doctor": Check,
        "promote": Promotion,
        "notify": Sent,
    }
    added = {"gc": {"freed"}}
    for verb, cls in classes.items():
        assert names_of(cls) | added.get(verb, set()) == braced(cells[verb]), verb
    assert ScalingSpeed(1, 8, 8).plain().keys() == braced(cells["scaling"])
    refused = StrategyForecast(Variant("ddp", Training(strategy="ddp"), 2), None).plain(None)
    assert names_of(Forecast) | refused.keys() == braced(cells["memory"], 1)
    assert names_of(Law) == braced(cells["laws"], 1)
    use = BestUse(1e9, weights=Estimate(1.0), samples=Estimate(1.0))
    assert use.data().keys() == braced(cells["laws"], 2)
    assert names_of(RequestReceipt) | {"verb", "trial"} == braced(cells["stop"])


def test_the_page_has_every_state():
    listed = {codes(row[0])[0] for row in rows("state", "of a sweep", "of a trial")}
    assert listed == {*get_args(SweepPhase), *get_args(TrialPhase), summary.INTERRUPTED}


def test_the_page_of_python_has_all_public_names_and_fields_of_a_best_trial():
    assert all(f"hposvc.{name}" in TEXT for name in dir(hposvc))
    (best,) = re.findall(r"`hposvc.Best`, has (.*): \[", TEXT)
    assert {*codes(best)} == names_of(hposvc.Best)


@pytest.mark.parametrize("block", pages.blocks("reference/python.md"))
def test_a_python_block_of_the_page_compiles_and_those_without_a_sweep_run(block):
    code = compile(block, "python.md", "exec")
    if "Sweep.load" not in block:
        exec(code, {"__name__": "page"})
