"""If these fail, a learning rate of a small model is wrong for a large one, or for the same one.

Axes: B samples, T tokens, F features.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables import Training, Worker
from trainables.data import Batch, Data, Tensors
from trainables.optim.building import OptimizerOptions, build
from trainables.optim.transfer import Growth, scale_optimizer, scale_weights
from trainables.task import Task
from trainables.trainer.fit import prepare

WORDS, TOKENS = 11, 5
EXACT = Training(precision="64-true")
WIDTHS = (32, 128, 512)


class Block(nn.Module):
    def __init__(self, width: int, scale: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, width // 8, batch_first=True)
        self.scale = scale

    def forward(self, x_BTF: Tensor) -> Tensor:
        h_BTF = self.norm(x_BTF)
        return x_BTF + self.scale * self.attention(h_BTF, h_BTF, h_BTF, need_weights=False)[0]


class Tower(nn.Module):
    def __init__(self, width: int, depth: int, scale: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.position = nn.Parameter(torch.randn(TOKENS, width))
        self.blocks = nn.ModuleList(Block(width, scale) for _ in range(depth))
        self.head = nn.Linear(width, WORDS)

    def forward(self, words_BT: Tensor) -> Tensor:
        x_BTF = self.embedding(words_BT) + self.position
        for block in self.blocks:
            x_BTF = block(x_BTF)
        return self.head(x_BTF)


@dataclass(frozen=True)
class Words(Task):
    """A small transformer that has to give back the words that it reads."""

    lr: float = 0.01
    batch: int = 8
    width: int = 32
    depth: int = 2
    base: bool = True

    def build_model(self) -> nn.Module:
        return Tower(self.width, self.depth, 2 / self.depth)

    def scale_from(self) -> Task | None:
        return replace(self, width=32, depth=2, batch=8) if self.base else None

    def load_data(self) -> Data:
        generator = torch.Generator().manual_seed(0)
        words_BT = torch.randint(WORDS, (64, TOKENS), generator=generator)
        return Data(Tensors(words_BT), Tensors(words_BT[:8]))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        [words_BT] = batch
        return cross_entropy(model(words_BT).flatten(0, 1), words_BT.flatten(), reduction="none")


@dataclass(frozen=True)
class Plain(Words):
    """Words with an optimizer of groups of its own."""

    kind: str = "sgd"

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.kind == "rmsprop":
            return torch.optim.RMSprop(model.parameters(), lr=self.lr)
        return torch.optim.SGD(model.parameters(), lr=self.lr, weight_decay=0.1)


def groups_of(task: Task, training: Training = EXACT) -> Mapping[str, dict]:
    """Return the optimizer's group of each weight by name."""
    worker = Worker.alone(until=1, training=training)
    with prepare(task, worker) as trainer:
        model, optimizer = trainer.state.model, trainer.state.optimizer
        names = {id(weight): name for name, weight in model.named_parameters()}
        return {names[id(w)]: group for group in optimizer.param_groups for w in group["params"]}


def outputs_after(
    task: Words, updates: int, training: Training, name: str = "adamw"
) -> tuple[Tensor, Tensor]:
    """Return the model's logits and last activations before and after some updates."""
    torch.manual_seed(0)
    [words_BT] = task.load_data().train.columns
    model = task.build_model()
    growths = scale_weights(task, model)
    optimizer = build(model, OptimizerOptions(name, task.lr, 0.0, 0.9, 1.0))
    scale_optimizer(optimizer, model, growths, task, "none")
    seen: list[Tensor] = []
    model.head.register_forward_hook(lambda _, inputs, output: seen.append(inputs[0].detach()))
    with torch.no_grad():
        first = model(words_BT)
    for _ in range(updates):
        optimizer.zero_grad()
        task.compute_losses(model, (words_BT,)).mean().backward()
        optimizer.step()
    with torch.no_grad():
        last = model(words_BT)
    return last - first, seen[-1] - seen[0]


def size(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def test_activations_and_outputs_change_as_much_in_wide_models_as_in_narrow_ones():
    """The coordinate check of Tensor Programs V, appendix D.1; without a base they grow."""
    for base, bound in ((True, 1.6), (False, 3.0)):
        changes = [outputs_after(Words(width=w, base=base), 4, EXACT) for w in WIDTHS]
        for of_width in zip(*changes, strict=True):
            sizes = [size(change) for change in of_width]
            if base:
                assert max(sizes) < bound * min(sizes)
        logits = [size(change) for change, _ in changes]
        assert base or logits[-1] > bound * logits[0]


@pytest.mark.parametrize("sizes", [{"width": WIDTHS}, {"depth": (2, 8, 16)}])
def test_muon_changes_large_models_as_much_as_small_ones(sizes):
    [(name, values)] = sizes.items()
    tasks = [Words(**{name: value}) for value in values]
    changes = [outputs_after(task, 4, EXACT, "muon") for task in tasks]
    for of_size in zip(*changes, strict=True):
        moved = [size(change) for change in of_size]
        assert max(moved) < 1.6 * min(moved)


@pytest.mark.parametrize("adjust", ["match_rms_adamw", "original"])
@pytest.mark.parametrize("shape", [(4, 1), (1, 4), (4, 4), (2, 8)])
def test_muons_updates_have_the_size_that_the_condition_asks_by_any_shape(adjust, shape):
    n_out, n_in = shape
    steps = []
    for rows, columns in ((32, 16), (32 * n_out, 16 * n_in)):
        torch.manual_seed(0)
        layer = nn.Linear(columns, rows, bias=False)
        growth = {"weight": Growth(columns / 16, rows / 32, 1.0)}
        before = layer.weight.detach().clone()
        optimizer = torch.optim.Muon(layer.parameters(), lr=0.01, adjust_lr_fn=adjust)
        scale_optimizer(optimizer, layer, growth, Words(width=64), "none")
        layer(torch.randn(64, columns)).square().sum().backward()
        optimizer.step()
        update = layer.weight.detach() - (1 - 0.01 * 0.1) * before
        steps.append(float(torch.linalg.matrix_norm(update, 2)) / (rows / columns) ** 0.5)
    assert steps[1] == pytest.approx(steps[0], rel=0.25)


def test_deep_models_change_as_much_as_shallow_ones():
    sizes = [size(outputs_after(Words(depth=depth), 4, EXACT)[1]) for depth in (2, 8, 32)]
    assert max(sizes) < 1.6 * min(sizes)


@pytest.mark.parametrize("optimizer", ["task", "adamw", "sgd"])
def test_a_task_that_is_its_own_base_trains_bit_by_bit_as_without_a_base(optimizer):
    losses = []
    for base in (True, False):
        worker = Worker.alone(until=3, training=Training(optimizer=optimizer, clip=1.0))
        Words(base=base).train(worker)
        losses.append([report.metrics["train/loss"] for report in worker.reports])
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]


def test_rates_decay_and_epsilon_follow_the_kind_of_weight_and_the_depth():
    large = Words(width=128, depth=8, batch=32)
    groups = groups_of(large, Training("single", "64-true", optimizer="adamw", weight_decay=0.1))
    plain = torch.optim.AdamW([nn.Parameter(torch.zeros(1))]).defaults["eps"]
    expected = {  # learning rate over the base's, weight decay over the base's, epsilon
        "embedding.weight": (1, 1, 1 / 4),
        "position": (1, 1, 1 / 4),
        "blocks.5.norm.weight": (1, 0, 1 / 16),
        "blocks.0.attention.in_proj_weight": (1 / 4, 4, 1 / 16),
        "blocks.7.attention.out_proj.weight": (1 / 4, 4, 1 / 16),
        "head.weight": (1 / 4, 4, 1),
        "head.bias": (1, 0, 1),
    }
    for name, (rate, decay, epsilon) in expected.items():
        group = groups[name]
        assert group["lr"] == pytest.approx(2 * 0.01 * rate), name  # sqrt(32 / 8) for the batch
        assert group["weight_decay"] == pytest.approx(0.1 * decay), name
        assert group["eps"] == pytest.approx(plain * epsilon), name


def test_sgd_learns_faster_at_the_input_and_slower_at_the_output():
    groups = groups_of(Plain(width=128, batch=32))
    rates = {name: group["lr"] / (4 * 0.01) for name, group in groups.items()}
    assert rates["embedding.weight"] == pytest.approx(4)
    assert rates["blocks.0.attention.out_proj.weight"] == pytest.approx(1)
    assert rates["head.weight"] == pytest.approx(1 / 4)
    for group in groups.values():
        assert group["lr"] * group["weight_decay"] == pytest.approx(4 * 0.01 * 0.1)


def test_initial_values_spread_as_the_shape_asks_and_others_stay():
    torch.manual_seed(0)
    task = Words(width=128, depth=4)
    model, base = task.build_model(), task.scale_from().build_model()
    own = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    state = torch.get_rng_state()
    scale_weights(task, model)
    assert torch.equal(torch.get_rng_state(), state)
    spread, small = (
        {name: float(weight.detach().std()) for name, weight in either.named_parameters()}
        for either in (model, base)
    )
    for name, factor in (("embedding.weight", 1), ("position", 1), ("head.weight", 1 / 4)):
        assert spread[name] == pytest.approx(factor * small[name], rel=0.15), name
    hidden = "attention.out_proj.weight"
    assert spread[f"blocks.3.{hidden}"] == pytest.approx(small[f"blocks.1.{hidden}"] / 2, rel=0.05)
    for name in ("head.bias", "blocks.0.norm.weight", "blocks.0.norm.bias"):
        assert torch.equal(own[name], model.get_parameter(name)), name


@pytest.mark.parametrize("shape", [(4.0, 1.0), (1.0, 4.0), (2.0, 8.0), (8.0, 2.0)])
def test_the_spectral_norm_of_initial_values_keeps_its_size_by_any_shape(shape):
    """A matrix multiplies activations by about sqrt(fan_out / fan_in), as the condition asks."""
    fan_in, fan_out = shape
    torch.manual_seed(0)
    norms = []
    for n_in, n_out in ((64, 64), (int(64 * fan_in), int(64 * fan_out))):
        growth = Growth(n_in / 64, n_out / 64, 1.0)
        matrix = torch.randn(n_out, n_in) * growth.initial
        norms.append(float(torch.linalg.matrix_norm(matrix, 2)) / (n_out / n_in) ** 0.5)
    assert 0.45 < norms[1] / norms[0] < 1.3


def test_other_optimizers_and_a_second_rule_for_the_batch_are_refused():
    with pytest.raises(ValueError, match=r"how RMSprop scales .* choose AdamW, SGD or Muon"):
        groups_of(Plain(kind="rmsprop"))
    with pytest.raises(ValueError, match=r"lr_scaling is sqrt, .* leave lr_scaling out"):
        groups_of(Words(), replace(EXACT, lr_scaling="sqrt"))


class Tied(Words):
    def build_model(self) -> nn.Module:
        model = super().build_model()
        model.head.weight = model.embedding.weight
        return model


class Unequal(Words):
    def build_model(self) -> nn.Module:
        sizes = [WORDS, *[self.width] * self.depth, WORDS]
        return nn.Sequential(*(nn.Linear(*pair) for pair in pairwise(sizes)))


class Other(Words):
    def build_model(self) -> nn.Module:
        model = super().build_model()
        if self.width > 32:
            model.extra = nn.Linear(2, 2)
        return model


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Tied(width=64), "embedding.weight is shared|head.weight is shared"),
        (Unequal(depth=4), "the base's blocks differ from each other"),
        (Other(width=64), "extra.weight has no counterpart extra.weight"),
    ],
)
def test_models_that_the_base_does_not_tell_how_to_scale_are_refused(task, message):
    with pytest.raises(ValueError, match=message):
        groups_of(task)


class Layers(Words):
    """Layers that a tensor group can split, and a pipeline can cut."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(
            nn.Embedding(WORDS, self.width),
            *(
                nn.Sequential(
                    nn.Linear(self.width, 2 * self.width),
                    nn.GELU(),
                    nn.Linear(2 * self.width, self.width),
                )
                for _ in range(self.depth)
            ),
            nn.Linear(self.width, WORDS),
        )


def trained_rates(rank: int, strategy: str, ranks: int, folder) -> tuple[list[float], list[float]]:
    training = Training(strategy, precision="64-true", optimizer="adamw", accumulate=2)
    worker = Worker.alone(until=2, folder=folder, training=training)
    worker = replace(worker, rank=rank, world_size=ranks)
    task = Layers(width=64)
    with prepare(task, worker) as trainer:
        rates = sorted({group["lr"] for group in trainer.state.optimizer.param_groups})
        trainer.run()
    return rates, [report.metrics["val/loss"] for report in worker.reports if report.metrics]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "zero1", "tensor", "pipeline"])
def test_sharded_models_are_scaled_as_whole_ones(on_ranks, tmp_path, strategy):
    alone = trained_rates(0, "single", 1, tmp_path / "alone")
    shared = on_ranks(trained_rates, strategy, 2, tmp_path / "shared", ranks=2)
    for rates, _ in shared:
        assert set(rates) <= set(alone[0])
    assert shared[0][1] == pytest.approx(alone[1], rel=1e-9)
