"""Experiments of NNI become specs of ours."""

import json
from collections import defaultdict

import pytest

from hposvc import spec as specs
from hposvc.drafts.imported import reading
from hposvc.spec.parsing.document import read_text

EXPERIMENT = """\
experimentName: digits
trialCommand: python3 train.py --data "a b"
trialConcurrency: 2
trialGpuNumber: 1
maxTrialNumber: 12
maxExperimentDuration: 2h
trialCodeDirectory: .
tuner: {name: TPE, classArgs: {optimize_mode: maximize, seed: 3}}
assessor: {name: Medianstop, classArgs: {start_step: 5}}
trainingService: {platform: local}
searchSpace:
  lr: {_type: loguniform, _value: [0.0001, 0.1]}
  units: {_type: randint, _value: [8, 65]}
  drop: {_type: quniform, _value: [0.1, 0.5, 0.1]}
  noise: {_type: normal, _value: [0, 1]}
  odd: {_type: ordinal, _value: [1]}
  layer:
    _type: choice
    _value:
      - {_name: none}
      - {_name: conv, kernel: {_type: choice, _value: [3, 5]}}
  size: {_type: choice, _value: [{n: 2, w: 64}, {n: 8, w: 512}]}
"""


def convert(file, text):
    file.write_text(text)
    imported = reading.convert(file, None)
    document = read_text(imported.text, "spec")
    specs.load(document)
    lost = defaultdict(str)
    for each in imported.lost:
        lost[each.place.split(":")[1]] += f"{each}\n"
    return document.data, lost


def test_an_experiment_of_nni(tmp_path):
    spec, lost = convert(tmp_path / "nni.yaml", EXPERIMENT)
    assert spec["parameters"] == {
        "lr": {"min": 0.0001, "max": 0.1, "log": True},
        "units": {"min": 8, "max": 64, "type": "int"},
        "drop": {"min": 0.1, "max": 0.5, "step": 0.1, "type": "float"},
        "noise": {"min": -3.0, "max": 3.0, "normal": {"mean": 0.0, "deviation": 1.0}},
        "layer._name": {"values": ["none", "conv"]},
        "layer.kernel": {"values": [3, 5], "when": {"layer._name": "conv"}},
        "size": {"values": [{"size.n": 2, "size.w": 64}, {"size.n": 8, "size.w": 512}]},
    }
    assert spec["command"] == ["python3", "train.py", "--data", "a b", "${args}"]
    assert spec["metric"] == {"name": "loss", "goal": "maximize"}
    assert spec["trials"] == {"max": 12, "parallel": 2}
    assert spec["budget"] == {"wall": "2h"}
    assert spec["search"] == "tpe"
    assert "scheduler: median" in "".join(lost.values())
    assert spec["resources"] == {"gpus_per_worker": 1}
    for line, word in {
        "2": "get_next_parameter",
        "7": "trialCodeDirectory",
        "9": "classArgs",
        "10": "trainingService",
        "16": "ordinal",
        "17": "nested",
    }.items():
        assert word in lost[line]


def test_a_space_in_a_file_of_its_own(tmp_path):
    text = EXPERIMENT[: EXPERIMENT.index("searchSpace")] + "searchSpaceFile: space.json\n"
    space = {"lr": {"_type": "uniform", "_value": [0, 1]}, "x": {"_type": "uniform"}}
    (tmp_path / "space.json").write_text(json.dumps(space, indent=1))
    file = tmp_path / "nni.yaml"
    file.write_text(text)
    imported = reading.convert(file, None)
    assert read_text(imported.text, "spec").data["parameters"] == {"lr": {"min": 0.0, "max": 1.0}}
    assert any(each.place.startswith(f"{tmp_path / 'space.json'}:9:") for each in imported.lost)
    (tmp_path / "space.json").unlink()
    with pytest.raises(specs.SpecError, match=r"space\.json: cannot be read"):
        reading.convert(file, None)


@pytest.mark.parametrize(
    ("settings", "goal", "noted"),
    [
        ("{name: TPE}", "minimize", True),
        ("{name: Evolution, classArgs: {optimize_mode: maximise}}", "maximize", True),
        ("{name: GP}", "maximize", True),
        ("{name: TPE, classArgs: {optimize_mode: maximize}}", "maximize", False),
    ],
)
def test_a_tuner_has_the_direction_that_nni_gives_it(settings, goal, noted, tmp_path):
    given = "{name: TPE, classArgs: {optimize_mode: maximize, seed: 3}}"
    assert given in EXPERIMENT
    spec, lost = convert(tmp_path / "nni.yaml", EXPERIMENT.replace(given, settings))
    assert spec["metric"]["goal"] == goal
    assert (f"metric.goal is {goal}" in lost["8"]) is noted


@pytest.mark.parametrize(
    ("tuner", "search"),
    [("BOHB", "tpe"), ("Hyperband", "random"), ("SMAC", "gp"), ("PBTTuner", "auto")],
)
def test_a_tuner_becomes_a_search_method_that_there_is(tuner, search, tmp_path):
    given = EXPERIMENT.replace("{name: TPE,", f"{{name: {tuner},")
    spec, _ = convert(tmp_path / "nni.yaml", given)
    assert spec["search"] == search


def test_a_tuner_of_ones_own_is_no_tpe(tmp_path):
    given = EXPERIMENT.replace("{name: TPE,", "{className: own.Own, codeDirectory: .,")
    spec, lost = convert(tmp_path / "nni.yaml", given.replace("2h", "2H\nmaxTrialDuration: 90"))
    assert spec["search"] == "auto"
    assert "own.Own has no counterpart" in lost["9"]
    assert spec["seed"] == 3
    assert (spec["budget"], spec["failure"]) == ({"wall": "2h"}, {"timeout": 90})
