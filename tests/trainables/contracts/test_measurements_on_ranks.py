"""Measurements on several ranks; all cases in one pair of processes.

If these fail, sharded models show norms of their shards, or ranks wait for each other for ever.
"""

from time import perf_counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainables.monitoring import stragglers
from trainables.monitoring.clock import Clock
from trainables.monitoring.flops import count_flops
from trainables.monitoring.layers import Layers

CPU = torch.device("cpu")
SLOW_S = 0.25  # that rank 1 takes longer for its data
Case = dict[str, Any]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3), nn.Linear(3, 2))


def samples() -> Tensor:
    return torch.linspace(-1, 1, 24).reshape(4, 6)


def looked(model: nn.Module, x: Tensor) -> dict[str, float]:
    """Return the layers' measurements of a plain step on the mean of squares."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    layers = Layers(model)
    model(x).square().mean().backward()
    layers.before_step()
    optimizer.step()
    return layers.after_step()


def counts(model: nn.Module) -> int:
    with count_flops() as count:
        model(samples()[:2]).square().mean().backward()
    return count.model


def spin(seconds: float) -> None:
    end = perf_counter() + seconds
    while perf_counter() < end:
        pass


def with_ddp(rank: int) -> Case:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(network())
    clock = Clock(CPU, every=1)
    for _ in range(4):
        clock.next_update()
        with clock.phase("data"):
            spin(SLOW_S * rank)
        with clock.phase("forward"):
            loss = model(samples()).square().mean()
        with clock.phase("backward"):
            clock.split(loss)
            loss.backward()
    times = clock.collect()
    busy = stragglers.gather_busy_seconds(stragglers.busy_seconds(times), CPU)
    return {"times": times, "busy": busy, "flops": counts(model)}


def with_fsdp(rank: int) -> Case:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    model = network()
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    flops = counts(model)
    model.zero_grad()
    return {"flops": flops, "layers": looked(model, samples()[2 * rank : 2 * rank + 2])}


def with_tensors(_rank: int) -> Case:
    """Measure a model: its first layer split, the second too but for its bias, the third plain."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (2,))
    plan = {
        "0": ColwiseParallel(output_layouts=Replicate()),
        "2": RowwiseParallel(input_layouts=Replicate()),
    }
    return {"layers": looked(parallelize_module(network(), mesh, plan), samples())}


def watched(rank: int) -> dict[str, Case]:
    return {"ddp": with_ddp(rank), "fsdp": with_fsdp(rank), "tensor": with_tensors(rank)}


@pytest.fixture(scope="module")
def both(on_two_ranks):
    return on_two_ranks(watched)


def test_the_wait_for_a_slow_rank_is_communication_and_not_the_waiters_backward_pass(both):
    fast, slow = (case["ddp"]["times"] for case in both)
    # Wide bounds: where others compute too, either rank is kept waiting for a core.
    assert fast["communication"] > 0.3 * SLOW_S
    assert fast["communication"] > 2 * fast["backward"]
    assert fast["communication"] > slow["communication"]
    assert fast["update"] > 0.8 * SLOW_S


def test_the_slow_rank_is_named_though_all_updates_take_the_same_time(both):
    busy = both[0]["ddp"]["busy"]
    assert busy == both[1]["ddp"]["busy"]
    straggler = stragglers.slowest(busy)
    assert straggler["perf/straggler_rank"] == 1
    assert straggler["perf/straggler"] > 1.2


@pytest.mark.parametrize("strategy", ["fsdp", "tensor"])
def test_a_sharded_models_layers_are_those_of_the_whole_model(both, strategy):
    expected = looked(network(), samples())
    for case in both:
        assert case[strategy]["layers"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_rank_counts_its_own_samples_operations(both, strategy):
    assert [case[strategy]["flops"] for case in both] == [counts(network())] * 2
