"""Orders on real Ray actors and real process groups. If these fail, no sweep can be trusted."""

import psutil
import pytest
import ray
from engines import await_none, in_slots
from simulated_sweeps import spec_of
from waiting import until

from cluster import inspection, launch, own_ray
from hposvc import api
from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.ray.cluster import RayCluster
from hposvc.backends.ray.pool import RayPool
from hposvc.errors import OutOfReach, SpecError
from hposvc.events import Failed, Reported

pytestmark = pytest.mark.ray


def spec(function: str, **sections):
    """Return a spec of one trial with three steps on one rank, changed by `sections`."""
    small = {"fidelity": {"max": 3}, "trials": {"max": 1, "parallel": 1}}
    resources = {"workers": 1, "cpus_per_worker": 0.5}
    return spec_of(f"toys:{function}", **{**small, "resources": resources, **sections})


def run(sweeps, given):
    row = api.create(sweeps, given)
    api.drive(sweeps, row)
    return row.id, api.load(sweeps, row.id).status()


def events(sweeps, sweep, kind):
    return [event for _, event in sweeps.journal.read(sweep) if isinstance(event, kind)]


def assert_no_ranks(sweeps):
    await_none(lambda: in_slots(sweeps.home.path))


@pytest.mark.long
def test_two_ddp_ranks_train_and_leave_nothing_behind(sweeps, home):
    two = {"workers": 2, "cpus_per_worker": 0.5}
    sweep, status = run(
        sweeps, spec("ddp", resources=two, trials={"max": 4, "parallel": 2}, scheduler="asha")
    )
    assert status.state == "COMPLETED"
    trials = api.load(sweeps, sweep).trials()
    assert len(trials) == 4
    assert all(trial.metrics["ranks"] == 2 for trial in trials)
    connection = launch.connect(home / "ray")
    assert ray.available_resources()["CPU"] == ray.cluster_resources()["CPU"]
    assert inspection.stored_results() == {}, (
        "a lone node is never looked at: no other could take its place"
    )
    connection.close()
    assert_no_ranks(sweeps)


@pytest.mark.full
def test_a_slow_rank_is_told_and_goes_on_where_there_is_no_other_node(sweeps, caplog):
    """If the only node were drained, the sweep would wait for ever."""
    two = {"workers": 2, "cpus_per_worker": 0.5}
    sweep_spec = spec(
        "",
        trainable="lopsided:Lopsided",
        metric={"name": "val/loss", "goal": "minimize"},
        resources=two,
        failure={"straggler": "drain"},
        fidelity={"max": 8},
        parameters={"lr": 0.1},
    )
    sweep, status = run(sweeps, sweep_spec)
    assert status.state == "COMPLETED"
    assert events(sweeps, sweep, Failed) == []
    [message] = [
        record.getMessage() for record in caplog.records if "as slow as" in record.getMessage()
    ]
    assert "rank 1 on node" in message
    assert "the other nodes have no room for a slot" in message


def test_a_rank_is_told_how_programs_that_it_runs_end(sweeps):
    """With Ray's own handling of stray processes, each seemed to have ended with 0."""
    sweep, _ = run(sweeps, spec("asks_a_program", fidelity={"max": 1}))
    [trial] = api.load(sweeps, sweep).trials()
    assert (trial.metrics["code"], trial.metrics["other"]) == (1, 3)


def test_what_a_rank_abandons_ends_with_it_also_where_it_is_killed(sweeps, tmp_path):
    """Peers: such a process keeps its GPU memory, and the next trial there runs out of it."""
    mark = tmp_path / "mark"
    sweep_spec = spec("abandons_and_dies", fidelity={"max": 1}, parameters={"mark": str(mark)})
    _, status = run(sweeps, sweep_spec)
    assert status.state == "COMPLETED"
    daemon = int(mark.read_text())
    await_none(lambda: psutil.pid_exists(daemon))


@pytest.mark.long
def test_what_an_order_leaves_behind_recycles_the_slot(sweeps):
    """Peers: state of one trial leaks into the next; measured with torch's default dtype."""
    sweep, _ = run(sweeps, spec("leaks", fidelity={"max": 1}, trials={"max": 2, "parallel": 1}))
    reported = [trial.metrics for trial in api.load(sweeps, sweep).trials()]
    assert [metrics["loss"] for metrics in reported] == [0.0, 0.0]
    assert reported[0]["pid"] != reported[1]["pid"]


def test_output_of_an_order_is_in_its_log(sweeps):
    sweep, _ = run(sweeps, spec("one_rank_raises", parameters={"bad": True}))
    (log,) = api.logs(sweeps, api.load(sweeps, sweep), "t0001")
    assert "Default process group has not been initialized" in log.path.read_text()


def test_what_no_node_can_give_is_said_at_once(sweeps):
    with pytest.raises(OutOfReach, match=r"a trial needs 3 x \{CPU: 64\}"):
        run(sweeps, spec("steady", resources={"workers": 3, "cpus_per_worker": 64}))


def test_a_cluster_is_joined_by_its_address_and_left_running(sweeps, home):
    connection = launch.connect(home / "ray")
    address = connection.address
    connection.close()
    row = api.create(sweeps, spec("steady"))
    api.drive(sweeps, row, address=address)
    assert api.load(sweeps, row.id).status().state == "COMPLETED"
    assert own_ray.is_locked(home / "ray" / own_ray.KEEPER)


def test_an_address_where_nothing_answers_is_said(sweeps):
    row = api.create(sweeps, spec("steady"))
    with pytest.raises(OutOfReach, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        api.drive(sweeps, row, address="127.0.0.1:1")


def test_a_sweep_waits_while_no_node_lives_and_says_so_once(sweeps, home, monkeypatch, caplog):
    cluster = RayCluster(Setting("alone", spec("steady"), home, home))
    caplog.clear()  # of what it said at the start, as of other tests' Rays on this machine
    try:
        cluster.log_room_changes()
        assert not caplog.messages
        dead = [{**node, "Alive": False} for node in ray.nodes()]
        with monkeypatch.context() as patched:
            patched.setattr(ray, "nodes", lambda: dead)
            cluster.log_room_changes()
            cluster.log_room_changes()
        cluster.log_room_changes()
    finally:
        cluster.close()
    lost, found = caplog.messages
    assert "no live node of the cluster has room for a trial; the sweep waits" in lost
    assert "a node has room for its trials again" in found


def open_pool(home):
    """Return a pool with a rank that is up."""
    pool = RayPool(Setting("twice", spec("steady"), home, home))

    def is_up():
        pool.capacity()
        pool.events(0.1)
        return any(slot.present for slot in pool._slots)

    until(is_up)
    return pool


def test_a_pool_whose_cluster_goes_as_it_is_closed_leaves_ray_all_the_same(
    sweeps, home, monkeypatch
):
    def lost():
        raise OutOfReach("the head is gone")

    pool = open_pool(home)
    monkeypatch.setattr(pool._cluster, "check", lost)
    pool.close()
    assert not pool._slots
    assert not ray.is_initialized()
    assert_no_ranks(sweeps)


def test_a_pool_whose_ranks_do_not_go_in_time_can_be_closed_twice(sweeps, home, monkeypatch):
    """The second close comes after leaving Ray, whose error would hide the driver's own."""
    monkeypatch.setattr("hposvc.backends.ray.pool.GONE_S", 0.0)
    pool = open_pool(home)
    pool.close()
    assert pool._slots
    assert not ray.is_initialized()
    pool.close()
    assert_no_ranks(sweeps)


EDITED = """
import os
from pathlib import Path

import hposvc

ONE = 1


def edit():
    text = Path(__file__).read_text()
    Path(__file__).write_text(text.replace("ONE = 1", "ONE = 2"))


def train(config):
    if ONE == 1:
        edit()
        os._exit(1)  # the rank that comes in its place would train with the new code
    hposvc.report({"loss": ONE})


if __name__ == "__main__":
    edit()
    hposvc.report({"loss": ONE})
"""


@pytest.mark.parametrize(
    ("engine", "runs"),
    [
        pytest.param("ray", "trainable", marks=pytest.mark.full),
        pytest.param("ray", "command", marks=pytest.mark.long),
        pytest.param("tune", "trainable", marks=pytest.mark.full),
    ],
)
def test_code_that_changes_while_a_sweep_runs_ends_its_driver(sweeps, tmp_path, engine, runs):
    """Otherwise the sweep would mix results of both versions of the code."""
    file = tmp_path / "mine.py"
    file.write_text(EDITED)
    sweep_spec = {
        "folder": tmp_path,
        "engine": engine,
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"lr": {"values": [0.1, 0.2]}},
        "search": "grid",
        "trials": {"max": 2, "parallel": 1},
        "resources": {"cpus_per_worker": 0.5},
    }
    program = {"trainable": "mine.py:train", "command": ["python", "mine.py", "${args}"]}[runs]
    row = api.create(sweeps, specs.check({**sweep_spec, runs: program}))
    with pytest.raises(SpecError, match=r"mine\.py changed while the sweep ran"):
        api.drive(sweeps, row)
    assert all(event.metrics["loss"] == 1 for event in events(sweeps, row.id, Reported))
    assert_no_ranks(sweeps)
    with pytest.raises(SpecError, match="changed since"):
        api.drive(sweeps, sweeps.find(row.id))
    record = api.drive(sweeps, row, accept_code=True)
    assert [trial.state for trial in record.trials()] == ["COMPLETED"] * 2
