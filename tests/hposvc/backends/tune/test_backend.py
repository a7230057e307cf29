"""The Ray Tune backend, beyond the contract that all engines share."""

import os
import signal
import threading
import time

import pytest
import ray
from engines import Bench, await_none, in_slots, kinds
from invariants import check

from cluster import launch
from hposvc import Sweep, api
from hposvc import spec as specs
from hposvc.backends.tune.experiment import TrialHolder
from hposvc.errors import OutOfReach
from hposvc.events import Ended

pytestmark = [pytest.mark.ray, pytest.mark.long]


def tune_settings():
    return {name: os.environ[name] for name in os.environ if name.startswith(("TUNE_", "RAY_AIR"))}


@pytest.mark.full
@pytest.mark.parametrize("name", ["ray", "tune"])
def test_close_leaves_nothing_while_orders_run(name, home, tmp_path):
    """The pool is tested too, so that both backends agree."""
    settings, threads = tune_settings(), set(threading.enumerate())
    bench = Bench.of(name, 1, tmp_path, home)
    try:
        bench.reach(bench.start(until=900, pause=0.01), 2)
        bench.start(at=1, do="hang")
        assert in_slots(home)
    finally:
        bench.backend.close()
    await_none(lambda: in_slots(home))
    await_none(lambda: [thread for thread in threading.enumerate() if thread not in threads])
    assert tune_settings() == settings
    assert {path.name for path in tmp_path.iterdir()} <= {"checkpoints", "logs"}
    connection = launch.connect(home / "ray")
    try:
        groups = ray.util.placement_group_table().values()
        assert {group["state"] for group in groups} <= {"REMOVED"}
        assert ray.util.list_named_actors() == []
    finally:
        connection.close()


def slot_processes(home):
    return {pid for pid, name in in_slots(home).items() if name.startswith("ray::SlotTrial")}


@pytest.mark.full
def test_a_trial_s_process_that_dies_costs_no_order(home, tmp_path):
    """It only holds the resources, in which the ranks go on."""
    # With labels: Tune drops the empty bundle of a trial's own process, so only ranks have them.
    resources = {"cpus_per_worker": 0.5, "labels": {"ray.io/node-id": "!nowhere"}}
    bench = Bench.of("tune", 1, tmp_path, home, resources=resources)
    try:
        order = bench.start(until=20, pause=0.05)
        bench.reach(order, 2)
        for process in slot_processes(home):
            os.kill(process, signal.SIGKILL)
        assert kinds(bench.finish(order))[-1] == "ended"
        assert isinstance(bench.finish(bench.start())[-1], Ended)
    finally:
        bench.backend.close()


def free_cores() -> float:
    """Return how many cores Ray has free, once ended processes have released theirs.

    Ray 2.60 has been seen to keep half a core of a killed process for good, without an actor or a
    placement group, so waiting for all cores could take for ever.
    """
    deadline = time.monotonic() + 60
    while (free := ray.available_resources()["CPU"]) < ray.cluster_resources()["CPU"]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return free


def groups(*states):
    """Return the placement groups in these states."""
    table = ray.util.placement_group_table().values()
    return [group for group in table if group["state"] in states]


@pytest.mark.full
def test_slots_give_their_resources_back_and_come_again(home, tmp_path):
    """Slots that wait for resources, and slots that have them."""
    bench = Bench.of("tune", 1, tmp_path, home)
    try:
        other = ray.util.placement_group([{"CPU": free_cores()}])
        ray.get(other.ready(), timeout=60)
        assert bench.backend.capacity() == 0
        bench.wait(lambda: groups("PENDING"))
        bench.backend.set_slot_limit(0)
        bench.wait(lambda: not groups("PENDING"))
        ray.util.remove_placement_group(other)
        bench.backend.set_slot_limit(2)
        assert isinstance(bench.finish(bench.start())[-1], Ended)
        bench.backend.set_slot_limit(0)
        bench.wait(lambda: not groups("PENDING", "CREATED") and not in_slots(home))
        bench.backend.set_slot_limit(1)
        assert isinstance(bench.finish(bench.start())[-1], Ended)
    finally:
        bench.backend.close()


def test_an_error_of_tune_ends_the_sweep(home, tmp_path, monkeypatch):
    """Otherwise it would wait for ever for slots."""
    monkeypatch.setattr(TrialHolder, "choose_trial_to_run", lambda *_: 1 / 0)
    bench = Bench.of("tune", 1, tmp_path, home)
    try:
        with pytest.raises(ZeroDivisionError):
            bench.finish(bench.start())
    finally:
        bench.backend.close()


@pytest.mark.parametrize("name", ["ray", "tune"])
def test_close_twice_before_anything_was_started_leaves_nothing(name, home, tmp_path):
    settings, threads = tune_settings(), set(threading.enumerate())
    bench = Bench.of(name, 1, tmp_path, home)
    bench.backend.close()
    bench.backend.close()
    await_none(lambda: [thread for thread in threading.enumerate() if thread not in threads])
    assert tune_settings() == settings
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_ranks_that_can_never_start_end_the_sweep_with_the_reason(home, tmp_path):
    bench = Bench.of("tune", 1, tmp_path, home, trainable="no_such_module:train")
    try:
        with pytest.raises(OutOfReach, match=r"a rank could not start: .*no_such_module"):
            bench.finish(bench.start())
    finally:
        bench.backend.close()


@pytest.mark.parametrize("mode", [pytest.param("stop", marks=pytest.mark.full), "promote"])
def test_a_sweep_of_ours_as_a_tune_experiment(home, mode):
    result = Sweep(
        trainable="toys:steady",
        engine="tune",
        metric={"name": "loss", "goal": "minimize"},
        fidelity={"max": 9},
        parameters={"lr": {"min": 1e-4, "max": 1e-1, "log": True}},
        search="random",
        scheduler={"type": "asha", "mode": mode},
        trials={"max": 12, "parallel": 2},
        resources={"workers": 1, "cpus_per_worker": 0.5},
        tracking={"send_to": []},
    ).run(home, progress=False)
    assert result.state == "COMPLETED"
    sweeps = api.Sweeps.open(home)
    spec = specs.restore(sweeps.journal.find(result.sweep).spec)
    events = [event for _, event in sweeps.journal.read(result.sweep)]
    state = check(spec, events)
    assert any(trial.step == 9 for trial in state.trials.values())
    assert any(trial.step < 9 for trial in state.trials.values())
    pids = {event.metrics["pid"] for event in events if event.kind == "reported"}
    assert len(pids) <= 2, "slots stay warm"
