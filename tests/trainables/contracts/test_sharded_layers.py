"""Layers split over ranks. If these fail, sharding a model changes what it learns.

Two ranks hold parts of the model under fully_shard, or of single tensors in other layouts; each
result is beside that of one process which holds all.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

from trainables.optim.averaging import Ema
from trainables.optim.building import OptimizerOptions, build
from trainables.optim.clipping import clip, total_norm

OPTIMIZERS = ["adamw", "sgd", "lars", "lamb"]
CLIPS = {"norm": 0.05, "value": 0.02, "adaptive": 0.1}
LAYOUTS = {"rows": Shard(0), "columns": Shard(1), "copies": Replicate()}


def model(mesh: DeviceMesh | None) -> nn.Sequential:
    """Return a model of widths that two ranks cannot halve, whose root has its own weights."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 7), nn.Linear(7, 3))
    if mesh is not None:
        fully_shard(made[2], mesh=mesh)
        fully_shard(made, mesh=mesh)
    return made


def batch(mesh: DeviceMesh | None) -> Tensor:
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
    return x if mesh is None else x.chunk(2)[mesh.get_local_rank()]


def gather(tensors) -> list[Tensor]:
    return [
        tensor.full_tensor().detach() if isinstance(tensor, DTensor) else tensor.detach().clone()
        for tensor in tensors
    ]


def backward(network: nn.Module, mesh: DeviceMesh | None) -> None:
    network.zero_grad()
    (network(batch(mesh)) - 1).square().mean().backward()


def optimizer_of(network: nn.Module, name: Any) -> torch.optim.Optimizer:
    return build(network, OptimizerOptions(name, 0.05, 0.1, momentum=0.9, layer_decay=0.9))


def trained(name: str, mesh: DeviceMesh | None) -> list[Tensor]:
    network = model(mesh)
    optimizer = optimizer_of(network, name)
    for _ in range(5):
        backward(network, mesh)
        optimizer.step()
    return gather(network.parameters())


def clipped_layout(by: Any, layout: str, mesh: DeviceMesh | None) -> list[Tensor]:
    """Clip tensors of other layouts, with plain ones among them."""
    rng = torch.Generator().manual_seed(2)
    weights = []
    for at, shape in enumerate([(6, 5), (5,), (4, 3, 2), (3, 3)]):
        weight, slope = torch.randn(2, *shape, generator=rng).unbind()
        placement = Shard(0) if len(shape) == 1 and layout == "columns" else LAYOUTS[layout]
        if mesh is not None and at != 2:
            weight, slope = (
                distribute_tensor(tensor, mesh, [placement]) for tensor in (weight, slope)
            )
        weights.append(nn.Parameter(weight))
        weights[-1].grad = slope
    result = clip(weights, 10 * CLIPS[by], by, total_norm)
    return [*result, *gather([weight.grad for weight in weights])]


def averaged(mesh: DeviceMesh | None) -> list[Tensor]:
    """Return a model's outputs before, with averages in place, and after; then the averages."""
    network = model(mesh)
    optimizer, ema = optimizer_of(network, "sgd"), Ema(network, 0.5)
    for _ in range(3):
        backward(network, mesh)
        optimizer.step()
        ema.update()
    x = batch(None)
    with torch.no_grad():  # the root then keeps its weights gathered
        outputs = [network(x)]
        with ema.applied():
            outputs.append(network(x))
        outputs.append(network(x))
    return [*outputs, *gather(ema.state_dict()["averages"].values())]


def unsummed(mesh: DeviceMesh) -> Tensor:
    """Return the norm of a partial gradient that ranks have yet to add up: 2 and 1, so 3."""
    part = torch.full((4,), float(mesh.get_local_rank() + 1))
    return total_norm([DTensor.from_local(part, mesh, [Partial()])])


def collectives(name: str, mesh: DeviceMesh) -> int:
    network = model(mesh)
    optimizer = build(network, OptimizerOptions(name, 0.05, 0.1, momentum=0.9, layer_decay=1.0))
    backward(network, mesh)
    with CommDebugMode() as seen:
        optimizer.step()
    return seen.get_total_counts()


def everything(rank: int) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("data",))
    cases: dict[str, Callable[[DeviceMesh | None], list[Tensor]]] = {"averages": averaged}
    for name in OPTIMIZERS:
        cases[name] = lambda where, name=name: trained(name, where)
    for by in CLIPS:
        for layout in LAYOUTS:
            cases[f"clip {by} {layout}"] = lambda where, by=by, layout=layout: clipped_layout(
                by, layout, where
            )
    results: dict[str, Any] = {name: (case(mesh), case(None)) for name, case in cases.items()}
    results["unsummed"] = unsummed(mesh)
    results["collectives"] = {name: collectives(name, mesh) for name in ("lars", "lamb")}
    results["names"] = [group["name"] for group in optimizer_of(model(mesh), "sgd").param_groups]
    try:
        optimizer_of(model(mesh), "adafactor")
    except ValueError as error:
        results["adafactor"] = str(error)
    return results


@pytest.fixture(scope="module")
def rank_results(on_two_ranks: Callable[..., list[Any]]) -> list[dict[str, Any]]:
    """Return the results of each rank."""
    return on_two_ranks(everything)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_learns_what_it_learns_in_one_process(rank_results, name):
    for ours, alone in (rank[name] for rank in rank_results):
        torch.testing.assert_close(ours, alone, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("by", CLIPS)
def test_gradients_in_every_layout_are_clipped_as_in_one_process(rank_results, by, layout):
    for ours, alone in (rank[f"clip {by} {layout}"] for rank in rank_results):
        assert 0 < alone[1].item() <= 1
        torch.testing.assert_close(ours, alone, rtol=1e-6, atol=1e-7)


def test_averages_are_those_of_one_process_and_are_what_a_forward_pass_uses(rank_results):
    for ours, alone in (rank["averages"] for rank in rank_results):
        torch.testing.assert_close(ours, alone, rtol=1e-6, atol=1e-6)
        before, within, after = ours[:3]
        assert (within - before).abs().max() > 1e-3
        assert torch.equal(before, after)


def test_a_gradient_that_is_still_to_be_added_up_is_measured_whole(rank_results):
    assert [rank["unsummed"].item() for rank in rank_results] == [6.0, 6.0]


def test_a_step_scaled_to_layers_costs_one_collective(rank_results):
    assert [rank["collectives"] for rank in rank_results] == [{"lars": 1, "lamb": 1}] * 2


def test_groups_say_what_mesh_their_weights_are_on(rank_results):
    assert rank_results[0]["names"][0] == "depth 1 of 4, decay, mesh data"
