"""Sources on a GPU. If these fail, trials on GPUs see other samples than on CPUs, or wait for them.

They need one CUDA device, and are skipped without it.
"""

from dataclasses import replace

import pytest
import torch
from counting import SOURCES, TRAINING, VALIDATION, Counting, once

from trainables import Training, Worker
from trainables.data import MapDataset
from trainables.runtime import process_state

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("source", SOURCES)
def test_every_sample_counts_once_an_epoch(source, tmp_path):
    before = process_state.baseline().children
    training = Training(precision="64-true", accumulate=2)
    own = replace(Worker.alone(until=2, training=training), gpu=True)
    Counting(source=source, folder=tmp_path).train(own)
    for report in own.reports:
        means = report.metrics["train/loss"], report.metrics["val/loss"]
        assert means == (once(TRAINING), once(VALIDATION))
        assert 0 <= report.metrics["perf/data_wait_fraction"] <= 1
    assert process_state.baseline().children == before


def test_batches_come_from_pinned_memory_to_the_device():
    order = torch.arange(40).split(4)
    source = MapDataset(lambda position: (position, 0.5), length=40).to(
        torch.device("cuda", 0), torch.bfloat16
    )
    source.plan(order, 0)
    try:
        for at_B in order:
            numbers, halves = source.batch(at_B)
            assert numbers.tolist() == at_B.tolist()
            assert (halves.dtype, halves.device.type) == (torch.bfloat16, "cuda")
        assert source.wait_seconds() > 0
        assert source.wait_seconds() == 0
    finally:
        source.close()
