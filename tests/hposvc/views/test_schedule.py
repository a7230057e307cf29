"""A trial's schedule as a spec to run."""

import json

import pytest
from ruamel.yaml import YAML
from simulated_sweeps import at_desk

from hposvc import spec as specs
from hposvc.analysis.lineage import (
    replay_spec,
    winner_lineage,
)
from hposvc.views import schedule

PBT = {"type": "pbt", "interval": 2, "quantile": 0.5, "mutate": {"lr": {}}}


@pytest.fixture
def desk():
    """Return a population of two: t0001 is at step 3 when t0002, at step 2, copies it."""
    made = at_desk(scheduler=PBT, fidelity={"max": 6}, trials={"max": 2, "parallel": 2})
    strong, weak = made.start(lr=0.01), made.start(lr=0.02)
    for step in (1, 2):
        made.report(strong, step, 0.2)
    for step in (1, 2):
        made.report(weak, step, 0.5)
    made.report(strong, 3, 0.2)
    made.end(weak)
    copy = made.start()
    assert (copy.trial, copy.first, copy.start.step) == ("t0002", 3, 3)
    made.report(copy, 3, 0.1)
    return made


def test_an_exported_schedule_loads_and_describes_itself(desk):
    desk.state.spec.tags["ticket"] = 17
    line = winner_lineage(desk.state)
    spec = replay_spec("s-1", desk.state.spec, line)
    text = schedule.text("s-1", desk.state, line, spec)
    assert YAML(typ="safe", pure=True).load(text) == json.loads(json.dumps(spec))
    assert "#   step 1 to 3: t0001's 1 to 3\n#   step 4 to 4: t0002's 3 to 3\n" in text
    assert "copied others that stood at another step" in text
    loaded, before = specs.load(spec), desk.state.spec
    same = ("metric", "engine", "resources", "training", "checkpoints", "failure", "seed", "tags")
    assert all(getattr(loaded, name) == getattr(before, name) for name in same)
    assert loaded.trials.max == 1
