"""Katib Experiments become specs of ours."""

import pytest

from hposvc import spec as specs
from hposvc.drafts.imported import reading
from hposvc.errors import SpecError
from hposvc.spec.parsing.document import read_text

EXPERIMENT = """\
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: digits}
spec:
  objective: {type: maximize, goal: 0.9, objectiveMetricName: acc}
  algorithm: {algorithmName: tpe}
  maxTrialCount: 12
  maxFailedTrialCount: 3
  earlyStopping: {algorithmName: medianstop}
  parameters:
    - {name: lr, parameterType: double,
       feasibleSpace: {min: "0.01", max: "0.1", distribution: logUniform}}
    - {name: layers, parameterType: int, feasibleSpace: {min: "1", max: "9", step: "2"}}
    - {name: batch, parameterType: discrete, feasibleSpace: {list: ["32", "64"]}}
    - {name: opt, parameterType: categorical, feasibleSpace: {list: [sgd, "1"]}}
  trialTemplate:
    primaryContainerName: main
    trialParameters:
      - {name: rate, reference: lr}
      - {name: n, reference: layers}
      - {name: b, reference: batch}
      - {name: o, reference: opt}
    trialSpec:
      kind: Job
      spec: {template: {spec: {containers: [{name: main, image: x, command: [python, t.py,
        "--lr=${trialParameters.rate}", "-n${trialParameters.n}", "--b=${trialParameters.b}",
        "--o=${trialParameters.o}"]}]}}}
"""


def test_an_experiment_of_katib(tmp_path):
    file = tmp_path / "katib.yaml"
    file.write_text(EXPERIMENT)
    imported = reading.convert(file, None)
    document = read_text(imported.text, "spec")
    specs.load(document)
    spec = document.data
    assert spec["parameters"] == {
        "lr": {"min": 0.01, "max": 0.1, "log": True, "type": "float"},
        "layers": {"min": 1, "max": 9, "step": 2, "type": "int"},
        "batch": {"values": [32, 64]},
        "opt": {"values": ["sgd", "1"]},
    }
    assert spec["command"][2:] == ["--lr=${lr}", "-n${layers}", "--b=${batch}", "--o=${opt}"]
    assert spec["metric"] == {"name": "acc", "goal": "maximize", "target": 0.9}
    assert spec["trials"] == {"max": 12, "parallel": 3}
    lost = {str(each).split(":")[1]: str(each) for each in imported.lost}
    assert "maxFailedTrialCount" in lost["8"]
    assert "earlyStopping" in lost["9"]


def test_katib_takes_the_experiment():
    """Katib's own model of an Experiment leaves out keys that it does not know."""
    from kubeflow_katib_api.models import V1beta1Experiment  # it takes seconds

    given = read_text(EXPERIMENT, "theirs").data
    assert V1beta1Experiment.from_dict(given).to_dict() == given


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "{trialParameters.n}",
            "{trialParameters.m}",
            r"theirs\.yaml:26:41: .*command\[3\]: .*'m' for a parameter; known: b, n, o, rate",
        ),
        ("reference: opt", "reference: optt", r"theirs\.yaml:22:.*'optt' is no parameter"),
        (
            "kind: Experiment",
            "kind: OptimizationJob",
            r"theirs\.yaml:2:1: kind: no release .*; import the Katib Experiment",
        ),
    ],
)
def test_what_katib_would_refuse_has_its_line(old, new, message, tmp_path):
    file = tmp_path / "theirs.yaml"
    assert old in EXPERIMENT
    file.write_text(EXPERIMENT.replace(old, new))
    with pytest.raises(SpecError, match=message):
        reading.convert(file, None)
