"""PBT in whole simulated sweeps, and specs that it refuses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from pbt_tables import beside_both
from simulated_sweeps import CALLS, Flaky, make_controller, make_spec

from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import SyncProposer
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.spec import SpecError, load
from searchers.random_search import Random as RandomSearch

SPEC = """\
engine: {type: simulate, curve: "some:curve"}
metric: {name: loss, goal: minimize}
fidelity: {max: 8}
parameters:
  lr: {min: 1e-4, max: 1e-1, log: true}
  width: 64
trials: {max: 10}
scheduler:
  type: pbt
  interval: 2
  mutate:
    lr: {}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "    lr: {}",
            "    lrr: {}",
            "12:5: scheduler.mutate.lrr: no such parameter; did you mean",
        ),
        ("    lr: {}", "    width: [8, 64]", "12:12: scheduler.mutate.width: is a constant of 64;"),
        ("lr: {}", "lr: [0.01, 0.5]", "12:16: scheduler.mutate.lr[1]: is 0.5, outside 0.0001"),
        ("lr: {}", "lr: wide", "12:9: scheduler.mutate.lr: is 'wide'; give a range"),
        ("interval: 2", "interval: 8", "10:13: scheduler.interval: is 8, and no multiple of it"),
        ("{max: 10}", "{max: 1}", "7:15: trials.max: is 1; scheduler pbt takes it for the pop"),
        (
            "trials: {max: 10}",
            "budget: {wall: 1h}",
            "spec.yaml:1:1: trials.max: is missing; scheduler",
        ),
        ("fidelity: {max: 8}", "", "fidelity: is missing; scheduler pbt must know"),
        ("interval: 2", "quantille: 1", "10:3: scheduler.quantille: no such key; did you mean"),
    ],
)
def test_a_spec_that_does_not_fit_says_where(tmp_path, old, new, message):
    assert old in SPEC
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC.replace(old, new))
    with pytest.raises(SpecError) as caught:
        load(file)
    assert message in str(caught.value)


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
    folder = tmp_path_factory.mktemp("sweep")
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
    journal = Journal(Store(f"sqlite:///{folder / 'x.db'}"))
    Runner(
        "s",
        controller,
        backend(Setting("s", spec, folder, folder)),
        SyncProposer(spec, RandomSearch()),
        journal,
        Lease(journal.store, "s"),
    ).run("here:1")
    events = [event for _, event in journal.read("s")]
    state = check(spec, events)
    for event in events:
        if event.kind == "ordered" and event.order.parent is not None:
            donor = state.trials[event.order.parent]
            assert event.order.start.path.startswith(f"{donor.id}/")
            assert donor.steps[event.order.start.step] is not None
            spec.space.validate(event.order.params)
    journal.store.close()
