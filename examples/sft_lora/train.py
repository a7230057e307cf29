"""Supervised fine-tuning by LoRA: a small model of Python code learns to write docstrings.

The base is a Llama of 0.2 million weights that has read packages of the standard library. The pairs
come from its other modules: a function's head is the prompt, the first line of its docstring the
answer, on which alone the loss counts.

Axes: N pairs, B of a batch, T characters.
"""

import ast
import sysconfig
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from trainables import Data, Task, Tensors
from trainables.data import Batch, prepared
from trainables.lora import LoraOptions, adapt, load_base

LIBRARY = Path(sysconfig.get_path("stdlib"))
READ = ("asyncio", "email", "http", "importlib", "json", "logging", "multiprocessing", "unittest")
LENGTH, TRAINING, HELD_OUT = 80, 1024, 256  # characters of a pair; pairs
PADDING, END = 0, 1
BASES = Path(tempfile.gettempdir(), "hposvc-examples")


@dataclass(frozen=True)
class Docstrings(Task):
    """Report val/loss, in nats for a character of an answer."""

    lr: float = 2e-4
    batch: int = 16
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: str = "*.q_proj *.v_proj"  # patterns of names of layers
    reading: int = 200  # updates of the base

    def build_model(self) -> nn.Module:
        folder = prepared(BASES / f"reader-{self.reading}", lambda into: read(into, self.reading))
        base = load_base(LlamaForCausalLM.from_pretrained, folder)
        targets = tuple(self.targets.split())
        return adapt(base, LoraOptions(self.rank, self.alpha, self.dropout, targets))

    def load_data(self) -> Data:
        parts = (part_NT[: TRAINING + HELD_OUT].split([TRAINING, HELD_OUT]) for part_NT in pairs())
        return Data(*(Tensors(*part) for part in zip(*parts, strict=True)))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        text_BT, counts_BT = batch
        logits_BTC = model(input_ids=text_BT[:, :-1]).logits
        loss_BT = cross_entropy(logits_BTC.transpose(1, 2), text_BT[:, 1:], reduction="none")
        return loss_BT[counts_BT[:, 1:]]


@cache
def pairs() -> tuple[Tensor, Tensor]:
    """Return heads with docstrings as characters, and which of these are the answers' (N, T)."""
    text_NT, counts_NT = [], []
    for file in sorted(LIBRARY.glob("*.py")):
        code = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(code)):
            if not isinstance(node, ast.FunctionDef):
                continue
            head = code.splitlines()[node.lineno - 1].strip() + "\n"
            answer = (ast.get_docstring(node) or "").partition("\n")[0]
            pair = f"{head}{answer}"
            if answer and head.endswith(":\n") and pair.isascii() and len(pair) < LENGTH:
                rest = LENGTH - len(pair) - 1
                text_NT.append([*pair.encode(), END, *[PADDING] * rest])
                counts_NT.append([len(head) <= place <= len(pair) for place in range(LENGTH)])
    order_N = torch.randperm(len(text_NT), generator=torch.Generator().manual_seed(0))
    return torch.tensor(text_NT)[order_N], torch.tensor(counts_NT)[order_N]


def read(folder: Path, updates: int) -> None:
    """Train the base on the library's packages, and save it in a folder."""
    files = [file for name in READ for file in sorted(LIBRARY.glob(f"{name}/*.py"))]
    code = "".join(file.read_text(encoding="utf-8") for file in files)
    text_T = torch.tensor([*code.encode("ascii", "ignore")])
    torch.manual_seed(0)
    sizes = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=128, num_attention_heads=4, use_cache=False, **sizes)
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(updates):
        start_B1 = torch.randint(len(text_T) - LENGTH, (32, 1))
        text_BT = text_T[start_B1 + torch.arange(LENGTH)]
        optimizer.zero_grad()
        model(input_ids=text_BT, labels=text_BT).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.save_pretrained(folder)
