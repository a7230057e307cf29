"""Spot nodes first, others after a wait, on a real cluster of one node of each."""

import logging

import pytest
import ray
from ray.cluster_utils import Cluster

import hposvc
from hposvc.analysis.findings import why
from hposvc.errors import SpecError
from hposvc.events import Placed, Reported
from hposvc.spec.parsing.coercion import fill
from hposvc.spec.sections import Resources

pytestmark = [pytest.mark.ray, pytest.mark.long]

MARKET = "ray.io/market-type"


@pytest.fixture(scope="module")
def cluster():
    """One CPU on demand, one on a spot node."""
    cluster = Cluster()
    for market in ("on-demand", "spot"):
        cluster.add_node(num_cpus=1, labels={MARKET: market}, include_dashboard=False)
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def train(params, worker):
    """Two trials meet: each waits until the other has begun."""
    meeting = worker.checkpoints.parent / "meeting"
    meeting.mkdir(exist_ok=True)
    (meeting / worker.trial).touch()
    if worker.total == 2:
        from waiting import until

        until(lambda: len([*meeting.iterdir()]) >= 2)
    for step in worker.steps():
        worker.report(step, {"loss": 1.0})


def run(cluster, home, parallel, steps=1, **market):
    sweep = hposvc.Sweep(
        train,
        parameters={"x": {"min": 0.0, "max": 1.0}},
        metric={"name": "loss", "goal": "minimize"},
        search="random",
        fidelity={"max": steps},
        trials={"max": 2, "parallel": parallel},
        resources={"market": market},
        tracking={"send_to": []},
    )
    result = sweep.run(home, cluster.address, progress=False)
    events, state = [*result.events()], result.record.state
    assert sum(isinstance(event, Reported) for event in events) == 2 * steps
    assert sum(state.market_s.values()) == pytest.approx(state.rank_s)
    found = why(result.sweep, state)
    [cost] = [finding.sentence for finding in found if finding.topic == "cost"]
    assert all(f" on {name} nodes" in cost for name in state.market_s)
    return [event.market for event in events if isinstance(event, Placed)]


def test_trials_keep_to_spot_nodes_and_fall_back_where_those_are_full(cluster, tmp_path, caplog):
    assert run(cluster, tmp_path, 2, first="spot", then="on-demand", after=3600) == ["spot"] * 2
    assert "asking for on-demand nodes" not in caplog.text
    with caplog.at_level(logging.WARNING, "hposvc"):
        both = run(cluster, tmp_path, 2, 2, first="spot", then="on-demand", after=0.5)
    assert sorted(both) == ["on-demand", "spot"]
    assert "no spot node had room for a slot for 0.5s; asking for on-demand nodes" in caplog.text
    assert run(cluster, tmp_path, 2, first="on-demand") == ["on-demand"] * 2


def test_a_market_is_spot_or_on_demand():
    with pytest.raises(SpecError, match=r"market\.first: is 'cheap'; choose spot or on-demand"):
        fill(Resources, {"market": "cheap"})
    with pytest.raises(SpecError, match=r"market\.then: is spot, as first is; give the other"):
        fill(Resources, {"market": {"first": "spot", "then": "spot"}})
