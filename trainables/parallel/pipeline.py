"""Pipeline parallelism: each rank holds some of the layers, and micro-batches pass through them.

The model is an nn.Sequential, whose layers have a known order. trainer/pipeline_passes.py runs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.parallel.stages import shard_layers
from trainables.parallel.strategy import Group


@dataclass(frozen=True)
class Pipeline(Group):
    """Pipeline parallelism: one model over all ranks, each with some of its layers; a Strategy."""

    @property
    def splits_batches(self) -> bool:
        return True

    def shard(self, model: nn.Module) -> nn.Module:
        return shard_layers(model, self.worker, self.autocast)

    def share_buffers(self, model: nn.Module) -> None:
        """Do nothing: each rank has the buffers of its own layers."""

    def reduce_loss_sum(self, tally: Tensor, model: nn.Module) -> Tensor:
        # One data-parallel rank, but only the last rank of the pipeline has the losses.
        return self.all_reduce_sum(tally.clone())

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        rank_norm = super().norm(gradients).to(self.worker.device, torch.float64)
        return self.all_reduce_sum(rank_norm.square()).sqrt()
