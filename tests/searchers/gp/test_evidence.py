"""What a history amounts to: comparable losses, failures as NaN, what is pending, what is kept."""

import numpy as np

from searchers.gp.evidence import Evidence, best_and_random
from searchers.searcher import Observation
from searchers.space import Float, Space

SPACE = Space({"x": Float(0.0, 1.0)})


def seen(name, **rest):
    return Observation(name, {"x": int(name) / 100.0}, **rest)


def test_losses_failures_and_pending_trials_are_told_apart():
    history = [
        seen("0", loss=0.5, state="done"),
        seen("1", state="failed", reason="diverged"),
        seen("2"),
        seen("3", loss=0.1, state="done"),
    ]
    evidence = Evidence.of(SPACE, history)
    np.testing.assert_array_equal(evidence.loss_N, [0.5, np.nan, 0.1])
    assert [params["x"] for params in evidence.params] == [0.0, 0.01, 0.03]
    assert [params["x"] for params in evidence.pending] == [0.02]


def test_losses_at_different_steps_are_not_mixed():
    short = [seen(str(i), loss=9.0, curve=((1, 9.0),), state="done") for i in range(3)]
    long = [seen(str(i), loss=0.1, curve=((1, 5.0), (9, 0.1)), state="done") for i in range(3, 6)]
    np.testing.assert_array_equal(Evidence.of(SPACE, short + long).loss_N, [0.1, 0.1, 0.1])


def test_a_running_trial_with_a_comparable_loss_is_a_result_and_not_pending():
    history = [seen(str(i), loss=1.0, curve=((3, 1.0),), state="done") for i in range(4)]
    running = seen("9", curve=((3, 0.7),))
    evidence = Evidence.of(SPACE, [*history, running])
    assert evidence.loss_N.tolist() == [1.0, 1.0, 1.0, 1.0, 0.7]
    assert not evidence.pending


def test_a_failure_that_was_no_ones_fault_says_nothing():
    evidence = Evidence.of(SPACE, [seen("0", state="failed", reason="preempt")])
    assert not len(evidence.loss_N)
    assert not evidence.pending


def test_a_model_needs_three_trials_of_which_two_succeeded():
    failed = seen("1", state="failed", reason="oom")
    done = [seen(str(i), loss=0.5, state="done") for i in range(5, 8)]
    assert not Evidence.of(SPACE, done[:2]).is_enough
    assert not Evidence.of(SPACE, [failed] * 5 + done[:1]).is_enough
    assert Evidence.of(SPACE, [failed, *done[:2]]).is_enough


def test_the_best_half_and_the_latest_others_are_kept_in_order():
    loss_N = np.array([0.0, 9.0, 8.0, 0.1, 7.0, 6.0, np.nan, 0.2])
    evidence = Evidence([{"x": i / 8.0} for i in range(8)], loss_N, [])
    np.testing.assert_array_equal(evidence.kept(4).loss_N, [0.0, 0.1, np.nan, 0.2])
    assert [params["x"] * 8 for params in evidence.kept(4).params] == [0.0, 3.0, 6.0, 7.0]
    assert evidence.kept(8) is evidence


def test_rows_to_fit_on_are_the_best_half_and_a_draw_from_the_rest():
    output_N = np.random.default_rng(0).permutation(100).astype(float)
    index = best_and_random(output_N, 20, np.random.default_rng(1))
    assert len(set(index.tolist())) == 20
    assert set(range(10)) <= set(output_N[index])
    np.testing.assert_array_equal(best_and_random(output_N, 100, None), np.arange(100))
