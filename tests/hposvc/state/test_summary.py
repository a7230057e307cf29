"""Summaries of a sweep. If these fail, people and programs read other figures than are recorded."""

import numpy as np
from simulated_sweeps import at_desk

from hposvc.events import Ended, Proposed
from hposvc.state import summary
from searchers.gp.searcher import GaussianProcess
from searchers.searcher import Observation


def test_the_best_trial_has_the_metrics_and_the_checkpoint_of_its_step():
    desk = at_desk()
    assert summary.best("s", desk.state, {}) is None
    order = desk.start()
    desk.report(order, 1, 0.5)
    other = desk.start()
    desk.report(other, 1, 0.7)
    best = summary.best("s", desk.state, {order.trial: "run-1"})
    assert (best.trial, best.value, best.metrics) == (order.trial, 0.5, {"loss": 0.5})
    assert (best.step, best.mlflow_run_id, best.trained_to_end) == (1, "run-1", False)
    assert best.checkpoint is None, "a simulated checkpoint has no files"
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
    proposals = summary.status("s", desk.state, {}, "alive").proposals
    assert proposals.fallbacks == 1
    assert proposals.fallback_reason.startswith("the model failed: ")


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
