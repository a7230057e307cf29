"""Layers that ranks share. If these fail, sharding a model changes what it learns.

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
    """Widths that two ranks cannot halve; the root has weights of its own."""
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
        each.full_tensor().detach() if isinstance(each, DTensor) else each.detach().clone()
        for each in tensors
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


def clipped(by: Any, mesh: DeviceMesh | None) -> list[Tensor]:
    """Norm and share, then the gradients."""
    network = model(mesh)
    backward(network, mesh)
    weights = list(network.parameters())
    found = clip(weights, CLIPS[by], by, total_norm)
    return [*found, *gather([weight.grad for weight in weights])]


def clipped_layout(by: Any, layout: str, mesh: DeviceMesh | None) -> list[Tensor]:
    """The same for tensors that are dealt out otherwise, with plain ones among them."""
    rng = torch.Generator().manual_seed(2)
    weights = []
    for at, shape in enumerate([(6, 5), (5,), (4, 3, 2), (3, 3)]):
        weight, slope = torch.randn(2, *shape, generator=rng).unbind()
        placement = Shard(0) if len(shape) == 1 and layout == "columns" else LAYOUTS[layout]
        if mesh is not None and at != 2:
            weight, slope = (distribute_tensor(each, mesh, [placement]) for each in (weight, slope))
        weights.append(nn.Parameter(weight))
        weights[-1].grad = slope
    found = clip(weights, 10 * CLIPS[by], by, total_norm)
    return [*found, *gather([weight.grad for weight in weights])]


def averaged(mesh: DeviceMesh | None) -> list[Tensor]:
    """What a model computes before, with its averages in place, and after; then the averages."""
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
    """The norm of a gradient whose parts each rank has yet to add up: of 2 and 1, of 3."""
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
        cases[f"clip {by}"] = lambda where, by=by: clipped(by, where)
        for layout in LAYOUTS:
            cases[f"clip {by} {layout}"] = lambda where, by=by, layout=layout: clipped_layout(
                by, layout, where
            )
    found: dict[str, Any] = {name: (case(mesh), case(None)) for name, case in cases.items()}
    found["unsummed"] = unsummed(mesh)
    found["collectives"] = {name: collectives(name, mesh) for name in ("lars", "lamb")}
    found["names"] = [group["name"] for group in optimizer_of(model(mesh), "sgd").param_groups]
    try:
        optimizer_of(model(mesh), "adafactor")
    except ValueError as error:
        found["adafactor"] = str(error)
    return found


@pytest.fixture(scope="module")
def found(on_two_ranks: Callable[..., list[Any]]) -> list[dict[str, Any]]:
    """What each rank found."""
    return on_two_ranks(everything)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_learns_what_it_learns_in_one_process(found, name):
    for ours, alone in (rank[name] for rank in found):
        torch.testing.assert_close(ours, alone, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("by", CLIPS)
def test_gradients_are_clipped_as_in_one_process(found, by):
    for ours, alone in (rank[f"clip {by}"] for rank in found):
        assert 0 < alone[1].item() <= 1
        torch.testing.assert_close(ours, alone, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("by", CLIPS)
def test_gradients_in_every_layout_are_clipped_as_in_one_process(found, by, layout):
    for ours, alone in (rank[f"clip {by} {layout}"] for rank in found):
        assert 0 < alone[1].item() <= 1
        torch.testing.assert_close(ours, alone, rtol=1e-6, atol=1e-7)


def test_averages_are_those_of_one_process_and_are_what_a_forward_pass_uses(found):
    for ours, alone in (rank["averages"] for rank in found):
        torch.testing.assert_close(ours, alone, rtol=1e-6, atol=1e-6)
        before, within, after = ours[:3]
        assert (within - before).abs().max() > 1e-3
        assert torch.equal(before, after)


def test_a_gradient_that_is_still_to_be_added_up_is_measured_whole(found):
    assert [rank["unsummed"].item() for rank in found] == [6.0, 6.0]


def test_a_step_scaled_to_layers_costs_one_collective(found):
    assert [rank["collectives"] for rank in found] == [{"lars": 1, "lamb": 1}] * 2


def test_groups_say_what_mesh_their_weights_are_on(found):
    assert found[0]["names"][0] == "depth 1 of 4, decay, mesh data"


def test_adafactor_is_refused_with_what_to_choose_instead(found):
    assert "cannot train weights that ranks share; choose adamw" in found[0]["adafactor"]
