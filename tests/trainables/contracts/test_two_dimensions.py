"""If this fails, trials that both split and shard layers learn differently from one rank."""

from dataclasses import replace

import pytest
from tasks import Deep, resumed

from trainables import Training

EXACT = Training("fsdp", "64-true", tensor_parallel=2)


@pytest.mark.long
def test_two_dimensions_with_dropout_go_on_bit_by_bit(on_ranks, tmp_path):
    trainings = [replace(EXACT, optimizer="adamw")]
    rank_0, *_ = on_ranks(resumed, Deep(dropout=0.2), trainings, 4, tmp_path, ranks=4)
    uninterrupted, resumed_reports = rank_0[0]
    assert len(uninterrupted) == 4
    assert resumed_reports == uninterrupted
