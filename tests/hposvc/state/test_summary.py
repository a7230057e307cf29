"""Summaries of a sweep. If these fail, people and programs read other figures than are recorded."""

import json
import math

import numpy as np
import pytest
from simulated_sweeps import Desk, at_desk, make_controller, make_several, make_spec

from hposvc.events import Attached, Ended, Proposed, Suggested
from hposvc.spec import Metric
from hposvc.state import summary
from searchers.gp.searcher import GaussianProcess
from searchers.searcher import Observation


def test_a_sweep_without_a_driver_is_interrupted_and_so_are_its_trials():
    desk = at_desk()
    desk.happen(Attached(0.0, "here:1"))
    desk.start()
    status = summary.status("s", desk.state, {}, "alive")
    assert (status["state"], status["trials"]["running"]) == ("RUNNING", 1)
    status = summary.status("s", desk.state, {}, "none")
    assert (status["state"], status["trials"]["running"]) == ("INTERRUPTED", 0)
    assert status["trials"]["interrupted"] == status["trials"]["total"] == 1


def test_the_best_trial_has_the_metrics_and_the_checkpoint_of_its_step():
    desk = at_desk()
    assert summary.best("s", desk.state, {}) is None
    order = desk.start()
    desk.report(order, 1, 0.5)
    other = desk.start()
    desk.report(other, 1, 0.7)
    best = summary.best("s", desk.state, {order.trial: "run-1"})
    assert (best["trial"], best["value"], best["metrics"]) == (order.trial, 0.5, {"loss": 0.5})
    assert (best["step"], best["mlflow_run_id"], best["trained_to_end"]) == (1, "run-1", False)
    assert best["checkpoint"] is None, "a simulated checkpoint has no files"
    assert summary.bests(desk.state) == [0.5]


def test_a_model_that_failed_is_a_fallback_whose_cause_is_in_the_status():
    """The searcher's own note, of a fit whose lengthscales overflow."""
    desk = at_desk()
    space, rng = desk.state.spec.space, np.random.default_rng(0)
    fit = {"lengthscales": [1e-300], "noise": 1e-6, "scale": 1.0, "trials": 12}
    notes = [{"model": model, "fits": {"loss": fit}} for model in ("tail", "power")]
    history = [
        Observation(str(i), space.sample(rng), notes[i % 2], loss=1.0 * i, state="done")
        for i in range(12)
    ]
    (proposal,) = GaussianProcess(learned_prior=False).suggest(space, history, 1, rng)
    desk.happen(Proposed(1.0, "t0001", proposal.params, proposal.note, 9))
    proposals = summary.status("s", desk.state, {}, "alive")["proposals"]
    assert proposals["fallbacks"] == 1
    assert proposals["fallback_reason"].startswith("the model failed: ")


def test_all_trials_are_json_though_a_value_is_not_finite():
    desk = at_desk()
    desk.report(desk.start(), 1, math.nan)
    [trial] = summary.trials(desk.state, {})
    assert json.loads(json.dumps(trial, allow_nan=False))["metrics"] == {"loss": None}


def test_several_metrics_have_a_front_in_their_own_signs():
    desk = Desk(make_controller(make_several()))
    assert summary.best("s", desk.state, {}) == []
    assert summary.named(make_several(), (1.0, 2.0)) == [1.0, 2.0]
    assert summary.named(make_spec(), (1.0,)) == 1.0
    assert summary.named(make_spec(), ()) is None


def test_the_worst_value_of_each_metric_follows_its_goal():
    metrics = [Metric("loss", "minimize"), Metric("speed", "maximize")]
    assert summary.worst(metrics, [(1.0, 5.0), (3.0, 9.0)]) == (3.0, 5.0)
    assert summary.worst(metrics, []) is None


@pytest.mark.parametrize(
    ("scheduler", "eta"),
    [
        ({"type": "asha", "eta": 3}, 3),
        ({"type": "hyperband", "eta": 4}, 4),
        ({"type": "fifo"}, None),
    ],
)
def test_rungs_grow_by_the_scheduler_s_factor(scheduler, eta):
    spec = make_spec(scheduler=scheduler, fidelity={"max": 81})
    assert summary.eta_of(spec) == eta


@pytest.mark.parametrize(
    ("declared", "remedy"),
    [("lrr", "did the spec mean it by 'lrr'?"), ("width", "add it there to have it searched")],
)
def test_parameters_that_trials_drew_at_random_are_told_once_with_the_nearest_name(
    declared, remedy
):
    desk = at_desk(parameters={declared: {"min": 0.1, "max": 1.0}})
    assert summary.unsearched(desk.state) == []
    for _ in range(2):
        order = desk.start()
        desk.happen(Suggested(desk.time, order.id, order.trial, "lr", 0.5, {"min": 0, "max": 1}))
    [said] = summary.unsearched(desk.state)
    assert said.startswith("lr is drawn at random, not searched")
    assert said.endswith(remedy)


def test_a_parameter_is_unused_while_no_trial_that_has_it_asked_for_it():
    desk = at_desk(trials={"max": 3}, parameters={"lr": {"min": 0.1, "max": 1.0}, "width": 64})

    def end(names):
        order = desk.start()
        desk.report(order, 9, 0.5)
        desk.happen(Ended(desk.time, order.id, order.trial, "returned", names))

    end(None)  # unknown
    assert summary.unused(desk.state) == []
    end(("lr", "width"))
    assert summary.unused(desk.state) == ["lr"], "constants are not searched"
    [warning] = summary.unsearched(desk.state)
    assert warning.startswith("lr is searched for nothing: no trial has asked for it")
    end(())
    assert summary.unused(desk.state) == []
