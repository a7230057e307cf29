"""Checks of a spec that import the user's code."""

import json

import pytest

from hposvc.spec import SpecError, check

SMALL = {
    "trainable": "my_code:Net",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}},
    "trials": {"max": 8},
}


def small(**changes):
    return {**SMALL, **changes}


def test_check_imports_the_trainable_and_the_curve(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "checked_code.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\nclass Net:\n    lr: float = 0.1\n"
        "    def train(self, worker): ...\n"
        "def curve(params, step): return {'loss': 1.0}, 1.0\n"
    )
    assert check(SMALL, {"trainable": "checked_code:Net"}).trainable == "checked_code:Net"
    path = tmp_path / "sweep.yaml"
    misnamed = small(trainable="checked_code:Net", parameters={"rl": 0.1})
    path.write_text(json.dumps(misnamed, indent=1))
    with pytest.raises(SpecError, match=r"sweep\.yaml:8:3: parameters\.rl: Net has no such field"):
        check(path)
    simulated = small(trainable=None, engine={"type": "simulate", "curve": "checked_code:curve"})
    assert check(simulated).engine.curve == "checked_code:curve"
    with pytest.raises(SpecError, match=r"engine\.curve: checked_code has no such name"):
        check(simulated, {"engine.curve": "checked_code:curv"})
    with pytest.raises(SpecError, match=r"engine\.curve: checked_code:__name__ is no function"):
        check(simulated, {"engine.curve": "checked_code:__name__"})
