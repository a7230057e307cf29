"""Further trainings of a configuration tell the searcher how noisy the loss is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.gp.fits import MODELS
from searchers.gp.proposer import Proposer
from searchers.gp.searcher import GaussianProcess
from searchers.gp.training_data import Evidence
from searchers.searcher import Observation, call_rng
from searchers.space import Choice, Float, Space

SPACE = Space({"x": Float(0.0, 1.0), "kind": Choice(("a", "b"))})
NOISE = 0.2


def loss(params):
    return (params["x"] - 0.3) ** 2 + 0.1 * (params["kind"] == "b")


def searched(trials, seed, **first):
    """Return the history of a search without noise, whose first trial has these fields too."""
    history = []
    for place in range(trials):
        rng = call_rng(seed, place)
        [proposal] = GaussianProcess().suggest(SPACE, history, 1, rng)
        seen = Observation(
            str(place), proposal.params, proposal.note, loss=loss(proposal.params), state="done"
        )
        history.append(replace(seen, **first) if place == 0 else seen)
    return history


def with_repeats(history, losses, step=1):
    return [replace(history[0], repeats=tuple((step, each) for each in losses)), *history[1:]]


def next_note(history, seed=0):
    [proposal] = GaussianProcess().suggest(SPACE, history, 1, call_rng(seed, len(history)))
    return proposal.note


@pytest.mark.parametrize("trials", [5, 8])
def test_repeats_that_scatter_make_the_model_believe_in_noise(trials):
    history = searched(trials, seed=1)
    equal = with_repeats(history, [history[0].loss] * 5)
    scatter = [history[0].loss + NOISE * z for z in (-1.5, -0.5, 0.2, 0.6, 1.2)]
    scattered = with_repeats(history, scatter)
    assert next_note(equal)["noise"] < 0.1 * NOISE
    assert NOISE / 3 < next_note(scattered)["noise"] < 3 * NOISE


def test_repeats_are_rows_of_their_trial_at_their_own_step():
    curve = ((1, 0.9), (3, 0.7))
    stopped = Observation("0", {"x": 0.5, "kind": "a"}, {}, 0.7, curve, "done", "rung")
    full = Observation("1", {"x": 0.1, "kind": "a"}, {}, 0.4, ((1, 0.8), (27, 0.4)), "done")
    evidence = Evidence.of([replace(stopped, repeats=((27, 0.5), (27, 0.6))), full])
    assert evidence.trial_R.tolist() == [0, 0, 0, 1, 1]
    at_top = evidence.context_RC[:, 0] == 0.0
    assert evidence.loss_R[at_top].tolist() == [0.5, 0.6, 0.4]


def test_a_trial_that_still_runs_counts_by_its_repeats():
    running = Observation("0", {"x": 0.5, "kind": "a"}, repeats=((9, 0.5),))
    evidence = Evidence.of([running])
    assert (evidence.loss_R.tolist(), len(evidence.params)) == ([0.5], 1)


def test_the_mean_at_a_repeated_configuration_is_nearer_to_the_average_of_its_results():
    history = searched(8, seed=2)
    lucky = [replace(history[0], loss=history[0].loss - 0.3), *history[1:]]
    repeated = with_repeats(lucky, [history[0].loss + 0.01 * z for z in (-1, 0, 1, 2, -2)])
    fitted = {}
    for name, seen in {"alone": lucky, "repeated": repeated}.items():
        proposer = Proposer.of(SPACE, MODELS[1], Evidence.of(seen))
        process = proposer.posterior(proposer.fitted([], 8, np.random.default_rng(0)))
        fitted[name] = proposer.predicted(process, history[0].params)
    assert fitted["repeated"][0] > fitted["alone"][0] + 0.1


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(-1e3, 1e3) | st.sampled_from([1e300, -1e300]), max_size=6),
    st.sampled_from(["done", "pending", "failed"]),
    st.integers(1, 9),
    st.integers(0, 5),
)
def test_any_repeats_leave_the_searcher_pure_and_its_proposals_new(losses, state, trials, seed):
    history = searched(trials, seed)
    first = replace(history[0], state=state, loss=history[0].loss if state == "done" else None)
    history = with_repeats([first, *history[1:]], losses)
    proposals = GaussianProcess().suggest(SPACE, history, 2, call_rng(seed, trials))
    assert proposals == GaussianProcess().suggest(SPACE, history, 2, call_rng(seed, trials))
    keys = {SPACE.key(seen.params) for seen in (*history, *proposals)}
    assert len(keys) == trials + 2
    assert all(np.isfinite(one.note.get("noise", 0.0)) for one in proposals)
