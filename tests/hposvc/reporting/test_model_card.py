"""The best checkpoint, handed on: weights that others read, and a card that says what they are."""

import json
import re

import pytest
import torch
from ruamel.yaml import YAML
from safetensors.torch import load_file

import hposvc
from hposvc import Sweep, api
from hposvc.errors import SpecError
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.model_card import hand_on
from trainables.zoo.digits import DigitsCNN

COMMON = {"engine": "local", "tracking": {"send_to": []}}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with a sweep of a Task, and one of a function that saves a file of its own."""
    home = tmp_path_factory.mktemp("home")
    Sweep(
        DigitsCNN,
        name="digits",
        metric={"name": "val/accuracy", "goal": "maximize"},
        fidelity={"unit": "epoch", "max": 1},
        parameters={"lr": 0.01, "width": 4, "layers": {"values": [1, 2]}},
        description="Which depth reads digits best?",
        search="grid",
        trials={"max": 2},
        **COMMON,
    ).run(home, progress=False)

    def train(config):
        folder = home / f"draft-{config['x']}"
        folder.mkdir(exist_ok=True)
        (folder / "model.txt").write_text(f"{config['x']}")
        hposvc.report({"loss": config["x"]}, checkpoint=folder)

    Sweep(
        train,
        name="function",
        metric={"name": "loss", "goal": "minimize"},
        fidelity={"unit": "step", "max": 1},
        parameters={"x": {"values": [3, 2]}},
        search="grid",
        trials={"max": 2},
        **COMMON,
    ).run(home, progress=False)
    return home


def opened(home, sweep):
    return OpenSweep(api.Sweeps.open(home), sweep)


def test_weights_of_a_task_are_read_without_this_package(home, tmp_path):
    names = hand_on(opened(home, "digits"), str(tmp_path / "model"))
    assert names == ["README.md", "config.json", "model.safetensors"]
    best = hposvc.load("digits", home).best()
    assert json.loads((tmp_path / "model" / "config.json").read_text()) == dict(best.params)
    weights = load_file(tmp_path / "model" / "model.safetensors")
    model = DigitsCNN(**best.params).build_model()
    model.load_state_dict(weights)
    assert all(
        torch.isfinite(value).all() for value in weights.values() if value.is_floating_point()
    )


def test_the_card_says_what_a_hub_and_a_reader_want(home, tmp_path):
    hand_on(opened(home, "digits"), str(tmp_path))
    _, front, text = (tmp_path / "README.md").read_text().split("---\n", 2)
    (entry,) = YAML(typ="safe", pure=True).load(front)["model-index"]
    best = hposvc.load("digits", home).best()
    assert entry["results"][0]["metrics"] == [
        {"type": "val/accuracy", "value": best.value, "name": "val/accuracy"}
    ]
    assert "Which depth reads digits best?" in text
    assert re.search(rf"hposvc repro digits-\w+ {best.trial}", text)


def test_files_of_other_checkpoints_are_copied(home, tmp_path):
    names = hand_on(opened(home, "function"), str(tmp_path / "model"))
    assert names == ["README.md", "config.json", "model.txt"]
    assert (tmp_path / "model" / "model.txt").read_text() == "2"


def test_what_is_in_the_folder_stays(home, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(SpecError, match="not an empty folder; give another"):
        hand_on(opened(home, "function"), str(tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
