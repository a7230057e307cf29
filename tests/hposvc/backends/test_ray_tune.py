"""The engine that is a Ray Tune experiment, beyond what all engines share."""

import os
import signal
import threading
from pathlib import Path

import pytest
import ray
from engines import Bench, await_none, in_slots, kinds, pids, saved
from invariants import check
from ray.tune.experiment import Trial

from cluster import launch
from hposvc import Sweep, api
from hposvc import spec as specs
from hposvc.backends.backend import OutOfReach
from hposvc.backends.tune.desk import Desk
from hposvc.backends.tune.trial import TASK, Task
from hposvc.events import Ended
from trainables.slots.assignment import Assignment
from trainables.slots.wire import Call

pytestmark = pytest.mark.ray
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))


def tune_settings():
    return {name: os.environ[name] for name in os.environ if name.startswith(("TUNE_", "RAY_AIR"))}


@pytest.mark.parametrize("name", ["ray", "tune"])
def test_close_leaves_nothing_while_orders_run(name, home, tmp_path):
    """The pool too, so that both mean the same by it."""
    settings, threads = tune_settings(), set(threading.enumerate())
    bench = Bench.of(name, 1, tmp_path, home)
    try:
        bench.reach(bench.start(until=900, pause=0.01), 2)
        bench.start(at=1, do="hang")
        assert in_slots(home)
    finally:
        bench.backend.close()
    await_none(lambda: in_slots(home))
    await_none(lambda: [each for each in threading.enumerate() if each not in threads])
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
    return {pid for pid, name in in_slots(home).items() if name.startswith("ray::OrderTrial")}


def test_a_trial_s_process_that_dies_takes_its_ranks_along_and_is_replaced(home, tmp_path):
    bench = Bench.of("tune", 1, tmp_path, home)
    try:
        order = bench.start(until=900, pause=0.01)
        bench.reach(order, 2)
        [process] = slot_processes(home)
        os.kill(process, signal.SIGKILL)
        failed = bench.finish(order)
        assert (failed[-1].kind, failed[-1].cause) == ("failed", "infra")
        await_none(lambda: in_slots(home))  # nobody may write any more
        first = failed[-2].step + 1
        again = bench.start(first=first, until=first, start=saved(failed))
        assert kinds(bench.finish(again)) == ["checkpointed", "reported", "ended"]
    finally:
        bench.backend.close()


def test_a_trial_s_process_that_dies_while_idle_costs_no_order(home, tmp_path):
    """Tune would only learn of it from the order that it gives to the dead process."""
    # With labels: Tune drops the empty bundle of a trial's own process, so they are the ranks'.
    resources = {"cpus_per_worker": 0.5, "labels": {"ray.io/node-id": "!nowhere"}}
    bench = Bench.of("tune", 1, tmp_path, home, resources=resources)
    try:
        assert isinstance(bench.finish(bench.start())[-1], Ended)
        [process] = slot_processes(home)
        os.kill(process, signal.SIGKILL)
        assert isinstance(bench.finish(bench.start())[-1], Ended)
    finally:
        bench.backend.close()


def test_an_order_that_waits_for_resources_can_be_taken_back(home, tmp_path):
    bench = Bench.of("tune", 1, tmp_path, home)
    try:
        cores = ray.cluster_resources()["CPU"]
        other = ray.util.placement_group([{"CPU": cores}])
        ray.get(other.ready())
        waits = bench.start()
        for _ in range(10):
            bench.pump()
        bench.backend.kill(waits)
        assert kinds(bench.finish(waits)) == ["ended"]
        ray.util.remove_placement_group(other)
        assert isinstance(bench.finish(bench.start())[-1], Ended)
    finally:
        bench.backend.close()


def test_an_idle_slot_does_not_keep_what_the_last_order_of_a_barrier_waits_for(home, tmp_path):
    """Nothing follows until both are over; the cluster has room for one slot less than asked."""
    bench = Bench.of("tune", 1, tmp_path, home)
    try:
        assert bench.backend.slots() == 2
        other = ray.util.placement_group([{"CPU": ray.cluster_resources()["CPU"] - 0.5}])
        ray.get(other.ready())
        for _ in range(2):
            both = bench.finish(bench.start(), bench.start())
            assert [kinds(events)[-1] for events in both] == ["ended", "ended"]
            assert len(pids(*both)) == 1
        ray.util.remove_placement_group(other)
        apart = bench.finish(*[bench.start(until=20, pause=0.1) for _ in range(2)])
        assert len(pids(*apart)) == 2, "the second slot is not given up"
    finally:
        bench.backend.close()


def given(number, process=None):
    """A trial that Tune has, for the order of this number."""
    task = Assignment(number, "t", {}, None, 1, 3, (), {})
    trial = Trial("order", config={TASK: Task(Call(("", 0), b"", ""), task)}, stub=True)
    trial.temporary_state.ray_actor = process
    return trial


def test_an_idle_process_goes_to_the_last_trial_that_has_none():
    desk = Desk(3)
    trials = [given(1, "process"), given(2), given(3)]
    for trial in trials:
        desk.put(trial.config[TASK].assignment)
        desk.next()
        desk.give(trial)
    desk.step()
    assert desk.waiting() is None, "no slot is idle"
    desk.rest(trials[0])
    assert desk.waiting() is trials[2], "Tune places them in their order"
    desk.put(given(4).config[TASK].assignment)
    assert (desk.waiting(), desk.spare()) == (None, None), "the slot is the next order's"
    desk.next()
    assert desk.waiting() is None, "one process changes hands in a step"
    assert desk.give(given(4, "process")) is trials[0]


def test_a_broken_process_is_given_to_no_trial_that_waits():
    desk = Desk(2)
    first, second = given(1, "process"), given(2)
    for trial in (first, second):
        desk.put(trial.config[TASK].assignment)
        desk.next()
        desk.give(trial)
    desk.step()
    desk.rest(first)
    desk.lose(1)
    assert (desk.waiting(), desk.spare()) == (None, None)
    assert desk.step() == [first], "it leaves"


def test_warm_slots_that_die_at_once_fail_their_orders_and_not_the_sweep(home, tmp_path):
    """As with a node: ranks had the orders, though none had reported."""
    sections = {"trials": {"max": 9, "parallel": 3}, "resources": {"cpus_per_worker": 0.3}}
    bench = Bench.of("tune", 1, tmp_path, home, **sections)
    try:
        warm = bench.finish(*[bench.start(until=20, pause=0.05) for _ in range(3)])
        while len(pids(*warm)) < 3:  # a slot that was up took the order of one that was not
            warm = bench.finish(*[bench.start(until=20, pause=0.05) for _ in range(3)])
        orders = [bench.start(at=1, do="hang") for _ in range(3)]
        logs = [tmp_path / "logs" / f"t{order:04d}" / f"{order}-0.log" for order in orders]
        bench.wait(lambda: all(log.exists() for log in logs))
        for process in slot_processes(home):
            os.kill(process, signal.SIGKILL)
        for [failed] in bench.finish(*orders):
            assert (failed.kind, failed.cause) == ("failed", "infra")
        assert isinstance(bench.finish(bench.start())[-1], Ended)
    finally:
        bench.backend.close()


@pytest.mark.parametrize("name", ["ray", "tune"])
def test_close_twice_before_anything_was_started_leaves_nothing(name, home, tmp_path):
    settings, threads = tune_settings(), set(threading.enumerate())
    bench = Bench.of(name, 1, tmp_path, home)
    bench.backend.close()
    bench.backend.close()
    await_none(lambda: [each for each in threading.enumerate() if each not in threads])
    assert tune_settings() == settings
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_can_never_start_end_the_sweep_with_the_reason(home, tmp_path):
    bench = Bench.of("tune", 1, tmp_path, home, trainable="no_such_module:train")
    try:
        with pytest.raises(OutOfReach, match=r"a rank could not start: .*no_such_module"):
            bench.finish(bench.start())
    finally:
        bench.backend.close()


@pytest.mark.parametrize("mode", ["stop", "promote"])
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
    ).run(home, show=False)
    assert result.state == "COMPLETED"
    sweeps = api.Sweeps.open(home)
    spec = specs.restore(sweeps.journal.find(result.sweep).spec)
    events = [event for _, event in sweeps.journal.read(result.sweep)]
    state = check(spec, events)
    assert any(trial.step == 9 for trial in state.trials.values())
    assert any(trial.step < 9 for trial in state.trials.values())
    pids = {event.metrics["pid"] for event in events if event.kind == "reported"}
    assert len(pids) == 2, "slots stay warm"
