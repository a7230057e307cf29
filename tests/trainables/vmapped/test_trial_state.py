"""If these fail, a checkpoint of a batch differs from that of a trial alone."""

import torch
from small import Dropping, worker

from trainables.vmapped.trial_state import VmappedTrial


def test_a_sample_has_as_many_losses_as_alone_if_the_last_batch_is_dropped():
    trial = VmappedTrial.begin(Dropping(), worker(until=1, seed=0))
    with trial.closing:
        trial.report({"train/loss": torch.tensor([1.0, 16.0])}, None, updates=2)
    assert trial.trainer.state.loop_state.elements_per_sample == 1.0
