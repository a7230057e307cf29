"""Compiled blocks of a sharded model. If these fail, compiled trials learn something else."""

from dataclasses import dataclass, replace

import pytest
import torch
from tasks import Decoded, Decoding, Attention, Deep, curves, learned, losses
from torch import nn

from trainables import Training

EXACT = Training("fsdp", "64-true", compile="aot_eager")


@dataclass(frozen=True)
class Tall(Decoded):
    """Decoded with more blocks than the compiler keeps versions of a function."""

    lr: float = 0.01

    def build_model(self) -> nn.Module:
        model = Decoding()
        model.blocks = nn.ModuleList(Attention(8) for _ in range(12))
        return model


def counted(rank: int, trainings: list[Training]) -> tuple[list, int, dict]:
    from torch._dynamo.utils import counters
    reports = []
    n = []
    for t in trainings:
        counters.clear()
        reports += curves(rank, Tall(), [t], 2)
        n.append((counters["stats"]["unique_graphs"], dict(counters["graph_break"]), dict(counters["recompile_limit"])))
    return reports, n


def test_compiled(on_two_ranks):
    trainings = [EXACT, replace(EXACT, activation_checkpointing=1), replace(EXACT, accumulate=2, reshard_after_forward=False, activation_checkpointing=2), replace(EXACT, precision="bf16-mixed")]
    reports, n = on_two_ranks(counted, trainings)[0]
    print(n)
    alone = losses(learned(Tall(), Training(precision="64-true")))
    for r in reports:
        print(max(abs(a - b) for a, b in zip(losses(r), alone)))
