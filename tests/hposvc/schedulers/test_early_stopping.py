"""Early stopping of trials that no longer improve, under every scheduler."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from simulated_sweeps import Flaky, Lab, at_desk, make_spec

from hposvc.backends.simulate import Simulation
from hposvc.events import Attached, Decided
from hposvc.schedulers.early_stopping import EarlyStopping, Plateau
from hposvc.schedulers.scheduler import Report

RESTING = {"type": "simulate", "curve": f"{__name__}:resting"}


def resting(params, step):
    """Return a loss that falls until a step that depends on the trial, and then stays there."""
    return {"loss": 1 / min(step, 2 + int(params["lr"] * 1e9) % 9)}, 1.0


def stops_at(losses, patience, delta=0.0, steps=None):
    """Return the step at which a trial with these losses is stopped; None: it runs to its end."""
    stopping = EarlyStopping(Plateau(patience, delta))
    for step, loss in zip(steps or range(1, len(losses) + 1), losses, strict=True):
        stopping.apply(Report("t", step, loss))
        if stopping.judge("t", step) is not None:
            return step
    return None


def test_patience_counts_steps_not_reports():
    assert stops_at([3, 2, 2, 1], patience=10, steps=[5, 10, 15, 20]) is None
    assert stops_at([3, 2, 2, 1], patience=5, steps=[5, 10, 15, 20]) == 15


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30), st.integers(1, 6), st.integers(0, 3))
def test_it_is_the_step_that_a_scan_of_the_whole_curve_finds(losses, patience, delta):
    low, since, expected = math.inf, 0, None
    for step, loss in enumerate(losses, 1):
        if loss < low - delta:
            low, since = loss, step
        window = losses[since : since + patience]
        if len(window) == patience and all(later >= low - delta for later in window):
            expected = since + patience
            break
    assert stops_at(losses, patience, delta) == expected


SCHEDULERS = [
    {"type": "fifo"},
    {"type": "asha"},
    {"type": "asha", "mode": "promote"},
    {"type": "hyperband"},
    {"type": "median", "min_trials": 2},
    {"type": "pbt", "interval": 4, "mutate": {"lr": {}}},
    {"type": "hposvc.schedulers.fifo:Fifo"},
]


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000),
    scheduler=st.sampled_from(SCHEDULERS),
    patience=st.integers(1, 8),
    delta=st.sampled_from([0.0, 0.001, 0.1]),
    slots=st.integers(1, 64),
    most=st.integers(2, 30),
    backend=st.sampled_from([Simulation, Flaky]),
)
def test_no_trial_goes_on_beyond_its_patience_under_any_scheduler(
    tmp_path_factory, seed, scheduler, patience, delta, slots, most, backend
):
    folder = tmp_path_factory.mktemp("sweep")
    lab = Lab.at(folder)
    spec = make_spec(
        seed=seed,
        engine=RESTING,
        fidelity={"max": 27},
        scheduler={**scheduler, "plateau": {"patience": patience, "delta": delta}},
        trials={"max": most, "parallel": slots},
        failure={"infra_retries": 1000},
    )
    lab.run(spec, backend=backend)
    state = check(spec, lab.events())
    lab.journal.store.close()
    for trial in state.trials.values():
        if trial.reason == "plateau":
            assert trial.best[0] in {saved.step for saved in trial.usable()}
        if scheduler["type"] == "pbt":
            continue  # a pause that is due comes first, and a copy is a gain
        falls = min(step for step, value in trial.curve if value == trial.best[1])
        assert trial.step <= falls + patience + 1  # a step may be under way at the stop


def test_the_value_is_what_select_says_and_the_checkpoint_is_of_its_step():
    for select, value, step in (("last", 0.8, 5), ("best", 0.5, 2)):
        desk = at_desk(
            metric={"name": "loss", "goal": "minimize", "select": select},
            scheduler={"type": "fifo", "plateau": {"patience": 3}},
        )
        order = desk.start()
        for at, loss in enumerate([1.0, 0.5, 0.6, 0.7], 1):
            assert desk.report(order, at, loss) == []
        [decided] = desk.report(order, 5, 0.8)
        assert isinstance(decided, Decided)
        assert (decided.verdict, decided.reason) == ("stop", "plateau")
        desk.end(order)
        trial = desk.state.trials[order.trial]
        assert (trial.state, trial.reason, trial.value) == ("STOPPED", "plateau", value)
        assert trial.selected[0] == step
        assert trial.checkpoint_at(step) is not None


def test_a_trial_at_rest_is_not_gone_on_with_after_a_crash():
    """The driver died between the report and the decision."""
    desk = at_desk(scheduler={"type": "fifo", "plateau": {"patience": 2}})
    order = desk.start()
    for step in (1, 2, 3):
        desk.report(order, step, 0.5)
    again = at_desk(scheduler={"type": "fifo", "plateau": {"patience": 2}})
    for event in desk.log[:-1]:
        again.controller.apply(event)
    [decided] = again.happen(Attached(1.0, "here:2"))
    assert (decided.reason, again.state.trials[order.trial].state) == ("plateau", "STOPPED")
