"""Every gradient under every strategy against one process, on models that are easy to get wrong.

If this fails, ranks learn something different from one process, mostly in silence. With -s it
prints the table of the largest differences.

Axes: B samples of a batch, T tokens of a sample, H heads, F features, V words.
"""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks import alone
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, softmax

from trainables import Training, Worker, strategies
from trainables.checkpoints.exporting import weights
from trainables.checkpoints.storing import read
from trainables.data import Batch, Data, Tensors
from trainables.lora import LoraOptions, adapt
from trainables.task import Task

WORDS, WIDTH, HEADS = 11, 8, 2
EPOCHS = 3
CLOSE = {"64-true": 1e-11, "32-true": 1e-5}  # the largest gradients are near 1
ROUGH = {"Gemma3": 1e-6}  # its norms compute in 32 bits, whatever the precision


class Attention(nn.Module):
    """Attention; subclasses norm queries and keys head by head, as Qwen3 and Gemma3 do."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.Identity) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.q_norm, self.k_norm = norm(WIDTH // HEADS), norm(WIDTH // HEADS)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x_BTF: Tensor) -> Tensor:
        q, k, v = (layer(x_BTF).unflatten(2, (-1, WIDTH // HEADS)) for layer in self._layers())
        q, k = self.q_norm(q), self.k_norm(k)
        found_BHTF = self._attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return x_BTF + self.out(found_BHTF.transpose(1, 2).flatten(2))

    def _layers(self) -> tuple[nn.Module, ...]:
        return self.q, self.k, self.v

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v)


class NormedAttention(Attention):
    """Attention with a norm of each head's queries and keys."""

    def __init__(self) -> None:
        super().__init__(nn.RMSNorm)


class FlatNormedAttention(Attention):
    """Attention whose queries are normed over all heads at once, as in OLMo2."""

    def __init__(self) -> None:
        super().__init__()
        self.flat_norm = nn.RMSNorm(WIDTH)

    def _layers(self) -> tuple[nn.Module, ...]:
        return nn.Sequential(self.q, self.flat_norm), self.k, self.v


class ScaledAttention(Attention):
    """Attention with scales for each head, and biases for each head and distance, as in T5."""

    def __init__(self) -> None:
        super().__init__()
        self.scale_H11 = nn.Parameter(torch.rand(HEADS, 1, 1) + 0.5)
        self.distance = nn.Embedding(9, HEADS)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        at_T = torch.arange(q.shape[2])
        bias_HTT = self.distance(at_T[:, None] - at_T + 4).permute(2, 0, 1)
        return softmax(self.scale_H11 * q @ k.mT + bias_HTT, dim=-1) @ v


class ForeignAttention(NormedAttention):
    """Attention with norms of heads by another library's kernel, hidden from torch."""

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            plain = q.as_subclass(Tensor), k.as_subclass(Tensor), v.as_subclass(Tensor)
            return scaled_dot_product_attention(self.factor * plain[0], *plain[1:])

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.5))


class Gated(nn.Module):
    """A complete gate on a split layer: the layers before the gate get partial gradients there."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(8, 1), nn.Linear(8, 12), nn.Linear(12, 8)
        self.slope = nn.Parameter(torch.tensor([0.7]))

    def forward(self, x_BTF: Tensor) -> Tensor:
        return x_BTF + self.down(self.gate(x_BTF).sigmoid() * (self.slope * self.up(x_BTF)).tanh())


class Experts(nn.Module):
    """A choice of one of four experts for each token by a learned router."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 6), nn.ReLU(), nn.Linear(6, WIDTH)) for _ in range(4)
        )

    def forward(self, x_BTF: Tensor) -> Tensor:
        weight, chosen = softmax(self.router(x_BTF), dim=-1).max(dim=-1)
        output = torch.zeros_like(x_BTF)
        for number, expert in enumerate(self.experts):
            taken = chosen == number
            output[taken] = expert(x_BTF[taken]) * weight[taken][:, None]
        return x_BTF + output


class Words(nn.Module):
    """A task from words to words, with two layers; the head may be the table of words."""

    def __init__(self, layer: Callable[[], nn.Module], tied: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([layer(), layer()])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, at_BT: Tensor) -> Tensor:
        x_BTF = self.words(at_BT)
        for layer in self.layers:
            x_BTF = layer(x_BTF)
        found_BTV: Tensor = self.head(self.norm(x_BTF))
        return found_BTV


class Plain(nn.Module):
    """Two linear layers and a residual, which a plan finds."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Sequential(nn.Linear(WIDTH, 12), nn.Tanh(), nn.Linear(12, WIDTH))

    def forward(self, x_BTF: Tensor) -> Tensor:
        return x_BTF + self.both(x_BTF)


def in_a_row() -> nn.Module:
    """Return a model that a pipeline takes."""
    layers = [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)]
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), *layers, nn.Linear(WIDTH, WORDS))


def frozen() -> nn.Module:
    """Return a model with a frozen table and a frozen layer among others."""
    model = in_a_row()
    model[0].requires_grad_(False)
    model[3].requires_grad_(False)
    return model


def pretrained(kind: str) -> Callable[[], nn.Module]:
    """Return a tiny model of Hugging Face's transformers."""

    def build() -> nn.Module:
        import transformers

        rest = (
            {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6}
            if "Moe" in kind
            else {}
        )
        # Their fused experts know no double precision.
        eager = {"experts_implementation": "eager"} if "Moe" in kind else {}
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=WORDS, hidden_size=8, intermediate_size=12, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=4, max_position_embeddings=16,
            pad_token_id=0, bos_token_id=None, eos_token_id=None, **rest,
        )  # fmt: skip
        return Logits(transformers.AutoModelForCausalLM.from_config(config, **eager))

    return build


def adapted_llama() -> nn.Module:
    """Return a tiny Llama with LoRA: its table, norms and head are frozen."""
    options = LoraOptions(rank=2, targets=("*.q_proj", "*.v_proj"))
    return adapt(pretrained("Llama")(), options)


class Logits(nn.Module):
    """A causal language model that returns its logits only."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, at_BT: Tensor) -> Tensor:
        found_BTV: Tensor = self.model(input_ids=at_BT, use_cache=False).logits
        return found_BTV


COLUMNS = ("q", "k", "v", "up", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
ROWS = ("out", "down", "o_proj", "down_proj")
EACH_HEAD = ("scale_H11", "distance")
LAYERS = (nn.Linear, nn.Embedding)

MODELS: dict[str, Callable[[], nn.Module]] = {
    "layers in a row": in_a_row,
    "frozen parts": frozen,
    "plain blocks": lambda: Words(Plain),
    "q/k norms": lambda: Words(NormedAttention),
    "norm over all heads": lambda: Words(FlatNormedAttention),
    "number a head": lambda: Words(ScaledAttention),
    "foreign kernel": lambda: Words(ForeignAttention),
    "whole gate": lambda: Words(Gated),
    "experts": lambda: Words(Experts),
    "tied embeddings": lambda: Words(NormedAttention, tied=True),
}
LIBRARY: dict[str, Callable[[], nn.Module]] = {
    "Qwen3": pretrained("Qwen3"),
    "Gemma3": pretrained("Gemma3Text"),
    "OLMo2": pretrained("Olmo2"),
    "Qwen3 MoE": pretrained("Qwen3Moe"),
    "Llama, LoRA": adapted_llama,
}
STRATEGIES = {
    "ddp": Training("ddp"),
    "ddp, accumulate": Training("ddp", accumulate=2),
    "zero1": Training("zero1"),
    "fsdp": Training("fsdp"),
    "fsdp, ZeRO-2": Training("fsdp", reshard_after_forward=False, accumulate=2),
    "tensor": Training("tensor"),
    "tensor, activation_checkpointing": Training(
        "tensor", accumulate=2, activation_checkpointing=1
    ),
    "fsdp + tensor": Training("fsdp", tensor_parallel=2),
    "pipeline": Training("pipeline", accumulate=2),
    "local_sgd": Training("local_sgd", sync_every=1),
    "deepspeed": Training("deepspeed"),
    "deepspeed, ZeRO-3": Training("deepspeed", zero_stage=3),
}
SEVERAL = {name for name, kind in strategies.STRATEGIES.items() if kind.several_ranks}
assert {training.strategy for training in STRATEGIES.values()} == SEVERAL, "add the new one"
TENSOR = ("tensor", "tensor, activation_checkpointing", "fsdp + tensor")


def refusal(kind: str, strategy: str) -> str:
    """Return part of the reason for which a model is refused; empty if it is not."""
    if strategy == "pipeline" and kind not in ("layers in a row", "frozen parts"):
        return "whose forward can be anything"
    if kind == "foreign kernel" and strategy.startswith(("fsdp", "deepspeed")):
        return "scalar parameter"
    if kind == "foreign kernel" and strategy in TENSOR:
        return "different gradients of layers.0.factor"
    if kind in ("norm over all heads", "OLMo2") and strategy in TENSOR:
        return "meets one rank's share"
    if kind == "Llama, LoRA" and strategy in TENSOR:
        return "is adapted, and cannot be split"
    return ""


@dataclass(frozen=True)
class Odd(Task):
    """A task with one of the models; seven samples are one batch: a rank has four, one three."""

    kind: str = ""
    lr: float = 0.5
    batch: int = 7

    def build_model(self) -> nn.Module:
        return (MODELS | LIBRARY)[self.kind]()

    def load_data(self) -> Data:
        generator = torch.Generator().manual_seed(1)
        at_NT = torch.randint(1, WORDS, (12, 5), generator=generator)
        counts_NT = torch.arange(5) <= (torch.arange(12) * 7 % 5)[:, None]
        columns = at_NT, (at_NT * 3 + 1) % WORDS, counts_NT
        return Data(Tensors(*(c[:7] for c in columns)), Tensors(*(c[7:] for c in columns)))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        at_BT, to_BT, counts_BT = batch
        return cross_entropy(model(at_BT)[counts_BT], to_BT[counts_BT], reduction="none")

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        learning = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.SGD(learning, lr=self.lr)
        optimizer.register_step_pre_hook(lambda *_: copies.append(dict(_whole(model))))
        return optimizer

    def plan_tensor(self, model: nn.Module) -> Mapping[str, Any]:
        names = [name for name, module in model.named_modules() if isinstance(module, LAYERS)]
        names += [name for name, _ in model.named_parameters() if name.endswith(EACH_HEAD)]
        plan = {name: "colwise" for name in names if name.split(".")[-1] in COLUMNS + EACH_HEAD}
        plan |= {name: "rowwise" for name in names if name.split(".")[-1] in ROWS}
        return plan or super().plan_tensor(model)


copies: list[dict[str, Tensor]] = []  # gradients that this rank has as a whole, by update


def _whole(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, weight in model.named_parameters():
        gradient = weight.grad
        if isinstance(gradient, DTensor):
            if all(isinstance(placement, Replicate) for placement in gradient.placements):
                yield name, gradient.to_local().clone()
        elif gradient is not None:
            yield name, gradient.clone()


def trained(worker: Worker, kind: str) -> dict[str, Any]:
    """Return what a rank learned of a model, or why it could not."""
    copies.clear()
    try:
        Odd(kind=kind).train(worker)
    except Exception as error:  # noqa: BLE001 - the test tells refusals from crashes
        if not isinstance(error, ValueError):
            traceback.print_exc()
        return {"refused": f"{type(error).__name__}: {error}"}
    result: dict[str, Any] = {"copies": list(copies)}
    if worker.rank == 0:
        result["losses"] = [
            report.metrics[name] for report in worker.reports for name in ("train/loss", "val/loss")
        ]
        result["weights"] = weights(read(worker.checkpoints / worker.trial / "1-1"))
    return result


def on_rank(rank: int, kinds: Sequence[str], folder: Path) -> dict[tuple[str, str], Any]:
    """Return what this rank learned of each model under each strategy."""
    results = {}
    for strategy, options in STRATEGIES.items():
        for kind in kinds:
            name = f"{strategy}-{kind}".replace("/", " ")
            worker = Worker.alone(until=EPOCHS, folder=folder / name, training=exact(options))
            seen = trained(replace(worker, rank=rank, world_size=2), kind)
            results[kind, strategy] = seen
            # The other rank may have stopped elsewhere, and wait for this one.
            if not seen.get("refused", "ValueError").startswith("ValueError"):
                return results
    return results


def exact(options: Training) -> Training:
    """Return options as precise as the strategy can be."""
    return replace(options, precision="32-true" if options.strategy == "deepspeed" else "64-true")


@dataclass(frozen=True)
class Cell:
    """The comparison of a model under a strategy with one process."""

    refused: str = ""
    gradient: float = 0.0  # the largest difference of an element
    losses: float = 0.0  # the largest difference of a loss in three epochs
    close: float = 0.0  # what both may be

    def __str__(self) -> str:
        return "refused" if self.refused else f"{self.gradient:.0e} {self.losses:.0e}"


Table = dict[tuple[str, str], Cell]


@pytest.fixture(scope="module")
def tabled(
    on_two_ranks: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Sequence[str]], Table]:
    """Make the table of some models under each strategy."""

    def make(kinds: Sequence[str]) -> Table:
        folder = tmp_path_factory.mktemp("learned")
        rank_0, rank_1 = on_two_ranks(on_rank, kinds, folder)
        cells = {}
        for (kind, strategy), result in rank_0.items():
            options = exact(STRATEGIES[strategy])
            if "refused" in result:
                cells[kind, strategy] = Cell(result["refused"])
                continue
            own = Worker.alone(until=EPOCHS, folder=folder / "own", training=alone(options))
            name = f"{kind} {strategy}".replace("/", " ")
            expected = trained(replace(own, checkpoints=folder / name), kind)
            result = compared(expected, result, rank_1[kind, strategy], options)
            close = max(result.close, ROUGH.get(kind, 0.0))
            cells[kind, strategy] = replace(result, close=close)
        print("\n" + "\n".join(shown(cells)))  # noqa: T201 - the table is what -s is for
        return cells

    return make


@pytest.fixture(scope="module")
def table(tabled: Callable[[Sequence[str]], Table]) -> Table:
    """Return the table of this file's models."""
    return tabled(list(MODELS))


@pytest.fixture(scope="module")
def library(tabled: Callable[[Sequence[str]], Table]) -> Table:
    """Return the table of the library's models."""
    pytest.importorskip("transformers")
    return tabled(list(LIBRARY))


def compared(
    expected: dict[str, Any], rank_0: dict[str, Any], rank_1: dict[str, Any], options: Training
) -> Cell:
    """Return how far two ranks are from one process."""
    far = [0.0]
    first, own = expected["weights"], rank_0["weights"]
    assert first.keys() == own.keys()
    far += [_far(first[name], own[name]) / Odd.lr for name in first]
    if options.strategy in ("ddp", "zero1", "tensor"):  # whose ranks see gradients as they are
        for result in (rank_0["copies"], rank_1["copies"]):
            far += [
                _far(expected["copies"][update][name.removeprefix("module.")], gradient)
                for update, seen in enumerate(result)
                for name, gradient in seen.items()
            ]
    pairs = zip(expected["losses"], rank_0["losses"], strict=True)
    losses = max(abs(mine - theirs) for mine, theirs in pairs)
    return Cell("", max(far), losses, CLOSE[options.precision])


def _far(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def shown(cells: Mapping[tuple[str, str], Cell]) -> Iterator[str]:
    """Yield the table: the largest difference of a gradient, and of a loss in three epochs."""
    yield f"| | {' | '.join(STRATEGIES)} |"
    yield "| --- |" + " --- |" * len(STRATEGIES)
    for kind in dict.fromkeys(kind for kind, _ in cells):
        yield f"| {kind} | {' | '.join(str(cells[kind, column]) for column in STRATEGIES)} |"
    yield ""
    for (kind, strategy), cell in cells.items():
        if cell.refused:
            yield f"{strategy}, {kind}: {cell.refused}"


def wrong(table: Table, strategy: str) -> dict[str, str]:
    """Return the models that are neither right nor refused for the expected reason."""
    failures = {}
    for (kind, other), cell in table.items():
        reason = refusal(kind, strategy)
        right = cell.gradient <= cell.close and cell.losses <= cell.close
        if cell.refused or reason:
            right = (
                cell.refused.startswith("ValueError") and bool(reason) and reason in cell.refused
            )
        if other == strategy and not right:
            failures[kind] = cell.refused or str(cell)
    return failures


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_are_those_of_one_process_or_the_model_is_refused(table, strategy):
    assert wrong(table, strategy) == {}


@pytest.mark.full
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_of_a_librarys_models_are_those_of_one_process(library, strategy):
    assert wrong(library, strategy) == {}
