"""PBT in whole simulated sweeps, and specs that it refuses."""

from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from pbt_tables import beside_both
from simulated_sweeps import CALLS, Flaky, Lab, make_controller, make_spec

from hposvc.backends.simulate import Simulation


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    interval=st.integers(1, 3),
    last=st.integers(4, 12),
    slots=st.integers(1, 64),
    members=st.integers(2, 10),
    every=st.integers(1, 3),
    backend=st.sampled_from([Simulation, Flaky]),
)
def test_whole_sweeps_decide_as_a_rescan_and_their_lineage_is_sound(
    tmp_path_factory, seed, interval, last, slots, members, every, backend
):
    CALLS.clear()
    lab = Lab.at(tmp_path_factory.mktemp("sweep"))
    spec = make_spec(
        seed=seed,
        fidelity={"max": last},
        scheduler={"type": "pbt", "interval": interval, "mutate": {"lr": {"min": 1e-4}}},
        trials={"max": members, "parallel": slots},
        checkpoints={"every": every},
        failure={"user_retries": 1, "infra_retries": 9},
        engine={"type": "simulate", "curve": "simulated_sweeps:troubled"},
    )
    controller = make_controller(spec)
    controller.scheduler = beside_both(controller.policy, spec.plan)
    lab.run(spec, backend=backend, controller=controller)
    events = lab.events()
    state = check(spec, events)
    for event in events:
        if event.kind == "ordered" and event.order.parent is not None:
            donor = state.trials[event.order.parent]
            assert event.order.start.path.startswith(f"{donor.id}/")
            assert donor.steps[event.order.start.step] is not None
            spec.space.validate(event.order.params)
    lab.journal.store.close()
