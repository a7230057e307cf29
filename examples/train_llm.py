"""Fine-tuning of causal language models of Hugging Face's transformers, by LoRA or of all weights.

A model named by its name on the hub is downloaded once per node; with HF_HUB_OFFLINE=1, or a folder
in place of the name, nothing is. A sample is a window of a text; a step is one pass over the text.

Axes: N windows, B of a batch, T tokens of a window, V words of the vocabulary.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers_models import AutoModelForCausalLM, AutoTokenizer, load

from trainables.data import Batch, Data, Tensors
from trainables.lora import LoraOptions, adapt
from trainables.optim.building import OptimizerOptions, build
from trainables.task import Task

LARGEST = 700.0  # the largest loss whose perplexity is finite


@dataclass(frozen=True, kw_only=True)
class CausalLM(Task):
    """A pretrained model on a text; reports train/loss, val/loss (nats per token), val/perplexity.

    The log has the model's continuation of `prompt` at each step.
    """

    model: str  # a name on the hub, or a folder
    text: str  # a file in UTF-8, readable on every node
    lr: float = 2e-4
    batch: int = 8  # windows
    length: int = 512  # tokens of a window
    validation: float = 0.05  # share of the text, at its end
    lora_rank: int = 8  # 0: all weights are trained
    lora_alpha: float = 16.0
    lora_dropout: float = 0.05
    lora_targets: str = "*.q_proj *.v_proj"  # patterns of names of layers, separated by spaces
    weight_decay: float = 0.0
    prompt: str = "The"
    written: int = 64  # tokens generated for the log

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 2:
            raise ValueError(f"length is {self.length}; give 2 tokens or more")
        if not 0 < self.validation < 1:
            raise ValueError(f"validation is {self.validation}; give a share between 0 and 1")
        if self.lora_rank:
            self._options()

    def build_model(self) -> nn.Module:
        model = pretrained(self.model)
        return adapt(model, self._options()) if self.lora_rank else model

    def load_data(self) -> Data:
        return windows(self.model, self.text, self.length, self.validation)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        (window_BT,) = batch
        logits_BTV = model(input_ids=window_BT[:, :-1], use_cache=False).logits
        targets_BT = window_BT[:, 1:]
        exact = torch.promote_types(logits_BTV.dtype, torch.float32)
        logits_NV = logits_BTV.flatten(0, 1).to(exact)
        return cross_entropy(logits_NV, targets_BT.flatten(), reduction="none")

    def summarize(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        return {"val/perplexity": math.exp(min(metrics["val/loss"], LARGEST))}

    def show(self, model: nn.Module) -> str:
        return self.write(model, self.prompt)

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return build(model, OptimizerOptions("adamw", self.lr, self.weight_decay, 0.0, 1.0))

    def write(self, model: nn.Module, prompt: str) -> str:
        """Return the prompt with its likeliest continuation; all ranks sharing a model call it."""
        tokenizer, was_training = tokenizer_of(self.model), model.training
        generate = cast(Callable[..., Tensor], model.generate)
        inputs = tokenizer(prompt, return_tensors="pt").to(next(model.parameters()).device)
        model.eval()
        with torch.no_grad():
            tokens = generate(**inputs, max_new_tokens=self.written, do_sample=False)
        model.train(was_training)
        return str(tokenizer.decode(tokens[0], skip_special_tokens=True))

    def _options(self) -> LoraOptions:
        targets = tuple(self.lora_targets.split())
        return LoraOptions(self.lora_rank, self.lora_alpha, self.lora_dropout, targets)


def pretrained(name: str) -> nn.Module:
    """Load a model with its weights, in the dtype in which they are stored.

    Raises:
        ValueError: there is no model of that name.
    """
    try:
        model = load(AutoModelForCausalLM, name, dtype="auto")
    except (OSError, ValueError) as error:
        raise ValueError(f"model is {name!r}, which cannot be loaded: {error}") from error
    for module in model.modules():
        _keep_buffers(module)
    return model


def _keep_buffers(module: nn.Module) -> None:
    """Keep the dtype of buffers that a module computes from its configuration.

    Frequencies of rotary embeddings in bfloat16 would misplace distant tokens.
    """
    names = [
        name for name in module._non_persistent_buffers_set if module._buffers[name] is not None
    ]
    if not names:
        return
    move = module._apply

    def kept(function: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        exact = {name: module.get_buffer(name) for name in names}
        moved: nn.Module = move(function, recurse)
        for name, buffer in exact.items():
            module._buffers[name] = buffer.to(module.get_buffer(name).device)
        return moved

    module._apply = kept  # type: ignore[method-assign]


@cache
def tokenizer_of(name: str) -> Any:
    """Return a model's tokenizer.

    Raises:
        ValueError: there is no tokenizer of that name.
    """
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(f"model is {name!r}, whose tokenizer cannot be loaded: {error}") from error


@cache
def windows(model: str, text: str, length: int, validation: float) -> Data:
    """Cut a text into windows (N, T + 1) with each token a target once; the rest is dropped.

    Raises:
        ValueError: the file does not exist, or is too short.
    """
    file = Path(text)
    if not file.is_file():
        raise ValueError(f"text is {text!r}, which is no file here; give one that every node sees")
    content = file.read_text(encoding="utf-8")
    boundary = round((1 - validation) * len(content))
    parts = [
        torch.tensor(tokenizer_of(model)(part, verbose=False)["input_ids"])
        for part in (content[:boundary], content[boundary:])
    ]
    if min(map(len, parts)) <= length:
        raise ValueError(
            f"text: {text} has {len(parts[0])} tokens to learn from and {len(parts[1])} to judge "
            f"by, and a window {length + 1}; give a longer text, or a smaller length"
        )
    train, held_out = (part.unfold(0, length + 1, length) for part in parts)
    return Data(Tensors(train), Tensors(held_out), name=file.stem, source=f"{file.absolute()}")
