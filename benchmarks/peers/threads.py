"""One core for torch, as the others have."""

import numpy as np
import torch


def seed_torch(seed: int) -> None:
    """Hold torch to one thread, and seed it and numpy's global generator, which HEBO draws from."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)
