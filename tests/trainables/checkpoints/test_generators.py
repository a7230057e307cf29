"""States of random generators. If these fail, a resumed epoch sees other samples."""

import random

import numpy as np
import torch

from trainables.checkpoints.generators import restore, states

CPU = torch.device("cpu")


def draws():
    return random.random(), torch.rand(3).tolist(), np.random.rand(3).tolist()


def test_generators_go_on_where_they_were(tmp_path):
    torch.manual_seed(1)
    draws()
    saved = states(CPU)
    after = draws()
    torch.save(saved, tmp_path / "states.pt")  # as a checkpoint holds them
    draws()
    restore(torch.load(tmp_path / "states.pt", weights_only=True), CPU)
    assert draws() == after


def test_a_generator_without_a_saved_state_stays_as_it_is():
    saved = states(CPU)
    del saved["numpy"]
    np.random.seed(5)
    before = np.random.get_state()[1].copy()
    restore(saved, CPU)
    assert (np.random.get_state()[1] == before).all()
