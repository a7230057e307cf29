"""Presets: ready parameters with their sources, written out when a spec is read."""

from pathlib import Path

import pytest

from hposvc.errors import SpecError
from hposvc.spec import dump, load, presets, restore
from searchers import Choice, Constant, Float

SMALL = {
    "engine": {"type": "simulate", "curve": "math:sqrt"},
    "metric": {"name": "loss", "goal": "minimize"},
    "trials": {"max": 2},
}
NAMES = sorted({each.preset for each in presets.read()})


def space_of(**parameters):
    return dict(load({**SMALL, "parameters": parameters}).space)


@pytest.mark.parametrize("name", NAMES)
def test_each_preset_is_a_space_whose_ranges_have_sources(name):
    own = [each for each in presets.read() if each.preset == name]
    assert space_of(preset=name).keys() == {each.name for each in own}
    assert all(each.source and each.calls for each in own)


def test_keys_beside_a_preset_and_later_presets_win():
    space = space_of(preset=["adamw", "lora"], r=4, weight_decay={"min": 0.0, "max": 0.1})
    assert space["lr"] == Float(1e-5, 5e-4, log=True)  # lora's
    assert space["beta2"] == Choice((0.95, 0.98, 0.999), ordered=True)
    assert space["r"] == Constant(4)
    assert space["weight_decay"] == Float(0.0, 0.1)


def test_a_recorded_spec_has_plain_parameters(monkeypatch):
    spec = load({**SMALL, "parameters": {"preset": "ppo"}})
    frozen = dump(spec)
    monkeypatch.setattr(presets, "read", lambda: ())
    assert "preset" not in frozen["parameters"]
    assert load(frozen) == restore(frozen) == spec


def test_a_choice_of_that_name_is_a_parameter():
    assert space_of(preset={"values": ["slow", "fast"]}) == {"preset": Choice(("slow", "fast"))}


def test_names_in_a_group_and_of_the_command_line_are_presets_too():
    data = {**SMALL, "parameters": {"preset": "lora", "model": {"width": {"values": [1, 2]}}}}
    space = load(data, {"parameters.preset": "vllm"}).space
    assert {"model.width", "max_num_seqs"} <= space.keys()


@pytest.mark.parametrize("named", ["lorra", ["lora", "lorra"]])
def test_an_unknown_preset_names_the_nearest(named):
    with pytest.raises(SpecError, match=r"parameters.preset: there is no preset 'lorra'; did"):
        space_of(preset=named)


def test_the_wheel_has_them():
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert f'"spec/{presets.FILE.name}"' in project
