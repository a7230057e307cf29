"""Tasks with short epochs, for measurements."""

import torch
from tasks import Deep

from trainables.memory_estimation.truncated_task import (
    TruncatedSource,
    truncate,
    truncate_in_memory,
)

CPU = torch.device("cpu")


def test_an_epoch_has_full_batches_though_the_source_is_shorter():
    task = Deep()
    source = task.load_data().train
    updates = len(source) // task.batch + 3
    data = truncate(task, updates).load_data()
    assert len(data.train) == updates * task.batch
    assert len(data.validation) <= task.batch
    assert len(task.load_data().train) == len(source), "the task itself stays as it is"


def test_positions_beyond_the_source_begin_again():
    source = Deep().load_data().train
    long = TruncatedSource(source, 3 * len(source)).to(CPU, torch.float32)
    first = torch.tensor([0, 1])
    for one, again in zip(long.batch(first), long.batch(first + len(source)), strict=True):
        assert torch.equal(one, again)


def test_in_memory_the_samples_are_those_of_the_task():
    task = Deep()
    short = truncate_in_memory(task, 2).load_data()
    expected = truncate(task, 2).load_data()
    at = torch.arange(2 * task.batch)
    for one, other in zip(
        short.train.to(CPU, torch.float32).batch(at),
        expected.train.to(CPU, torch.float32).batch(at),
        strict=True,
    ):
        assert torch.equal(one, other)
