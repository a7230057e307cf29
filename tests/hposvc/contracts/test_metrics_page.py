"""docs/how-to/metrics.md: its specs run as they stand there."""

import re

import pages
import pytest
from ruamel.yaml import YAML
from simulated_sweeps import make_spec

from hposvc import api

BLOCKS = pages.blocks("how-to/metrics.md", "yaml")
MANY = {"max": 210, "parallel": 8}  # beyond what MLflow is told of simulations unasked


@pytest.mark.full
@pytest.mark.parametrize("block", BLOCKS)
def test_a_spec_of_the_page_runs_to_its_end(block, tmp_path):
    sweeps = api.Sweeps.open(tmp_path)
    for earlier in re.findall(r"digits-\w+", block):
        api.drive(sweeps, api.create(sweeps, make_spec(trials=MANY), earlier))
    written = YAML(typ="safe", pure=True).load(block)
    metric = {} if "metrics" not in written else {"metric": None}
    curve = {"engine": {"type": "simulate", "curve": "simulated_sweeps:served"}}
    # What finalists.set names is a parameter of the sweep.
    fixed = dict.fromkeys(written.get("finalists", {}).get("set", {}), 64)
    space = {"parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}, **fixed}}
    spec = make_spec(**{"trials": MANY, **metric, **curve, **space, **written})
    state = api.drive(sweeps, api.create(sweeps, spec)).state
    assert state.state == "COMPLETED"
    assert state.front
