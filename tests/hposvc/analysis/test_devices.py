"""If these fail, trials on unlike devices are compared by seconds, or a cost is made up."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import at_desk

from hposvc.analysis import devices
from hposvc.analysis.devices import TrialOnDevice
from hposvc.events import Placed
from hposvc.state import summary

A100, H200 = "NVIDIA A100", "NVIDIA H200"
GPU = {"workers": 2, "gpus_per_worker": 1}


def played(models, step_s=10.0, times=1.7, steps=3, **sections):
    """Return the desk of a sweep whose trials ran on these models, one after the other.

    A step on an A100 takes `times` as long; a trial's own work varies by a third.
    """
    desk = at_desk(scheduler="fifo", fidelity={"max": steps}, resources=GPU, **sections)
    rng = random.Random(3)
    for model in models:
        order, pace = desk.start(), step_s * rng.uniform(0.75, 1.25)
        desk.time += 60.0  # the start of a process
        if model:
            desk.happen(Placed(desk.time, order.id, order.trial, model, "node-1"))
        for step in range(1, steps + 1):
            desk.time += pace * (times if model == A100 else 1)
            desk.report(order, step, 1.0 / step)
        desk.end(order)
    return desk


def rows(**paces):
    """Return a trial for each pace; keyword arguments are names of models."""
    return [
        TrialOnDevice(0, f"{name}{number}", name, 1.0, pace)
        for name, values in paces.items()
        for number, pace in enumerate(values)
    ]


def test_trials_on_unlike_devices_are_marked():
    desk = played([H200, H200, A100, H200, H200])
    text = devices.describe([desk.state])
    assert "1 of 5 trials ran on NVIDIA A100, the others on NVIDIA H200" in text
    assert "too few trials" in text  # a single trial says nothing of a speed


def test_a_cost_is_given_in_hours_of_the_model_with_the_most():
    desk = played([H200] * 8 + [A100] * 4)
    found = devices.trials_on_devices([desk.state])
    assert sum(row.hours for row in found) == pytest.approx(desk.state.gpu_hours)
    cost = devices.normalised(found)
    assert cost.reference == H200
    times = cost.times[A100]
    assert times.holds(1.7)
    assert cost.hours.low < cost.hours.value < cost.hours.high
    assert cost.hours.value < desk.state.gpu_hours  # the A100's hours are worth less
    assert f"a step on {A100} takes {times.value:.2f} times as long" in devices.describe(
        [desk.state]
    )


def test_unlike_sweeps_are_not_compared_with_each_other():
    """Two sweeps do other work: their seconds per step say nothing of their devices."""
    one, other = played([H200] * 6).state, played([A100] * 6, step_s=500).state
    cost = devices.normalised(devices.trials_on_devices([one, other]))
    assert cost.data()["hours"] is None
    assert "was not measured" in cost.problem
    both = [played([H200] * 5 + [A100] * 5).state, played([A100] * 5 + [H200] * 5, 500).state]
    [(device, times)] = devices.normalised(devices.trials_on_devices(both)).times.items()
    assert {times.value > 1, device} in ({True, A100}, {False, H200})
    assert max(times.value, 1 / times.value) == pytest.approx(1.7, rel=0.2)


def test_a_trial_that_moves_is_charged_to_both_models():
    desk = at_desk(scheduler="fifo", fidelity={"max": 4}, resources=GPU)
    order = desk.start()
    desk.happen(Placed(0.0, order.id, order.trial, H200, "node-1"))
    for step in (1, 2):
        desk.time += 10
        desk.report(order, step, 1.0)
    desk.fail(order, "infra")
    order = desk.start()
    moved = desk.time
    desk.happen(Placed(moved, order.id, order.trial, A100, "node-2"))
    for step in (3, 4):
        desk.time += 30
        desk.report(order, step, 1.0)
    spent = desk.state.trials["t0001"].devices(desk.time)
    assert spent == {H200: 40.0, A100: 120.0}  # two ranks
    row = summary.trials(desk.state, {})[0]
    assert (row.device, row.node) == (f"{H200}, {A100}", "node-2")
    paces = {row.device: row.pace for row in devices.trials_on_devices([desk.state])}
    assert paces == {H200: 20.0, A100: 60.0}


paces = st.lists(st.floats(0.01, 1e4), min_size=4, max_size=12)


@given(paces, paces, st.floats(0.01, 100))
@settings(max_examples=40, deadline=None)
def test_a_ratio_lies_in_its_interval_and_does_not_depend_on_the_unit(mine, theirs, unit):
    speed = devices.speed(rows(a=mine, b=theirs), "a", "b")
    assert 0 < speed.low <= speed.value <= speed.high
    scaled = devices.speed(rows(a=[unit * pace for pace in mine], b=theirs), "a", "b")
    assert scaled.value == pytest.approx(unit * speed.value)
    back = devices.speed(rows(a=mine, b=theirs), "b", "a")
    assert back.value == pytest.approx(1 / speed.value)
    assert (back.low, back.high) == pytest.approx((1 / speed.high, 1 / speed.low))


def test_the_interval_holds_the_true_ratio_as_often_as_it_says():
    rng = random.Random(0)
    held = 0
    for _ in range(400):
        mine = [1.4 * rng.lognormvariate(0, 0.5) for _ in range(6)]
        theirs = [rng.lognormvariate(0, 0.5) for _ in range(15)]
        speed = devices.speed(rows(a=mine, b=theirs), "a", "b")
        held += speed.holds(1.4)
    assert 0.86 <= held / 400 <= 0.96
