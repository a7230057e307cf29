"""Parameters with points in their names, from the spec to the trial's code."""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from command_line import run

from hposvc import spec as specs
from hposvc.errors import SpecError

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "your-code.md"
SECTION = PAGE.read_text().split("## Names with points")[1].split("\n## ")[0]
(SWEEP,) = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
FUNCTION, CLASS = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
SETS = {"engine": "local", "tracking.send_to": []}
WORDS = [f"--set={key}={json.dumps(value)}" for key, value in SETS.items()]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(f"{FUNCTION}\n{CLASS}")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize("trainable", ["train.py:train", "train.py:Net"])
def test_the_page_is_right(folder, trainable, capfd):
    home = f"{folder / 'home'}"
    words = [*WORDS, f"--set=trainable={trainable}", "--set=fidelity={max: 2}"]
    assert run(capfd, "run", folder / "sweep.yaml", "--home", home, *words).code == 0
    found = run(capfd, "trials", "last", "--home", home, "-o", "json")
    trials = json.loads(found.out)
    assert len(trials) == 12
    for trial in trials:
        params = trial["params"]
        assert ("optimizer.momentum" in params) == (params["optimizer.name"] == "sgd")
        assert {"optimizer.lr", "model.layers"} <= params.keys()


def test_a_command_gets_names_with_points(folder, capfd):
    script = "import sys; assert sys.argv[1].startswith('--optimizer.lr='); print('loss=1')"
    spec = {
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"optimizer": {"lr": {"min": 0.1, "max": 1.0}}},
        "command": [sys.executable, "-c", script, "${args}"],
        "collect": {"stdout": "loss=(?P<loss>.+)"},
        "trials": {"max": 2},
    }
    (folder / "program.yaml").write_text(yaml.safe_dump(spec))
    home = f"{folder / 'home'}"
    assert run(capfd, "run", folder / "program.yaml", "--home", home, *WORDS).code == 0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"optimizer": {"ir": {"min": 0.1, "max": 1.0}}},
            r"sweep.yaml:\d+:5: parameters.optimizer.ir: Optimizer has no such field; known: lr",
        ),
        (
            {"optimizer": {"values": ["sgd"]}, "optimizer.lr": {"min": 0.1, "max": 1.0}},
            r"sweep.yaml:\d+:3: parameters.optimizer.lr: lies within optimizer, which is a param",
        ),
    ],
)
def test_what_does_not_fit_the_code_is_said_with_its_line(folder, parameters, message):
    spec = {**yaml.safe_load(SWEEP), "parameters": parameters, "fidelity": {"max": 2}}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(spec))
    with pytest.raises(SpecError, match=message):
        specs.check(folder / "sweep.yaml", {**SETS, "trainable": "train.py:Net"})


def test_constraints_and_conditions_name_them_with_points():
    parameters = {"model": {"layers": {"min": 1, "max": 9}, "width": {"min": 1, "max": 9}}}
    metric = {"name": "loss", "goal": "minimize"}
    sections = {"trainable": "train:train", "metric": metric, "trials": {"max": 1}}
    constraints = ["model.layers * model.width < 20"]
    spec = specs.load({**sections, "parameters": parameters, "constraints": constraints})
    assert not spec.space.allows({"model.layers": 5, "model.width": 5})
    assert spec.space.allows({"model.layers": 4, "model.width": 4})
