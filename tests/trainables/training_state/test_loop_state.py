import torch

from trainables.training_state.loop_state import LoopState


def test_each_trial_begins_with_a_tally_of_its_own():
    first, second = LoopState.fresh(torch.device("cpu")), LoopState.fresh(torch.device("cpu"))
    first.losses += 1
    assert (second.losses == 0).all()
    assert (first.lr_backoff, first.elements_per_sample) == (1.0, 1.0)
