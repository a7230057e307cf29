"""ASHA against a reference that rescans all trials, and against what the paper promises."""

import math
import sys
from itertools import pairwise
from random import Random

import pytest
from asha_reference import Cluster, both
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import make_spec

from hposvc.schedulers.asha import Asha
from hposvc.schedulers.scheduler import (
    Advance,
    Closed,
    NewTrial,
    Ordered,
    Paused,
    Plan,
    Report,
    SearchDone,
    rungs,
)
from hposvc.state import summary


@settings(max_examples=500, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    mode=st.sampled_from(["stop", "promote"]),
    eta=st.integers(2, 4),
    first=st.integers(1, 3),
    last=st.integers(3, 30),
    slots=st.integers(1, 64),
    most=st.integers(1, 40),
)
def test_decisions_are_those_of_a_rescan_and_the_sweep_ends(
    seed, mode, eta, first, last, slots, most
):
    rng = Random(seed)
    cluster = Cluster(both(mode, eta, first, last), rng, rungs(first, last, eta), most)
    for _ in range(5_000):
        if len(cluster.running) < slots and rng.random() < 0.7:
            if isinstance(cluster.fill(), SearchDone):
                break
        elif cluster.running:
            cluster.advance()
        elif rng.random() < 0.001:
            cluster.close()  # the space is used up
    else:
        pytest.fail("the sweep does not end")
    assert not cluster.running
    assert cluster.trials <= most


def test_a_diverged_trial_is_never_promoted_though_its_rung_has_room():
    scheduler = Asha(eta=2, mode="promote").scheduler(Plan(1, 4))
    for number in range(4):
        scheduler.apply(Ordered(f"t{number}", 1))
        scheduler.apply(Report(f"t{number}", 1, math.inf))
        scheduler.apply(Paused(f"t{number}"))
    scheduler.apply(Closed())
    assert scheduler.next() == SearchDone()


def test_algorithm_2_promotes_the_best_third_of_a_rung_best_first():
    scheduler = Asha(eta=3, mode="promote").scheduler(Plan(1, 9))
    for number, loss in enumerate([0.6, 0.2, 0.5, 0.1, 0.4, 0.3]):
        scheduler.apply(Ordered(f"t{number}", 1))
        scheduler.apply(Report(f"t{number}", 1, loss))
        scheduler.apply(Paused(f"t{number}"))
    assert scheduler.next() == Advance("t3", 3)
    scheduler.apply(Ordered("t3", 3))
    assert scheduler.next() == Advance("t1", 3)
    scheduler.apply(Ordered("t1", 3))
    assert scheduler.next() == NewTrial(1)


@pytest.mark.parametrize("mode", ["stop", "promote"])
def test_resources_stay_near_one_in_eta_of_each_rung(mode, lab):
    spec = make_spec(
        fidelity={"min": 1, "max": 27},
        scheduler={"type": "asha", "mode": mode},
        trials={"max": 400, "parallel": 16},
    )
    state = lab.run(spec)
    steps = [trial.step for trial in state.trials.values()]
    reached = {rung: sum(step >= rung for step in steps) for rung in (1, 3, 9, 27)}
    for rung, after in pairwise(reached):
        share, slack = reached[rung] / 3, 3 * math.sqrt(reached[rung]) + 3
        assert share - slack <= reached[after] <= share + slack
    assert set(steps) <= set(reached)
    # Every trial to its end would cost 27 steps each; four rungs of nine steps' worth are theory.
    assert sum(steps) < 400 * 4 * 1.2


@pytest.mark.parametrize("mode", [pytest.param("stop", marks=pytest.mark.full), "promote"])
def test_a_late_event_costs_as_much_as_an_early_one(mode, lab):
    """Count the Python calls per event of the whole loop, in two windows of a sweep."""
    most, calls = 2_000, 0

    def count(frame, kind, argument):
        nonlocal calls
        calls += kind in ("call", "c_call")

    early_on, late_on = most // 20, most * 3 // 4
    windows = dict.fromkeys([early_on, early_on * 2, late_on, late_on + early_on])
    events = 0

    class Meter:
        def on_events(self, state, written):
            nonlocal events
            events += len(written)
            for trials, seen in windows.items():
                if seen is None and len(state.trials) >= trials:
                    windows[trials] = (events, calls)
                    sys.setprofile(count if trials in (early_on, late_on) else None)

    spec = make_spec(
        fidelity={"max": 27},
        scheduler={"type": "asha", "mode": mode},
        trials={"max": most, "parallel": 8},
    )
    try:
        state = lab.run(spec, watchers=[Meter()])
    finally:
        sys.setprofile(None)
    assert (len(state.trials), state.state) == (most, "COMPLETED")
    (e0, c0), (e1, c1), (e2, c2), (e3, c3) = windows.values()
    early, late = (c1 - c0) / (e1 - e0), (c3 - c2) / (e3 - e2)
    assert late < 1.3 * early


def test_a_best_trial_that_nobody_promoted_is_told_with_how_it_goes_on(lab):
    spec = make_spec(
        trials={"max": 6, "parallel": 1},
        fidelity={"min": 1, "max": 9},
        scheduler={"type": "asha", "eta": 3, "mode": "promote"},
    )
    state = lab.run(spec)
    best = state.trials[state.best]
    assert (state.state, best.state, best.step) == ("COMPLETED", "STOPPED", 3)
    message = summary.untrained("s", state)
    assert f"{best.id}, was trained to step 3 of 9" in message
    assert "hposvc extend s --trials 3;" in message
    assert summary.best("s", state, {}).trained_to_end is False
    lab.journal.request("s", "extend", None, {"trials.max": 9})
    state = lab.run(spec)
    assert summary.untrained("s", state) == ""
    assert summary.best("s", state, {}).trained_to_end is True
