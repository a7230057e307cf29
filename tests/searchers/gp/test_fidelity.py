"""Partial results as rows: which trials count at which step, and the learned final loss."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from searchers.gp.fidelity import MIN_STEP_RATIO, AtMaxFidelity, MultiFidelityRows, with_context
from searchers.gp.model import Hyperparameters, Posterior, Rows, dimension_scaled_prior, fit
from searchers.searcher import Observation


def seen(id, curve=(), state="done", reason="", loss=None):
    if curve and loss is None and state == "done":
        loss = curve[-1][1]
    return Observation(id, {"x": id}, {}, loss, tuple(curve), state, reason)


RUNGS = [  # a successive halving: a stops at 1, b at 3, c at the end
    seen("a", [(1, 0.9)], reason="rung"),
    seen("b", [(1, 0.8), (2, 0.75), (3, 0.7)], reason="rung"),
    seen("c", [(step, 0.7 - step / 100) for step in range(1, 28)]),
]


def table(history):
    """Return (trial, factor below the highest step, loss) of each row."""
    staged = MultiFidelityRows.of(history)
    below = np.round(27.0**-staged.column_R, 6)
    return list(zip(staged.trial_R.tolist(), below.tolist(), staged.loss_R.tolist(), strict=True))


def test_each_trial_counts_at_every_rung_that_it_reached():
    assert table(RUNGS) == [
        (0, 27.0, 0.9),
        (1, 27.0, 0.8),
        (1, 9.0, 0.7),
        (2, 27.0, 0.69),
        (2, 9.0, pytest.approx(0.67)),
        (2, 1.0, pytest.approx(0.43)),
    ]


def test_a_running_trial_counts_at_the_rungs_that_it_passed_and_not_where_it_happens_to_be():
    running = seen("d", [(1, 0.5), (2, 0.4), (3, 0.3), (4, 0.2)], state="pending")
    assert table([*RUNGS, running])[-2:] == [(3, 27.0, 0.5), (3, 9.0, 0.3)]


def test_failed_trials_are_marked_at_the_highest_step_unless_it_was_not_their_fault():
    """A diverged trial's early losses would praise the configuration that broke down."""
    diverged = seen("d", [(1, 0.1), (2, math.nan)], state="failed", reason="diverged")
    preempted = seen("e", [(1, 0.2), (3, 0.1)], state="failed", reason="preempt")
    rows = table([*RUNGS, diverged, preempted])
    assert rows[-3][:2] == (3, 1.0)
    assert math.isnan(rows[-3][2])
    assert rows[-2:] == [(4, 27.0, 0.2), (4, 9.0, 0.1)]


@pytest.mark.parametrize(
    "history",
    [
        [],
        [seen("a", state="pending")],
        [seen("a", loss=0.3), seen("b", [(5, 0.2)])],
        [seen("a", [(1, 0.9), (27, 0.5)]), seen("b", [(1, 0.8), (9, 0.6)], state="pending")],
        [seen("a", [(9, math.nan)], state="failed", reason="diverged")],
    ],
)
def test_a_history_without_partial_results_needs_no_column(history):
    """Otherwise a sweep without early stopping would fit a lengthscale without any data on it."""
    assert not MultiFidelityRows.of(history).column_R.any()


def test_trials_that_end_anywhere_do_not_multiply_the_rows():
    """A plateau rule ends trials at all steps; rows at each of them would cost O(N^3 S^3)."""
    history = [seen(str(n), [(step, 1.0) for step in range(1, n + 1)]) for n in range(1, 101)]
    staged = MultiFidelityRows.of(history)
    most = math.ceil(math.log(100, MIN_STEP_RATIO)) + 1
    assert np.bincount(staged.trial_R).max() <= most


CURVES = st.lists(
    st.tuples(
        st.integers(1, 60),
        st.sampled_from(["done", "pending", "failed"]),
        st.sampled_from(["", "rung", "preempt"]),
        st.floats(allow_nan=True, allow_infinity=True),
    ),
    max_size=12,
)


@given(CURVES, st.integers(1, 1000))
def test_rows_are_finite_ordered_and_free_of_the_unit_of_the_step(drawn, unit):
    """Epochs or tokens must give the same model."""
    histories = [
        [
            seen(str(i), [(scale * s, loss + s) for s in range(1, steps + 1)], state, reason)
            for i, (steps, state, reason, loss) in enumerate(drawn)
        ]
        for scale in (1, unit)
    ]
    in_epochs, in_tokens = (MultiFidelityRows.of(history) for history in histories)
    np.testing.assert_allclose(in_epochs.column_R, in_tokens.column_R, atol=1e-12)
    np.testing.assert_array_equal(in_epochs.loss_R, in_tokens.loss_R)
    assert (in_epochs.column_R <= 0.0).all()
    assert (np.diff(in_epochs.trial_R) >= 0).all()
    assert not np.isinf(in_epochs.loss_R).any()
    if len(in_epochs.column_R):
        assert in_epochs.column_R.max() == 0.0


def sweep(rng):
    """Return trials of which the worse at step 1 were cut: parameters, rows, true final loss.

    The change of the loss from step 1 to 27 depends on x, so the orders at the two steps differ.
    """
    x_ND = rng.random((60, 2))

    def loss(x_ND, share):
        final_N = np.sum((x_ND - 0.3) ** 2, axis=1)
        return final_N + share * (0.3 + 0.5 * x_ND[:, 1])

    goes_on = np.argsort(loss(x_ND, 1.0))[:20]
    step_R = np.repeat([-1.0, 0.0], [60, 20])
    x_RD = np.column_stack([np.vstack([x_ND, x_ND[goes_on]]), step_R])
    loss_R = np.append(loss(x_ND, 1.0), loss(x_ND[goes_on], 0.0))
    return x_ND, goes_on, x_RD, loss_R, loss(x_ND, 0.0)


def test_cut_trials_tell_the_final_loss_where_no_trial_ran_to_the_end():
    """Without the column the model proposes again and again where trials were cut."""
    rng = np.random.default_rng(0)
    x_ND, goes_on, x_RD, loss_R, final_N = sweep(rng)
    mean, deviation = loss_R.mean(), loss_R.std()
    rows = Rows(x_RD, (loss_R - mean) / deviation, np.arange(3), 0.0)
    fitted = fit(rows, with_context(dimension_scaled_prior(2), 1), None, rng)
    joint = AtMaxFidelity.of(Posterior.of(rows, fitted), x_ND)
    cut = np.setdiff1d(np.arange(60), goes_on)
    assert spearmanr(joint.fitted_N[cut], final_N[cut]).statistic > 0.9
    error_N = mean + deviation * joint.fitted_N - final_N
    assert np.abs(error_N[cut].mean()) < 0.25 * final_N.std(), "cut trials look too bad or good"


@pytest.fixture
def posterior():
    rng = np.random.default_rng(1)
    rows = Rows(rng.random((12, 3)), rng.standard_normal(12), np.arange(3), 0.0)
    return Posterior.of(rows, Hyperparameters((0.5, 0.7, 0.9), 0.01, 1.2))


def test_the_view_of_the_highest_step_is_the_process_there(posterior):
    x_MD = np.random.default_rng(2).random((5, 2))
    view = AtMaxFidelity.of(posterior, x_MD[:3])
    expected = posterior.predict(np.column_stack([x_MD, np.zeros(5)]))
    np.testing.assert_allclose(view.predict(x_MD), expected)
    np.testing.assert_allclose(view.mean(x_MD), expected[0])
    np.testing.assert_allclose(view.fitted_N, expected[0][:3])


def test_what_is_believed_moves_no_mean_and_leaves_less_to_learn(posterior):
    x_MD = np.random.default_rng(4).random((6, 2))
    view = AtMaxFidelity.of(posterior, x_MD[:2])
    believing = view.fantasize(x_MD[2:4])
    (mean_M, variance_M), (same_M, less_M) = view.predict(x_MD), believing.predict(x_MD)
    np.testing.assert_allclose(same_M, mean_M, atol=1e-9)
    assert (less_M[2:4] < variance_M[2:4]).all()
    np.testing.assert_allclose(believing.fitted_N, mean_M[:4], atol=1e-9)


CUT = {1: 0.5, 3: 1.5, 9: 4.5}  # what is added at each rung


def cut(id, own, last, added):
    curve = [(step, own + added[step]) for step in (1, 3, 9) if step <= last]
    return seen(id, curve, reason="" if last == 9 else "rung")


def test_losses_that_rise_with_the_step_are_taken_to_the_highest_one():
    """A trial that lost at step 1 with 1.4 did not beat those that ended with 4.5."""
    history = [cut("a", 0.2, 9, CUT), cut("b", 0.9, 1, CUT), cut("c", 0.5, 3, CUT)]
    rows = MultiFidelityRows.of(history)
    own_R = np.array([0.2, 0.9, 0.5])[rows.trial_R]
    np.testing.assert_allclose(rows.loss_R, own_R + 4.5)


@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.floats(0.0, 1e6), st.floats(0.0, 1e6), st.booleans()),
        min_size=2,
        max_size=8,
    )
)
def test_no_trial_gets_ahead_of_one_that_beat_it_at_the_same_step(drawn):
    history = [
        seen(
            str(index), [(1, first), (3, first + rise), (9, first + rise + more)][: 3 if on else 1]
        )
        for index, (first, rise, more, on) in enumerate(drawn)
    ]
    before = {id: seen.curve[0][1] for id, seen in enumerate(history)}
    rows = MultiFidelityRows.of(history)
    assert np.isfinite(rows.loss_R).all()
    lowest = rows.column_R == rows.column_R.min()
    if lowest.all():
        return
    order = sorted((before[trial], loss) for trial, loss in rows_at(rows, lowest))
    slack = 1e-6 * max(1.0, max(abs(loss) for _, loss in order))
    assert all(one <= other + slack for (_, one), (_, other) in pairwise(order))


def rows_at(rows, chosen_R):
    return zip(rows.trial_R[chosen_R].tolist(), rows.loss_R[chosen_R].tolist(), strict=True)
