"""Further trainings of a configuration tell the searcher how noisy the loss is."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.gp.fits import MODELS
from searchers.gp.proposer import Proposer
from searchers.gp.searcher import GaussianProcess
from searchers.gp.training_data import Evidence
from searchers.searcher import REPEAT_OF, Observation, call_rng
from searchers.space import Choice, Float, Space

SPACE = Space({"x": Float(0.0, 1.0), "kind": Choice(("a", "b"))})
NOISE = 0.03
GAUSSIAN_PROCESS = GaussianProcess()
REPEATING = GaussianProcess(repeats=True)


def loss(params):
    return (params["x"] - 0.3) ** 2 + 0.1 * (params["kind"] == "b")


def searched(trials, seed, noise=0.0, searcher=GAUSSIAN_PROCESS):
    """Return the history of a search, of which each trial has noise of its own."""
    history = []
    for place in range(trials):
        [proposal] = searcher.suggest(SPACE, history, 1, call_rng(seed, place))
        told = loss(proposal.params) + noise * np.random.default_rng([seed, place, 1]).normal()
        name = str(place)
        history.append(Observation(name, proposal.params, proposal.note, told, state="done"))
    return history


def with_repeats(history, losses, step=1.0):
    return [replace(history[0], repeats=tuple((step, each) for each in losses)), *history[1:]]


def next_note(history, seed=0):
    [proposal] = GaussianProcess().suggest(SPACE, history, 1, call_rng(seed, len(history)))
    return proposal.note


def test_repeats_that_scatter_make_the_model_believe_in_noise():
    history = searched(8, 1, NOISE)
    equal = with_repeats(history, [history[0].loss] * 5)
    scattered = with_repeats(history, [history[0].loss + NOISE * z for z in (-1, 0, 0.5, -0.5, 1)])
    assert NOISE / 10 < next_note(scattered)["noise"] < 4 * NOISE
    assert next_note(equal)["noise"] < 0.5 * next_note(scattered)["noise"]


def test_repeats_are_rows_of_their_trial_at_their_own_step():
    curve = ((1, 0.9), (3, 0.7))
    stopped = Observation("0", {"x": 0.5, "kind": "a"}, {}, 0.7, curve, "done", "rung")
    full = Observation("1", {"x": 0.1, "kind": "a"}, {}, 0.4, ((1, 0.8), (27, 0.4)), "done")
    evidence = Evidence.of([replace(stopped, repeats=((27, 0.5), (27, 0.6))), full])
    assert evidence.trial_R.tolist() == [0, 0, 0, 1, 1]
    at_top = evidence.context_RC[:, 0] == 0.0
    assert evidence.loss_R[at_top].tolist() == [0.5, 0.6, 0.4]


def test_a_repeat_that_still_runs_is_a_running_trial_of_its_own():
    """Its last report is at a step at which no other trial was judged."""
    full = [
        Observation(
            str(i), {"x": 0.1 * i, "kind": "a"}, {}, 0.1 * i, ((1, 1.0), (9, 0.1 * i)), "done"
        )
        for i in range(5)
    ]
    note = {"source": "repeat", REPEAT_OF: "0"}
    running = Observation("5", full[0].params, note, 0.9, ((1, 1.0), (3, 0.9)), "pending")
    evidence = Evidence.of([*full, running])
    assert evidence.context_RC.shape == (5, 0)
    assert evidence.pending == [running.params]


def test_the_best_trial_stays_among_the_rows_when_its_repeat_is_stopped_early():
    history = [
        Observation(
            str(i), {"x": 0.01 * i, "kind": "a"}, {}, 0.1 * i, ((1, 9.0), (9, 0.1 * i)), "done"
        )
        for i in range(30)
    ]
    stopped = Observation(
        "30", history[0].params, {REPEAT_OF: "0"}, 9.5, ((1, 9.5),), "done", "rung"
    )
    assert history[0].params in Evidence.of([*history, stopped]).bounded(20).params


def test_a_trial_that_was_repeated_all_the_time_leaves_others_room():
    """In a long search one trial has more repeats than a model is given rows."""
    history = [
        Observation(str(i), {"x": 0.001 * i, "kind": "a"}, {}, 1.0 + i, state="done")
        for i in range(300)
    ]
    again = with_repeats(history, [1.0] * 200, math.inf)
    bounded = Evidence.of(again).bounded(240)
    assert len(bounded.loss_R) == 240
    assert [round(1000 * params["x"]) for params in bounded.params[:80]] == [*range(80)]


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
    st.sampled_from([GAUSSIAN_PROCESS, REPEATING]),
)
def test_any_repeats_leave_the_searcher_pure_and_its_proposals_new(
    losses, state, trials, seed, searcher
):
    history = searched(trials, seed)
    first = replace(history[0], state=state, loss=history[0].loss if state == "done" else None)
    history = with_repeats([first, *history[1:]], losses)
    proposals = searcher.suggest(SPACE, history, 2, call_rng(seed, trials))
    assert proposals == searcher.suggest(SPACE, history, 2, call_rng(seed, trials))
    repeats = [one.note[REPEAT_OF] for one in proposals if REPEAT_OF in one.note]
    assert set(repeats) <= {seen.id for seen in history if seen.state == "done"}
    keys = {SPACE.key(seen.params) for seen in (*history, *proposals)}
    assert len(keys) == trials + 2 - len(repeats)
    assert all(np.isfinite(one.note.get("noise", 0.0)) for one in proposals)


def test_every_fifth_trial_repeats_the_best_of_the_predictions_where_there_is_noise():
    history = searched(24, seed=0, noise=NOISE, searcher=REPEATING)
    repeats = {place: seen.note for place, seen in enumerate(history) if REPEAT_OF in seen.note}
    assert list(repeats) == [8, 13, 18, 23]
    for place, note in repeats.items():
        original = history[int(note[REPEAT_OF])]
        assert (original.params, note["source"]) == (history[place].params, "repeat")
        assert REPEAT_OF not in original.note
        assert int(original.id) < place
    others = [SPACE.key(seen.params) for seen in history if REPEAT_OF not in seen.note]
    assert len({*others}) == len(others) == 20


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 3))
def test_results_of_repeats_count_for_the_configuration_in_any_form(order, copies):
    """A repeat that is a trial of its own is like one that came with its trial."""
    history = searched(6, seed=1, noise=NOISE)
    losses = [history[0].loss + 0.01 * index for index in range(copies)]
    trials = [
        Observation(f"r{i}", history[0].params, {REPEAT_OF: "0"}, each, state="done")
        for i, each in enumerate(losses)
    ]
    one = Evidence.of([*(history[place] for place in order), *trials])
    other = Evidence.of([with_repeats(history, losses, math.inf)[place] for place in order])
    assert one.params == other.params
    assert one.loss_R.tolist() == other.loss_R.tolist()
    assert one.trial_R.tolist() == other.trial_R.tolist()
    assert np.count_nonzero(one.first_R) == 6


@pytest.mark.parametrize("outcome", [{"losses": (1.0, 2.0)}, {"loss": 1.0, "excess": (0.5,)}])
def test_with_several_metrics_or_limits_nothing_is_repeated_and_repeats_do_not_count(outcome):
    rng = np.random.default_rng(0)
    history = [
        Observation(str(place), SPACE.sample(rng), state="done", **outcome) for place in range(13)
    ]
    repeated = with_repeats(history, [1.0, 5.0])
    proposals = [
        searcher.suggest(SPACE, seen, 1, call_rng(0, 13))
        for searcher in (GAUSSIAN_PROCESS, REPEATING)
        for seen in (history, repeated)
    ]
    assert all(each == proposals[0] for each in proposals)
    assert proposals[0][0].note["source"] == "model"
