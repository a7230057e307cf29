"""The rows, failures and pending trials of a history, and the trials that are kept."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.gp.training_data import Evidence
from searchers.searcher import Observation


def seen(name, **rest):
    return Observation(name, {"x": int(name) / 100.0}, **rest)


def done(name, loss, **rest):
    return seen(name, loss=loss, state="done", **rest)


def failed(name, reason="oom"):
    return seen(name, state="failed", reason=reason)


def places(configurations):
    return [round(params["x"] * 100) for params in configurations]


def test_losses_failures_and_pending_trials_are_told_apart():
    history = [done("0", 0.5), failed("1", "diverged"), seen("2"), done("3", 0.1)]
    evidence = Evidence.of(history)
    assert places(evidence.params) == [0, 3]
    assert evidence.trial_R.tolist() == [0, 1]
    assert evidence.loss_R.tolist() == [0.5, 0.1]
    assert evidence.context_RC.shape == (2, 0)
    assert places(evidence.failed) == [1]
    assert places(evidence.pending) == [2]


def test_losses_at_different_steps_are_rows_at_different_steps():
    """Otherwise a loss after one step counts as one after nine, or does not count."""
    short = [done(str(i), 9.0, curve=((1, 9.0),)) for i in range(3)]
    long = [done(str(i), 0.1, curve=((1, 5.0), (9, 0.1))) for i in range(3, 6)]
    evidence = Evidence.of([*short, *long])
    assert evidence.trial_R.tolist() == [0, 1, 2, 3, 3, 4, 4, 5, 5]
    assert evidence.loss_R.tolist() == [9.0, 9.0, 9.0, 5.0, 0.1, 5.0, 0.1, 5.0, 0.1]
    early = -np.log(9.0) / np.log(27.0)
    expected_R = [early, early, early, early, 0.0, early, 0.0, early, 0.0]
    np.testing.assert_allclose(evidence.context_RC[:, 0], expected_R)


def test_a_running_trial_that_reached_a_step_is_a_result_there_and_still_pending():
    history = [done(str(i), 1.0, curve=((3, 1.0),)) for i in range(4)]
    evidence = Evidence.of([*history, seen("9", curve=((3, 0.7),))])
    assert evidence.loss_R.tolist() == [1.0, 1.0, 1.0, 1.0, 0.7]
    assert places(evidence.pending) == [9]


def test_the_step_has_a_column_in_which_the_highest_is_zero():
    """The model is queried at zero, so zero must stand for the highest step."""
    trials = [done("1", 0.9, curve=((1, 0.9),)), done("2", 0.5, curve=((1, 0.8), (27, 0.5)))]
    np.testing.assert_allclose(Evidence.of(trials).context_RC, [[-1.0], [-1.0], [0.0]])
    assert Evidence.of([done("1", 0.9)]).context_RC.shape == (1, 0)


def test_the_best_half_and_the_latest_others_are_kept_in_order():
    losses = [0.0, 9.0, 8.0, 0.1, 7.0, 6.0, 5.0, 0.2]
    evidence = Evidence.of([done(str(i), loss) for i, loss in enumerate(losses)])
    kept = evidence.bounded(4)
    assert kept.loss_R.tolist() == [0.0, 0.1, 5.0, 0.2]
    assert places(kept.params) == [0, 3, 6, 7]
    assert kept.trial_R.tolist() == [0, 1, 2, 3]
    assert evidence.bounded(8).loss_R.tolist() == losses


def test_trials_that_went_furthest_are_kept_before_better_losses_at_lower_steps():
    """Otherwise low losses of another step push out the relevant rows."""
    stopped = [done(str(i), 0.0, curve=((1, 0.0),)) for i in range(6)]
    ended = [done(str(i), 5.0 + i, curve=((27, 5.0 + i),)) for i in range(6, 14)]
    kept = Evidence.of([*stopped, *ended]).bounded(6)
    assert places(kept.params) == [6, 7, 8, 11, 12, 13]


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=30),
    most=st.integers(8, 40),
    seed=st.integers(0, 99),
)
def test_what_is_kept_is_whole_trials_within_the_bound(lengths, most, seed):
    """Otherwise a long sweep slows down with its length, or a trial loses its last step."""
    rng = np.random.default_rng(seed)
    history = []
    for place, length in enumerate(lengths):
        curve = tuple((3**step, rng.random()) for step in range(length))
        history.append(done(str(place), curve[-1][1], curve=curve))
    extra = [failed(str(50 + i)) for i in range(45)] + [seen(str(i)) for i in range(45)]
    evidence = Evidence.of([*history, *extra])
    kept = evidence.bounded(most)
    assert len(kept.loss_R) == len(kept.trial_R) == len(kept.context_RC) <= most
    assert len(kept.failed) == len(kept.pending) == most
    rows = {place: [] for place in places(evidence.params)}
    for trial, loss in zip(evidence.trial_R, evidence.loss_R, strict=True):
        rows[places(evidence.params)[trial]].append(loss)
    for trial, place in enumerate(places(kept.params)):
        assert kept.loss_R[kept.trial_R == trial].tolist() == rows[place]
    if len(evidence.loss_R) > most:
        assert places(kept.params)[-1] == len(lengths) - 1
