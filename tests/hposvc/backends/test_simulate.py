"""The simulated cluster: its clock, its slots, and a curve called once per step that runs."""

import math
from collections import Counter

import numpy as np
import pytest
import simulated_sweeps
from simulated_sweeps import make_spec

from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.events import Checkpointed, Reported
from trainables.order import Order


def curve(params, step):
    return {"loss": 1 / step, "seen": params["lr"]}, params["lr"]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Return a function that makes a simulation of a curve, with two slots."""

    def make(function=curve, clock=0.0, **sections):
        monkeypatch.setattr(simulated_sweeps, "made_up", function, raising=False)
        engine = {"type": "simulate", "curve": "simulated_sweeps:made_up"}
        spec = make_spec(engine=engine, **{"trials": {"max": 9, "parallel": 2}, **sections})
        return Simulation(Setting("s", spec, tmp_path, tmp_path, clock=clock))

    return make


def order(number, lr=1.0, until=9, first=1, milestones=()):
    return Order(number, f"t{number:04d}", {"lr": lr}, None, first, until, milestones)


def watch(cluster, turns=100):
    """Return all events but checkpoints, as (time, order, step or kind)."""
    seen = []
    for _ in range(turns):
        for event in cluster.events(0.0):
            if isinstance(event, Reported):
                seen.append((event.time, event.order, event.step))
            elif not isinstance(event, Checkpointed):
                seen.append((event.time, event.order, event.kind))
    return seen


def test_steps_of_two_slots_follow_the_clock(cluster):
    slots = cluster()
    slots.start(order(1, lr=2.0, until=2), {})
    slots.start(order(2, lr=1.5, until=2), {})
    assert slots.capacity() == 0
    assert watch(slots) == [
        (1.5, 2, 1),
        (2.0, 1, 1),
        (3.0, 2, 2),
        (3.0, 2, "ended"),
        (4.0, 1, 2),
        (4.0, 1, "ended"),
    ]
    assert (slots.now(), slots.capacity()) == (4.0, 2)


def test_a_clock_goes_on_from_where_an_earlier_driver_left_it(cluster):
    slots = cluster(clock=100.0)
    slots.start(order(1, until=1), {})
    assert watch(slots)[0] == (101.0, 1, 1)


def test_a_kill_waits_for_no_report(cluster):
    slots = cluster()
    slots.start(order(1), {})
    slots.start(order(2, until=1), {})
    slots.kill(1)
    assert watch(slots) == [(0.0, 1, "ended"), (1.0, 2, 1), (1.0, 2, "ended")]
    slots.kill(1)  # gone already
    assert watch(slots) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (({"loss": 1.0}, -1.0), "step 1 takes -1.0 seconds; give 0 or more"),
        (({"loss": 1.0}, math.nan), "takes nan seconds"),
        (({"loss": 1.0}, "soon"), "takes 'soon' seconds"),
        (({"loss": "high"}, 1.0), r"step 1: metric 'loss' is 'high' \(str\); give a real number"),
        (([1.0], 1.0), "step 1: metrics is list; give a dict"),
        (1.0, "curve: it returned float at step 1; return the metrics, and the seconds"),
    ],
)
def test_a_curve_that_breaks_the_rules_fails_its_trial_with_the_reason(cluster, given, message):
    slots = cluster(lambda params, step: given)
    slots.start(order(1), {})
    [failed] = slots.events(0.0)
    assert failed.cause == "user"
    with pytest.raises(ValueError, match=message):
        raise ValueError(failed.message)


def test_numbers_of_numpy_are_taken_as_numbers(cluster, lab):
    slots = cluster(lambda params, step: ({"loss": np.float32(0.5)}, np.int64(1)))
    slots.start(order(1), {})
    [saved, report] = slots.events(0.0)
    assert type(report.metrics["loss"]) is type(report.time) is float
    lab.journal.append("s", 0, [saved, report])


def test_slots_are_limited_while_orders_run_out(cluster):
    slots = cluster()
    slots.start(order(1), {})
    slots.set_slot_limit(1)
    assert (slots.capacity(), slots.slots()) == (0, 2)
    slots.set_slot_limit(5)
    assert slots.capacity() == 1


def test_the_curve_is_called_once_per_step_in_the_order_of_the_clock(lab, monkeypatch):
    calls, begins = Counter(), []

    def made_up(params, step):
        calls[params["lr"], step] += 1
        begins.append((cluster[0].now(), params["lr"]))
        return {"loss": params["lr"] / step}, 1 + params["lr"]

    cluster = []

    class Known(Simulation):
        def __post_init__(self):
            super().__post_init__()
            cluster.append(self)

    monkeypatch.setattr(simulated_sweeps, "made_up", made_up, raising=False)
    spec = make_spec(
        engine={"type": "simulate", "curve": "simulated_sweeps:made_up"},
        scheduler={"type": "asha", "mode": "promote"},
        fidelity={"max": 27},
        trials={"max": 40, "parallel": 5},
    )
    state = lab.run(spec, backend=Known)
    assert set(calls.values()) == {1}
    steps = {(trial.params["lr"], step) for trial in state.trials.values() for step in trial.steps}
    assert steps == set(calls)
    assert [time for time, _ in begins] == sorted(time for time, _ in begins)


def test_what_is_no_number_is_left_out_and_said_once(cluster):
    slots = cluster(lambda params, step: ({"loss": 0.5, "auc": None}, 1.0))
    slots.start(order(1, until=2), {})
    events = [*slots.events(0.0), *slots.events(0.0)]
    reports = [event for event in events if event.kind == "reported"]
    assert [report.metrics for report in reports] == [{"loss": 0.5}, {"loss": 0.5}]
    assert [report.left_out for report in reports] == [{"auc": "None (NoneType)"}, {}]
