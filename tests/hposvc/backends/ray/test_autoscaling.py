"""Sweeps on clusters that have no node for a trial until Ray's autoscaler starts one."""

import json

import autoscaled_cluster
import pytest
from waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.long]

TRAINABLE = """
import time

def train(params, worker):
    for step in worker.steps():
        time.sleep(0.5)
        worker.report(step, {"loss": params["x"]})
"""
SPEC = {
    "trainable": "train.py:train",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 8},
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
    "search": "random",
    "trials": {"max": 4, "parallel": 2},
    "resources": {"workers": 1, "cpus_per_worker": 1},
    "tracking": {"send_to": []},
}


@pytest.mark.parametrize("version", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_cluster_of_a_head_alone_grows_for_a_sweep_and_shrinks_after_it(version, tmp_path):
    (tmp_path / "train.py").write_text(TRAINABLE)
    (tmp_path / "spec.yaml").write_text(json.dumps(SPEC))
    large = {**SPEC, "resources": {"workers": 1, "cpus_per_worker": 64}}
    (tmp_path / "large.yaml").write_text(json.dumps(large))
    with autoscaled_cluster.start(version) as cluster:
        cluster.run("-m", "hposvc", "run", f"{tmp_path}/spec.yaml", "--address", cluster.address)
        status = json.loads(cluster.run("-m", "hposvc", "status", "last", "-o", "json"))
        assert status["state"] == "COMPLETED"
        assert cluster.look()[0] >= 3  # it ran two trials at once, on a node each
        # Nothing more is asked for, so the nodes go when they have been idle.
        until(lambda: cluster.look()[1:] == (1, []), lambda: f"{cluster.look()}", 90)
        with pytest.raises(AssertionError, match=r"a trial needs 1 x \{CPU: 64\}"):
            cluster.run(
                "-m", "hposvc", "run", f"{tmp_path}/large.yaml", "--address", cluster.address
            )
        assert cluster.look()[1:] == (1, [])
