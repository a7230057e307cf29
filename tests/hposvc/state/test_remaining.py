import math
import random
from dataclasses import replace

import pytest
import sweep_stories
from simulated_sweeps import Lab, make_spec
from sweep_stories import report

from hposvc import spec as specs
from hposvc.events import Attached
from hposvc.spec.sections import Price
from hposvc.spec.stopping import Budget
from hposvc.state.remaining import remaining
from hposvc.state.sweep import SweepState
from hposvc.views.dashboard import time_left


def uneven(params, step):
    """Return a noisy loss, in steps of ten seconds more or less, which are the trial's own."""
    rng = random.Random(int(params["lr"] * 1e12) + step * 7919)
    rate = math.log10(params["lr"]) + 3
    loss = rate**2 + 3 / step + rng.gauss(0, 0.3)
    return {"loss": loss}, 10 * 10 ** (0.12 * rate) * rng.uniform(0.8, 1.25)


def looks(folder, shares=(0.25, 0.5, 0.75, 0.9), **sections):
    """Run a sweep, and yield what was said to remain at these shares of its time, and the truth."""
    spec = make_spec(
        fidelity={"max": 27},
        trials={"max": 60, "parallel": 4},
        engine={"type": "simulate", "curve": "test_remaining:uneven"},
        **sections,
    )
    lab = Lab.at(folder)
    end_s = lab.run(spec).worked_s
    state, left = SweepState(spec), list(shares)
    for event in lab.events():
        state.apply(event)
        if left and state.worked_s >= left[0] * end_s:
            left.pop(0)
            yield remaining(state), end_s - state.worked_s
    lab.journal.store.close()


@pytest.mark.parametrize("scheduler", ["fifo", "asha", {"type": "asha", "mode": "promote"}])
def test_the_range_mostly_holds_the_truth(tmp_path, monkeypatch, scheduler):
    monkeypatch.syspath_prepend(str(__file__).rpartition("/")[0])
    seen = []
    for seed in range(4):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        seen += looks(folder, scheduler=scheduler, seed=seed)
    held = [said.holds(truth) for said, truth in seen]
    assert sum(held) >= 0.6 * len(held)
    middle = sorted(said.value / truth for said, truth in seen)[len(seen) // 2]
    assert 0.7 < middle < 1.4


def test_nothing_is_made_up_where_nothing_is_known(tmp_path):
    state = SweepState(make_spec())
    assert remaining(state) is None
    state.apply(Attached(0.0, "here:1"))
    assert remaining(state) is None
    hyperband = SweepState(make_spec(scheduler="hyperband"))
    begin(hyperband)
    assert remaining(hyperband) is None  # how far its trials come depends on brackets to come


def begin(state, time=0.0, step=3):
    """Begin a trial, and let it report a step each second."""
    reports = [report(1, time + each, each, 1.0) for each in range(1, step + 1)]
    begun = sweep_stories.begin(1, time, until=state.spec.last_step)
    for event in [Attached(time, "here:1"), *begun, *reports]:
        state.apply(event)


def test_one_trial_of_known_length_takes_its_own_time():
    state = SweepState(make_spec(trials={"max": 1, "parallel": 1}, search="random"))
    begin(state)
    left = remaining(state)
    assert left.value == pytest.approx(6.0, rel=0.3)  # six of nine steps, a second each
    assert left.low < 6.0 < left.high
    assert time_left(state, state.elapsed_s + 10.0).value == 0.0


def test_a_budget_ends_the_sweep_whatever_is_left():
    spec = specs.load({**specs.dump(make_spec()), "budget": {"wall": "5s"}})
    state = SweepState(spec)
    begin(state)
    assert remaining(state).high == 2.0
    state.spec = replace(spec, budget=Budget(cost=0.5), price=Price(worker_hour=360))
    assert remaining(state).high == pytest.approx(2.0)
    endless = make_spec(trials={"parallel": 1}, budget={"wall": "1h"}, search="random")
    state = SweepState(endless)
    begin(state)
    assert (remaining(state).low, remaining(state).high) == (0.0, 3597.0)
