"""Models as people have them, as tasks small enough for tests of pairs of training options.

Axes: N samples, B samples of a batch, T tokens of a sample, F features, C channels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tasks import Attention, Decoded, Deep
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables.data import Batch, Data, Tensors
from trainables.lora import LoraOptions, adapt
from trainables.parallel.plan import How


class Residual(nn.Module):
    """Two convolutions with batch norm, around which the input goes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return (x_BCHW + self.layers(x_BCHW)).relu()


@dataclass(frozen=True)
class Convolved(Deep):
    """Three classes of images of 6 by 6 pixels, by a residual network with batch norm."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            Residual(4),
            Residual(4),
            nn.Flatten(),
            nn.Linear(4 * 36, 3),
        )

    def load_data(self) -> Data:
        generator = torch.Generator().manual_seed(1)
        x_NCHW = torch.randn(30, 1, 6, 6, generator=generator, dtype=torch.float64)
        label_N = (x_NCHW.mean(dim=(1, 2, 3)) * 20).long().clamp(-1, 1) + 1
        columns = (x_NCHW, label_N)
        return Data(Tensors(*(c[:23] for c in columns)), Tensors(*(c[23:] for c in columns)))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1], reduction="none")


@dataclass(frozen=True)
class Transformed(Decoded):
    """Decoded, whose heads ranks of a tensor group can split."""

    def plan_tensor(self, model: nn.Module) -> Mapping[str, How]:
        named = [f"blocks.{block}" for block in range(2)]
        split = {f"{block}.{part}" for block in named for part in ("query", "key", "value")}
        return {name: "colwise" for name in split} | {f"{name}.output": "rowwise" for name in named}


@dataclass(frozen=True)
class LlamaTuned(Decoded):
    """A Llama of Hugging Face's transformers with LoRA, whose outputs are an object."""

    def build_model(self) -> nn.Module:
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2}
        heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 31}
        with torch.random.fork_rng():
            torch.manual_seed(0)  # the pretrained base
            model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, use_cache=False))
        return adapt(model, LoraOptions(rank=2, targets=("*_proj",), whole=("lm_head",)))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        token_BT, next_BT, counts_BT = batch
        return cross_entropy(
            model(input_ids=token_BT).logits[counts_BT], next_BT[counts_BT], reduction="none"
        )


class Recurring(nn.Module):
    """An LSTM; its outputs are a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Embedding(31, 8, padding_idx=0)
        self.memory = nn.LSTM(8, 8, 2, batch_first=True)
        self.head = nn.Linear(8, 31)

    def forward(self, token_BT: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output_BTF, state = self.memory(self.lift(token_BT))
        return self.head(output_BTF), state


@dataclass(frozen=True)
class Recurrent(Decoded):
    """The next token by an LSTM."""

    def build_model(self) -> nn.Module:
        return Recurring()

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        token_BT, next_BT, counts_BT = batch
        logits, _ = model(token_BT)
        return cross_entropy(logits[counts_BT], next_BT[counts_BT], reduction="none")


class Answering(nn.Module):
    """Blocks that are used twice; the outputs are a dict with several values, also for a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.scale = nn.Linear(3, 8), nn.Parameter(torch.ones(1))
        self.blocks = nn.ModuleList(Attention(8) for _ in range(2))
        self.head = nn.Linear(8, 1)

    def forward(self, features: Tensor, *, times: int) -> dict[str, Any]:
        x_BTF = self.lift(features)
        for _ in range(times):
            for block in self.blocks:
                x_BTF = self.scale * block(x_BTF)
        hidden = (x_BTF, x_BTF.square().mean(dim=2))
        return {"answer": self.head(x_BTF).squeeze(2), "hidden": hidden, "cache": None}


@dataclass(frozen=True)
class Answered(Deep):
    """A task whose model takes named arguments and returns a dict; two of its values count."""

    lr: float = 0.005

    def build_model(self) -> nn.Module:
        return Answering()

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BTF, y_BT, counts_BT = batch
        outputs = model(features=x_BTF, times=2)
        _, size_BT = outputs["hidden"]
        return (outputs["answer"] - y_BT)[counts_BT].square() + 0.01 * size_BT[counts_BT]


class Leaving(nn.Module):
    """A branch, a block and a weight are not used; a layer is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.head, self.unused = nn.Linear(3, 8), nn.Linear(8, 1), nn.Linear(8, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.spare = nn.Parameter(torch.ones(4))

    def forward(self, x_BTF: Tensor) -> Tensor:
        x_BTF = self.lift(x_BTF)
        for block in self.blocks[:2]:
            x_BTF = x_BTF + self.frozen(block(x_BTF).tanh())
        return self.head(x_BTF)


@dataclass(frozen=True)
class Spared(Deep):
    """A task whose model has weights that no update uses."""

    def build_model(self) -> nn.Module:
        return Leaving()


USUAL: Mapping[str, Deep] = {
    "convnet": Convolved(),
    "transformer": Transformed(),
    "llama": LlamaTuned(),
    "lstm": Recurrent(),
    "dict": Answered(),
    "unused": Spared(),
}
