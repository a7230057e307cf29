"""Sources on a GPU. If these fail, trials on GPUs see other samples than on CPUs, or wait for them.

They need one CUDA device, and are skipped without it.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from counting import SOURCES, TRAINING, VALIDATION, Counting, once

from trainables import Training, Worker
from trainables.data import Loaded
from trainables.slots import hygiene

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("source", SOURCES)
def test_every_sample_counts_once_an_epoch(source, tmp_path):
    before = hygiene.baseline().children
    training = Training(precision="64-true", accumulate=2)
    own = replace(Worker.alone(until=2, training=training), gpu=True)
    Counting(source=source, folder=tmp_path).train(own)
    for report in own.reports:
        means = report.metrics["train/loss"], report.metrics["val/loss"]
        assert means == (once(TRAINING), once(VALIDATION))
        assert 0 <= report.metrics["perf/data_share"] <= 1
    assert hygiene.baseline().children == before


def test_batches_come_from_pinned_memory_to_the_device():
    order = torch.arange(40).split(4)
    source = Loaded(lambda position: (position, 0.5), length=40).to(
        torch.device("cuda", 0), torch.bfloat16
    )
    source.plan(order, 0)
    try:
        for at_B in order:
            numbers, halves = source.batch(at_B)
            assert numbers.tolist() == at_B.tolist()
            assert (halves.dtype, halves.device.type) == (torch.bfloat16, "cuda")
        assert source.waited() > 0
        assert source.waited() == 0
    finally:
        source.close()
