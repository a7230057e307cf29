"""What ranks of 64 call, as one of them at a time: kinds, bytes and order of collectives.

At night also of 8. Ranks that call other collectives than their neighbours wait forever on a real
cluster, and bytes above the theory cost time on each update. W is the size of the weights in 32
bits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from layered import WIDTH, Layered
from recorded_group import Collective, recorded

from trainables import Training, Worker
from trainables.checkpoints import saver, storing
from trainables.trainer import loop
from trainables.trainer.fit import prepare
from trainables.trainer.loop import Trainer

WARM = 6  # updates until DDP has its final buckets, and memory is known to suffice
SMALL = 1024  # bytes of sums and maxima over ranks of something else than gradients, such as losses
BATCH, SAMPLES = 256, 600  # of an update; of an epoch, whose last batch has 88
W = sum(weight.nbytes for weight in Layered().build_model().parameters())


@dataclass(frozen=True)
class Theory:
    """What an update of a strategy sends: sizes in W, by kind of collective, and small messages."""

    options: Mapping[str, Any]
    all_reduce: float = 0
    broadcast: float = 0
    all_gather: float = 0
    reduce_scatter: float = 0
    small: int = 0

    @property
    def traffic(self) -> float:
        """Return what each rank sends in W: an all-reduce is a reduce-scatter and an all-gather."""
        return 2 * self.all_reduce + self.broadcast + self.all_gather + self.reduce_scatter


# Source: the strategies in docs/reference/training-reference.md, and the sources that it names.
# fsdp's small messages: the end of the forward pass, of the backward pass, which weights were used,
# and the losses' sum; each further micro-batch has an end of its forward pass.
FSDP: Mapping[str, Any] = {"strategy": "fsdp"}
ZERO2: Mapping[str, Any] = {**FSDP, "reshard_after_forward": False}
DDP: Mapping[str, Any] = {"strategy": "ddp"}
THEORY = {
    "ddp: 2 W": Theory(DDP, all_reduce=1),
    "ddp, bf16-mixed: 2 W": Theory({**DDP, "precision": "bf16-mixed"}, all_reduce=1),
    "ddp, bf16-true: W": Theory({**DDP, "precision": "bf16-true"}, all_reduce=0.5, small=1),
    "ddp, accumulate: 2 W": Theory({**DDP, "accumulate": 4}, all_reduce=1),
    "ddp, fp16 gradients: W": Theory(
        {**DDP, "gradient_compression": "fp16"}, all_reduce=0.5, small=1
    ),
    "ddp, deterministic: 2 W": Theory({**DDP, "deterministic": True}, all_reduce=1, small=2),
    "zero1: 3 W": Theory({"strategy": "zero1"}, all_reduce=1, broadcast=1),
    "zero1, accumulate: 3 W": Theory({"strategy": "zero1", "accumulate": 4}, 1, broadcast=1),
    "ZeRO-3: 3 W": Theory(FSDP, all_gather=2, reduce_scatter=1, small=4),
    "ZeRO-3, recomputed: 3 W": Theory(
        {**FSDP, "activation_checkpointing": 1}, all_gather=2, reduce_scatter=1, small=4
    ),
    "ZeRO-3, bf16-mixed: 2 W": Theory(
        {**FSDP, "precision": "bf16-mixed"}, all_gather=1, reduce_scatter=1, small=4
    ),
    "ZeRO-3, bf16-true: 1.5 W": Theory(
        {**FSDP, "precision": "bf16-true"}, all_gather=1, reduce_scatter=0.5, small=4
    ),
    "ZeRO-3, three micro-batches: 7 W": Theory(
        {**FSDP, "accumulate": 3}, all_gather=6, reduce_scatter=1, small=6
    ),
    "ZeRO-3, clipped: 3 W": Theory({**FSDP, "clip": 1.0}, all_gather=2, reduce_scatter=1, small=5),
    "ZeRO-2: 2 W": Theory(ZERO2, all_gather=1, reduce_scatter=1, small=4),
    "ZeRO-2, three micro-batches: 4 W": Theory(
        {**ZERO2, "accumulate": 3}, all_gather=3, reduce_scatter=1, small=6
    ),
    # Groups of four shard; the sums of their shards are all-reduced over the other groups.
    "ZeRO-3, groups of four: 3.5 W": Theory(
        {**FSDP, "shard_ranks": 4}, all_reduce=0.25, all_gather=2, reduce_scatter=1, small=4
    ),
    "local_sgd: 2 W": Theory({"strategy": "local_sgd", "sync_every": 2}, all_reduce=1),
}


@contextmanager
def rank_of(
    rank: int, ranks: int, options: Mapping[str, Any], **worker: Any
) -> Iterator[tuple[Trainer, list[Collective]]]:
    """Provide what trains one rank, and the list of its collectives."""
    task, training = Layered(batch=BATCH), Training(**options)
    lone_worker = Worker.alone(until=2, training=training)
    with recorded(rank, ranks) as called:
        given = replace(lone_worker, rank=rank, world_size=ranks, **worker)
        with prepare(task, given) as trainer:
            yield trainer, called


def of_an_update(rank: int, ranks: int, options: Mapping[str, Any]) -> list[Collective]:
    """Return the collectives of a rank's update once all have warmed up."""
    with rank_of(rank, ranks, options) as (trainer, called):
        trainer.passes.model.train()
        at_B = torch.arange(BATCH)
        for _ in range(WARM):
            called.clear()
            trainer.update.run(at_B)
        return [*called]


def is_small(call: Collective) -> bool:
    """Return whether a collective is about something else than weights, gradients, activations."""
    return call.kind == "all_reduce" and call.bytes <= SMALL


SIZES = pytest.mark.parametrize("ranks", [64, pytest.param(8, marks=pytest.mark.full)])


def parties(ranks: int) -> tuple[int, ...]:
    """Return the ranks that are compared: the first two and the last one."""
    return (0, 1, ranks - 1)


@SIZES
@pytest.mark.parametrize("name", THEORY)
def test_an_update_sends_what_theory_says_and_the_same_on_each_rank(name, ranks):
    theory = THEORY[name]
    assert name.split(": ")[1] == f"{theory.traffic:g} W".removeprefix("1 ")
    first, *others = (of_an_update(rank, ranks, theory.options) for rank in parties(ranks))
    assert all(other == first for other in others)
    sizes = Counter[str]()
    for call in first:
        sizes[call.kind] += 0 if is_small(call) else call.bytes
    for kind in ("all_reduce", "broadcast", "all_gather", "reduce_scatter"):
        # DDP's buckets hold the losses' sum, too.
        assert sizes.pop(kind, 0) / W == pytest.approx(getattr(theory, kind), abs=16 / W)
    assert not +sizes
    assert sum(map(is_small, first)) == theory.small


@SIZES
def test_tensor_ranks_add_up_what_enters_and_leaves_each_pair_of_layers(ranks):
    """Two sums over ranks for each pair, of a rank's activations; Shoeybi et al., section 3."""
    activations = BATCH * WIDTH * 4
    first, *others = (of_an_update(rank, ranks, {"strategy": "tensor"}) for rank in parties(ranks))
    assert first == [Collective("all_reduce", activations, ranks)] * (2 * Layered().blocks)
    assert all(other == first for other in others)


@SIZES
def test_ranks_of_two_dimensions_add_up_activations_with_neighbours_and_shard_with_the_others(
    ranks,
):
    options = {**FSDP, "tensor_parallel": 2}
    first, *others = (of_an_update(rank, ranks, options) for rank in parties(ranks))
    assert all(other == first for other in others)
    sizes = Counter[tuple[str, int]]()
    for call in first:
        sizes[call.kind, call.ranks] += 0 if is_small(call) else call.bytes
    share = BATCH * WIDTH * 4 // (ranks // 2)
    assert sizes["all_reduce", 2] == 2 * Layered().blocks * share
    layers = [module for module in Layered().build_model() if isinstance(module, torch.nn.Linear)]
    whole = sum(weight.nbytes for layer in layers for weight in layer.parameters())
    whole += Layered().blocks * WIDTH * 4  # the biases of row-wise layers, which neighbours share
    held = (W - whole) / 2 + whole  # of two neighbours, each
    assert sizes["all_gather", ranks // 2] == 2 * held
    assert sizes["reduce_scatter", ranks // 2] == held


# Whole orders: uneven batches, validation in which some ranks have no sample, checkpoints, reports,
# ends of epochs. Pipelines are left out: their stages send each other torch's own descriptions of
# tensors, which nobody makes here.
ORDERS: Mapping[str, Mapping[str, Any]] = {
    "ddp": {**DDP, "ema": 0.9, "clip": 1.0},
    "ddp, accumulate": {**DDP, "accumulate": 3},
    "zero1": {"strategy": "zero1", "log_layers_every": 1},
    "ZeRO-3": {**FSDP, "ema": 0.9},
    "ZeRO-3, accumulate": {**FSDP, "accumulate": 3, "clip": 1.0},
    "ZeRO-2": ZERO2,
    "groups of four": {**FSDP, "shard_ranks": 4, "ema": 0.9},
    "fsdp and tensor": {**FSDP, "tensor_parallel": 2},
    "tensor": {"strategy": "tensor", "clip": 1.0},
    "local_sgd": {"strategy": "local_sgd", "sync_every": 2},
}


def of_an_order(
    rank: int, ranks: int, options: Mapping[str, Any], folder: Path
) -> list[Collective]:
    """Return the collectives of a rank from its model to the end of its order.

    Ranks ask each other after each update whether one was told to end. torch's own collectives for
    writing shards are one entry.
    """

    def written(*_: Any, process_group: Any, **__: Any) -> None:
        called.append(Collective("write shards", 0, ranks))

    with (
        patch.object(loop, "ASKING_S", 0.0),
        patch.object(storing.dcp, "save", written),
        patch.object(saver, "check_complete"),
        rank_of(rank, ranks, options, checkpoints=folder) as (trainer, called),
    ):
        trainer.run()
        return [*called]


@SIZES
@pytest.mark.parametrize("name", ORDERS)
def test_all_ranks_call_the_same_from_the_first_update_to_the_last_checkpoint(
    name, ranks, tmp_path
):
    first, second, last = (
        of_an_order(rank, ranks, ORDERS[name], tmp_path / f"{rank}") for rank in parties(ranks)
    )
    assert len(first) > 6
    assert in_short(second) == in_short(first)
    # Neighbours that split layers exchange activations: of fewer samples in the last batch.
    first, last = (
        [replace(call, bytes=0) if call.ranks == 2 else call for call in calls]
        for calls in (first, last)
    )
    assert in_short(last) == in_short(first)


def in_short(calls: list[Collective]) -> list[tuple[Collective, int]]:
    """Return the calls, with how often each is repeated; those beside training come last."""
    return [(call, len([*times])) for call, times in groupby(sorted(calls, key=_is_aside))]


def _is_aside(call: Collective) -> bool:
    return call.aside
