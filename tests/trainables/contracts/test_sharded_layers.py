"""Norms and optimizers of sharded layers; what ranks learn with them is in test_pairs.py."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial
from torch.distributed.tensor.debug import CommDebugMode

from trainables.optim.building import OptimizerOptions, build
from trainables.optim.clipping import total_norm


def model(mesh: DeviceMesh) -> nn.Sequential:
    """Return a model of widths that two ranks cannot halve, whose root has its own weights."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 7), nn.Linear(7, 3))
    fully_shard(made[2], mesh=mesh)
    fully_shard(made, mesh=mesh)
    return made


def optimizer_of(network: nn.Module, name: Any, layer_decay: float) -> torch.optim.Optimizer:
    return build(network, OptimizerOptions(name, 0.05, 0.1, momentum=0.9, layer_decay=layer_decay))


def unsummed(mesh: DeviceMesh) -> Tensor:
    """Return the norm of a partial gradient that ranks have yet to add up: 2 and 1, so 3."""
    part = torch.full((4,), float(mesh.get_local_rank() + 1))
    return total_norm([DTensor.from_local(part, mesh, [Partial()])])


def collectives(name: str, mesh: DeviceMesh) -> int:
    network = model(mesh)
    optimizer = optimizer_of(network, name, 1.0)
    (network(torch.ones(4, 5)) - 1).square().mean().backward()
    with CommDebugMode() as seen:
        optimizer.step()
    return seen.get_total_counts()


def everything(rank: int) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("data",))
    results: dict[str, Any] = {}
    results["unsummed"] = unsummed(mesh)
    results["collectives"] = {name: collectives(name, mesh) for name in ("lars", "lamb")}
    results["name"] = optimizer_of(model(mesh), "sgd", 0.9).param_groups[0]["name"]
    return results


@pytest.fixture(scope="module")
def rank_results(on_two_ranks: Callable[..., list[Any]]) -> list[dict[str, Any]]:
    """Return the results of each rank."""
    return on_two_ranks(everything)


def test_a_gradient_that_is_still_to_be_added_up_is_measured_whole(rank_results):
    assert [rank["unsummed"].item() for rank in rank_results] == [6.0, 6.0]


def test_a_step_scaled_to_layers_costs_one_collective(rank_results):
    assert [rank["collectives"] for rank in rank_results] == [{"lars": 1, "lamb": 1}] * 2


def test_groups_say_what_mesh_their_weights_are_on(rank_results):
    assert rank_results[0]["name"] == "depth 1 of 4, decay, mesh data"
