"""Names of options in earlier versions: new specs with them are refused, recorded sweeps are read.

If these fail, people look for an option in vain, or a sweep recorded before a renaming is lost.
"""

import json

import pytest

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.events import from_json
from trainables.earlier_names import OPTIONS
from trainables.load import training_of

SPEC = {
    "trainable": "my_code:Net",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}},
    "trials": {"max": 8},
}


@pytest.mark.parametrize(("earlier", "today"), OPTIONS.items())
def test_a_new_spec_with_an_earlier_name_is_told_todays(earlier, today):
    with pytest.raises(
        SpecError, match=rf"^spec: training\.{earlier}: is called {today} now; rename it"
    ):
        specs.load({**SPEC, "training": {earlier: 1}})
    with pytest.raises(SpecError, match=rf"^--set training\.{earlier}: is called {today} now"):
        specs.load(SPEC, {f"training.{earlier}": 1})
    searched = {**SPEC["parameters"], f"training.{earlier}": {"values": [1, 2]}}
    with pytest.raises(
        SpecError, match=rf"parameters\.training\.{earlier}: is called training\.{today} now"
    ):
        specs.load({**SPEC, "parameters": searched})


def test_a_recorded_spec_with_earlier_names_is_read():
    recorded = specs.dump(specs.load({**SPEC, "training": {"activation_checkpointing": 2}}))
    recorded["training"]["recompute"] = recorded["training"].pop("activation_checkpointing")
    assert specs.thaw(recorded).training.activation_checkpointing == 2


def test_a_recorded_sweep_that_searched_an_option_is_read_by_its_name_of_today():
    recorded = specs.dump(specs.load(SPEC))
    recorded["parameters"] |= {
        "training.recompute": {"values": [0, 1]},
        "training.clip": {"min": 0.1, "max": 1.0, "when": {"training.recompute": 1}},
    }
    recorded["initial"] = [{"training.recompute": 1}]
    recorded["constraints"] = ["training.recompute <= lr * 1e9"]
    spec = specs.thaw(recorded)
    assert set(spec.space) == {"lr", "training.activation_checkpointing", "training.clip"}
    assert spec.space["training.clip"].when == {"training.activation_checkpointing": (1,)}
    assert spec.initial == ({"training.activation_checkpointing": 1},)
    params = {"lr": 0.1, "training.recompute": 1}
    body = {"trial": "t0001", "params": params, "note": {}, "until": 1, "milestones": [1]}
    event = from_json("proposed", 0.0, json.dumps(body))
    assert event.params == {"lr": 0.1, "training.activation_checkpointing": 1}
    assert training_of(spec.training, event.params).activation_checkpointing == 1


def test_a_recorded_search_option_is_read_by_its_name_of_today():
    priors = {"lr": {"value": 1e-3}}
    recorded = specs.dump(specs.load({**SPEC, "search": {"method": "gp", "priors": priors}}))
    assert recorded["search"]["priors"] == priors
    recorded["search"]["beliefs"] = recorded["search"].pop("priors")
    assert specs.thaw(recorded).search.options == {"priors": priors}
    with pytest.raises(SpecError, match=r"search\.beliefs: is called priors now; rename it"):
        specs.load(recorded)


def test_a_recorded_process_group_is_read_in_words_of_today():
    recorded = specs.dump(specs.load(SPEC))
    del recorded["training"]["process_group"]
    recorded["training"]["init"] = "none"
    assert specs.thaw(recorded).training.process_group == "user"
    recorded["parameters"] |= {
        "training.init": {"values": ["ours", "none"]},
        "init": "ours",
    }
    space = specs.thaw(recorded).space
    assert space["training.process_group"].values == ("managed", "user")
    assert space["init"].value == "ours"
