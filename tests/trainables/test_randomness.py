import random

import numpy as np
import torch

from trainables.randomness import derive, permutation, preserved, seed_all


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), torch.rand(()).item()


def test_purposes_ranks_and_steps_have_seeds_of_their_own():
    seeds = {
        derive(seed, purpose, number)
        for seed in range(3)
        for purpose in ("step", "order")
        for number in range(12)
    }
    assert len(seeds) == 72
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_derived_seed_is_the_same_on_every_machine():
    assert derive(0, "order", 1) == 4489457307835839548


def test_a_permutation_holds_every_position_once_whatever_was_drawn_before():
    first = permutation(5, 100)
    torch.rand(3)
    assert torch.equal(permutation(5, 100), first)
    assert sorted(first.tolist()) == list(range(100))


def test_the_process_draws_on_as_if_nothing_had_been_seeded():
    seed_all(3)
    expected = draws()
    seed_all(3)
    with preserved():
        seed_all(9)
        draws()
    assert draws() == expected
