"""Bad updates. If these fail, one NaN ends a trial that could go on, or a lost trial never ends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.training_state.divergence import (
    MOST_ROLLBACKS,
    MOST_SKIPPED,
    SETTLED,
    LossSpikeDetector,
)
from trainables.worker import Diverged

BAD = [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)]


@pytest.mark.parametrize(("loss", "norm"), BAD)
def test_what_is_not_finite_is_skipped_and_the_next_goes_on(loss, norm):
    guard = LossSpikeDetector("skip")
    assert guard.judge(loss, norm) == "skip"
    assert guard.judge(1.0, 1.0) == "go"
    assert guard.skipped == 1


def test_a_training_that_only_skips_has_diverged():
    guard = LossSpikeDetector("skip")
    for _ in range(MOST_SKIPPED):
        assert guard.judge(math.nan, 1.0) == "skip"
    with pytest.raises(Diverged, match="after 10 skipped updates in a row"):
        guard.judge(math.nan, 1.0)


def test_a_training_that_only_goes_back_has_diverged():
    guard = LossSpikeDetector("rollback")
    for _ in range(MOST_ROLLBACKS):
        assert guard.judge(math.nan, 1.0) == "rollback"
    with pytest.raises(Diverged, match="after 3 returns to a checkpoint"):
        guard.judge(math.nan, 1.0)


def test_a_loss_far_above_the_last_ones_is_a_spike():
    guard = LossSpikeDetector("skip")
    for number in range(SETTLED):
        assert guard.judge(1.0 + 0.1 * (number % 3), 1.0) == "go"
    assert guard.judge(50.0, 1.0) == "skip"
    assert guard.judge(1.5, 1.0) == "go"


@given(st.lists(st.floats(0.5, 1.0), min_size=1, max_size=200))
def test_losses_of_one_size_are_never_spikes(losses):
    guard = LossSpikeDetector("skip")
    assert {guard.judge(loss, 1.0) for loss in losses} == {"go"}
