"""If these fail, ranks train samples of a stream twice, or weights of samples depend on ranks."""

import random
from bisect import bisect
from itertools import accumulate

import pytest
import torch

from trainables.data import MapDataset, Stream

CPU = torch.device("cpu")
BATCH = 5


class Weighted:
    """Samples of a data set, each drawn in proportion to its weight, with replacement."""

    def __init__(self, dataset, weights):
        self.dataset, self.sums = dataset, list(accumulate(weights))

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, position):
        return self.dataset[bisect(self.sums, random.random() * self.sums[-1])]


def endless(part: int, parts: int):
    yield from ((number, torch.rand(()).item()) for number in range(part, 21, parts))


def streamed(rank: int, ranks: int, source) -> list[list[int]]:
    """Return a rank's samples, update by update; half of the updates follow a resume."""
    shards = [
        Stream(source, 2).to(CPU, torch.float64).shard(rank, ranks, batch=BATCH) for _ in range(2)
    ]
    read = []
    for update in range(6):
        if update == 3:
            shards[1].restore(shards[0].state())
        at_B = torch.arange(update * BATCH, (update + 1) * BATCH)[rank::ranks]
        pieces = [shards[update // 3].batch(at) for at in at_B.tensor_split(2) if len(at)]
        read.append(torch.cat([piece[0] for piece in pieces]).tolist())
    for shard in shards:
        shard.close()
    return read


def on_rank(rank: int, ranks: int) -> tuple[list[list[int]], list[list[int]]]:
    return streamed(rank, ranks, range(100, 117)), streamed(rank, ranks, endless)


def test_two_real_ranks_train_the_samples_of_one(on_two_ranks):
    both = on_two_ranks(on_rank, 2)
    expected = streamed(0, 1, range(100, 117))
    for update, batch in enumerate(expected):
        assert [batch[rank::2] for rank in (0, 1)] == [read[0][update] for read in both]
    first_pass = [both[0][1][0], both[0][1][1], both[1][1][0], both[1][1][1]]
    numbers = [number for batch in first_pass for number in batch]
    assert len({*numbers}) == len(numbers) == 2 * BATCH


def drawn(ranks: int, workers: int) -> list[float]:
    """Return the samples of an epoch in order, of all ranks."""
    data = Weighted([float(number) for number in range(100)], [20.0] * 5 + [1.0] * 95)
    positions = torch.randperm(100, generator=torch.Generator().manual_seed(1))
    values: dict[int, float] = {}
    for rank in range(ranks):
        source = MapDataset(data, workers=workers).to(CPU, torch.float64)
        mine = [at_B[rank::ranks] for at_B in positions.split(7) if len(at_B[rank::ranks])]
        source.plan(iter(mine), 5)
        for at_B in mine:
            values |= dict(zip(at_B.tolist(), source.batch(at_B)[0].tolist(), strict=True))
        source.close()
    return [values[position] for position in range(100)]


def test_weighted_samples_are_the_same_on_any_number_of_ranks_and_workers():
    assert drawn(1, 1) == drawn(2, 1) == drawn(2, 3)


def test_samples_are_drawn_as_often_as_their_weights_say():
    data = Weighted([float(number) for number in range(100)], [20.0] * 5 + [1.0] * 95)
    source = MapDataset(data)
    often = (source.batch(torch.arange(20_000))[0] < 5).double().mean().item()
    share = 100 / 195
    assert often == pytest.approx(share, abs=4 * (share * (1 - share) / 20_000) ** 0.5)
