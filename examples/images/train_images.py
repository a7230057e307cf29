"""Classification of small images: scikit-learn's digits, and Fashion-MNIST.

Axes: B images. Data: Xiao, Rasul & Vollgraf, Fashion-MNIST (2017); see digits.py for the other.
"""

import gzip
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from vision import Kind, Shape, build

from trainables.data import Batch, Data, Tensors
from trainables.task import Task
from trainables.zoo.digits import class_metrics, digits

Name = Literal["digits", "fashion"]

CLASSES = 10
FOLDER = "FASHION_MNIST"  # the environment variable with the folder of the four files
DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # of Debian's package dataset-fashion-mnist
SIDES: Mapping[str, int] = {"digits": 8, "fashion": 28}
MEAN, DEVIATION = 0.2860, 0.3530  # of Fashion-MNIST's training pixels, as shares of white
SHIFT = 2  # pixels that augmented images are moved by at most


@dataclass(frozen=True)
class Images(Task):
    """A network for ten classes of images; reports val/accuracy (a share) and val/loss."""

    lr: float = 2e-3
    batch: int = 128
    data: Name = "fashion"
    kind: Kind = "cnn"
    width: int = 32
    depth: int = 1
    dropout: float = 0.0
    label_smoothing: float = 0.0
    augment: bool = False  # move and mirror training images at random
    weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.data)
        self._shape  # noqa: B018 - raises for shapes that cannot be built

    @property
    def _shape(self) -> Shape:
        return Shape(self.kind, self.width, self.depth, self.dropout)

    def build_model(self) -> nn.Module:
        return build(self._shape, 1, SIDES[self.data], CLASSES)

    def load_data(self) -> Data:
        return load(self.data)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels_B = batch
        images = scaled(images, model)
        if self.augment:
            images = augmented(images)
        smoothing = self.label_smoothing
        scores = model(images)
        return cross_entropy(scores, labels_B, reduction="none", label_smoothing=smoothing)

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        images, labels_B = batch
        return class_metrics(model(scaled(images, model)), labels_B)

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=self.lr, weight_decay=self.weight_decay)


def check(name: str) -> None:
    """Refuse data that `load` does not know.

    Raises:
        ValueError: the name is unknown; the message lists the known ones.
    """
    if name not in get_args(Name):
        raise ValueError(f"data is {name!r}; choose one of {', '.join(get_args(Name))}")


def load(name: Name) -> Data:
    """Load images by the name of their data set, to be scaled by `scaled`, and labels (B,)."""
    return digits() if name == "digits" else fashion(folder())


def scaled(images: Tensor, model: nn.Module) -> Tensor:
    """Standardize bytes (B, H, W) to (B, 1, H, W) in the model's dtype; return others unchanged."""
    if images.dtype != torch.uint8:
        return images
    shares = images.to(next(model.parameters()).dtype) / 255
    return ((shares - MEAN) / DEVIATION).unsqueeze(1)


def augmented(images: Tensor) -> Tensor:
    """Augment images (B, 1, H, W): mirror each or not, and shift it by a few pixels, at random."""
    count, side = len(images), images.size(3)
    mirror_B = torch.rand(count, device=images.device) < 0.5
    images = torch.where(mirror_B[:, None, None, None], images.flip(3), images)
    edge = float(-MEAN / DEVIATION)
    wide = pad(images, (SHIFT,) * 4, value=edge).squeeze(1)
    shifts = torch.randint(0, 2 * SHIFT + 1, (2, count, 1), device=images.device)
    rows, columns = torch.arange(side, device=images.device) + shifts
    at_B = torch.arange(count, device=images.device)
    return wide[at_B[:, None, None], rows[:, :, None], columns[:, None, :]].unsqueeze(1)


def folder() -> Path:
    """Return the folder of Fashion-MNIST.

    Raises:
        FileNotFoundError: the files are missing; the message says how to get them.
    """
    path = Path(os.environ.get(FOLDER, DEBIAN))
    if not (path / "train-images-idx3-ubyte.gz").exists():
        raise FileNotFoundError(
            f"Fashion-MNIST is not in {path}: `apt-get install dataset-fashion-mnist` on Debian "
            f"and Ubuntu, or set {FOLDER} to the folder of its four files (*-ubyte.gz)"
        )
    return path


@cache
def fashion(where: Path) -> Data:
    """Load 60,000 training and 10,000 test images: bytes (B, 28, 28), labels (B,)."""
    train, validation = _load_part(where, "train"), _load_part(where, "t10k")
    return Data(train, validation, name="fashion-mnist", source=f"{where}")


def _load_part(where: Path, name: str) -> Tensors:
    pixels = _read_bytes(where / f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
    labels = _read_bytes(where / f"{name}-labels-idx1-ubyte.gz", 8)
    return Tensors(pixels, labels.long())


def _read_bytes(file: Path, start: int) -> Tensor:
    """Read the bytes of a gzipped file from offset `start`."""
    with gzip.open(file) as stream:
        return torch.from_numpy(np.frombuffer(stream.read(), np.uint8, offset=start).copy())
