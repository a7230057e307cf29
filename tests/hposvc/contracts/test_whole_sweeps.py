"""Whole simulated sweeps of each scheduler that has a reference: they decide as it does, and end.

Decisions alone, of far more sweeps, are compared in tests/hposvc/schedulers.
"""

import asha_reference
import hyperband_reference
import median_reference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from pbt_tables import beside_both
from simulated_sweeps import CALLS, Flaky, Lab, make_controller, make_spec

from hposvc.backends.simulate import Simulation

ETA = st.integers(2, 4)
OPTIONS = {
    "asha": {"eta": ETA, "mode": st.sampled_from(["stop", "promote"])},
    "hyperband": {"eta": ETA},
    "median": {"min_trials": st.integers(1, 5), "interval": st.integers(1, 4)},
    "pbt": {"interval": st.integers(1, 3), "mutate": st.just({"lr": {"min": 1e-4}})},
}
FIRST = {"hyperband": st.integers(1, 3)}  # the other references are told that it is 1
LAST = {
    "hyperband": st.integers(12, 30),  # no less than the largest first * eta
    "pbt": st.integers(4, 12),
}
REFERENCES = {
    "asha": lambda asha, plan: asha_reference.both(asha.mode, asha.eta, plan.first, plan.last),
    "hyperband": lambda bands, plan: hyperband_reference.both(bands.eta, plan.first, plan.last),
    "median": lambda median, plan: median_reference.both(
        median.min_trials, median.interval, plan.first, plan.last
    ),
    "pbt": beside_both,
}


@pytest.mark.parametrize("scheduler", OPTIONS)
@settings(max_examples=20, deadline=None)
@given(
    data=st.data(),
    seed=st.integers(0, 1000),
    slots=st.integers(1, 64),
    most=st.integers(2, 25),
    every=st.integers(1, 3),
    backend=st.sampled_from([Simulation, Flaky]),
)
def test_every_decision_is_that_of_a_rescan(
    tmp_path_factory, scheduler, data, seed, slots, most, every, backend
):
    CALLS.clear()
    options = data.draw(st.fixed_dictionaries(OPTIONS[scheduler]))
    first = data.draw(FIRST.get(scheduler, st.just(1)))
    last = data.draw(LAST.get(scheduler, st.integers(1, 30)))
    spec = make_spec(
        seed=seed,
        fidelity={"min": first, "max": last},
        scheduler={"type": scheduler, **options},
        trials={"max": most, "parallel": slots},
        checkpoints={"every": every},
        failure={"user_retries": 1, "infra_retries": 2},
        engine={"type": "simulate", "curve": "simulated_sweeps:troubled"},
    )
    controller = make_controller(spec)
    controller.scheduler = REFERENCES[scheduler](controller.policy, spec.plan)
    lab = Lab.at(tmp_path_factory.mktemp("sweep"))
    lab.run(spec, backend=backend, controller=controller)
    events = lab.events()
    lab.journal.store.close()
    state = check(spec, events)
    assert len(state.trials) == most
    if scheduler == "hyperband":
        steps = sum(trial.step for trial in state.trials.values())
        assert steps <= hyperband_reference.theory(options["eta"], first, last, most)
    for event in events:
        if event.kind == "ordered" and event.order.parent is not None:
            donor = state.trials[event.order.parent]
            assert event.order.start.path.startswith(f"{donor.id}/")
            assert donor.steps[event.order.start.step] is not None
            spec.space.validate(event.order.params)
