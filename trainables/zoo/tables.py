"""Networks that learn a table: a class, or a number, of each row.

A table comes with scikit-learn, or is a CSV file:

    data: homes.csv
    target: price

The split in training and validation rows, and their order, follow from what the rows hold: no
trial's seed, and no sorting of the file, changes them, and equal rows come to lie together.

Axes: R rows, B of a batch, F features.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables.data import Batch, Data, Tensors
from trainables.optim.building import OptimizerOptions, build
from trainables.parallel.plan import How
from trainables.task import Task
from trainables.zoo import encoding, tabular_networks
from trainables.zoo.classification import judged
from trainables.zoo.columns import Columns, Predicts, Rows, read
from trainables.zoo.encoding import Layout, Scaling
from trainables.zoo.tabular_networks import Kind, Shape


@dataclass(frozen=True)
class Tables(Task):
    """A network for rows; of classes it reports val/accuracy (a share) and val/loss (nats).

    Of numbers it reports val/rmse, in the target's units, val/r2 (the share of the variance that
    is explained), and val/loss: the mean square error, in variances of the training rows.
    """

    lr: float = 1e-3
    batch: int = 64
    data: str = "breast_cancer"  # or diabetes, iris, wine; or a CSV file that every node sees
    target: str | None = None  # the column of a file to predict
    predicts: Predicts = "auto"
    kind: Kind = "mlp"
    width: int = 64
    depth: int = 2
    heads: int = 4  # of ft
    dropout: float = 0.1
    scaling: Scaling = "standard"  # or quantile, for numbers with outliers
    weight_decay: float = 1e-5
    validation: float = 0.2  # share of the rows

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kinds in (("predicts", Predicts), ("scaling", Scaling)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; choose one of {', '.join(get_args(kinds))}"
                )
        if not 0 < self.validation < 1:
            raise ValueError(f"validation is {self.validation}; give a share between 0 and 1")
        self._shape  # noqa: B018 - refuses what cannot be built

    @property
    def _shape(self) -> Shape:
        return Shape(self.kind, self.width, self.depth, self.heads, self.dropout)

    def table(self) -> "Table":
        """What is learned; read once a process."""
        return prepare(self.data, self.target, self.predicts, self.scaling, self.validation)

    def build_model(self) -> nn.Module:
        table = self.table()
        return tabular_networks.build(self._shape, table.layout, len(table.classes) or 1)

    def load_data(self) -> Data:
        return self.table().data

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BF, target_B = batch
        found = model(x_BF)
        if target_B.is_floating_point():
            return _square_errors(found, target_B)
        return cross_entropy(found, target_B, reduction="none")

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        x_BF, target_B = batch
        found = model(x_BF)
        if target_B.is_floating_point():
            return {"loss": _square_errors(found, target_B)}
        return judged(found, target_B)

    def summarize(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        table, loss = self.table(), metrics["val/loss"]
        if table.classes:
            return {}
        rmse = {"val/rmse": table.deviation * math.sqrt(loss)}
        return rmse | {"val/r2": 1 - loss / table.variance} if table.variance else rmse

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return build(model, OptimizerOptions("adamw", self.lr, self.weight_decay, 0.0, 1.0))

    def plan_tensor(self, model: nn.Module) -> Mapping[str, How]:
        return tabular_networks.plan(model)


@dataclass(frozen=True)
class Table:
    """Encoded rows, and what turns errors into the target's units."""

    data: Data  # x_RF and places of classes, or numbers of mean 0 and variance 1
    layout: Layout
    classes: tuple[str, ...]  # empty: numbers
    deviation: float = 1.0  # of the training rows' targets
    variance: float = 1.0  # of the validation rows' targets, in that deviation's units


# A trial's fields, two of which choose the rows, and three what is made of them.
@cache
def prepare(
    data: str, target: str | None, predicts: Predicts, scaling: Scaling, validation: float
) -> Table:
    """A table, split and encoded by its training rows.

    Raises:
        ValueError: it cannot be read, or holds nothing to learn; or a part of it has no rows.
    """
    columns = read(data, target, predicts)
    train, judging = (columns.pick(rows) for rows in split(columns, validation))
    learned = encoding.fit(train, scaling)
    inputs = learned.encode(train), learned.encode(judging)
    if columns.classes:
        labels = (torch.from_numpy(part.target_R).long() for part in (train, judging))
        parts = [Tensors(*pair) for pair in zip(inputs, labels, strict=True)]
        return Table(Data(*parts), learned.layout, columns.classes)
    if np.ptp(train.target_R) == 0:
        raise ValueError(
            f"validation is {validation}: the {len(train)} training rows that it leaves are of one "
            "target; give a smaller share, or more rows"
        )
    *targets, deviation = encoding.standardized(train.target_R, judging.target_R)
    numbers = [torch.from_numpy(part.astype(np.float32)) for part in targets]
    parts = [Tensors(*pair) for pair in zip(inputs, numbers, strict=True)]
    return Table(Data(*parts), learned.layout, (), deviation, float(targets[1].var()))


def split(columns: Columns, validation: float) -> tuple[Rows, Rows]:
    """Training and validation rows: of each class the same share, and one row of each at least.

    Rows of equal inputs, such as repeated measurements, are not torn apart within a class.

    Raises:
        ValueError: there are too few rows for both.
    """
    if len(columns) < 2:
        raise ValueError(f"the table has {len(columns)} row; give 2 or more")
    strata = columns.target_R if columns.classes else np.zeros(len(columns))
    chosen_R = np.zeros(len(columns), dtype=bool)
    for value in np.unique(strata):
        rows = np.flatnonzero(strata == value)
        most = min(len(rows) - 1, max(1, round(validation * len(rows))))
        chosen_R[rows[: _whole(columns.group_R[rows], most)]] = True
    return np.flatnonzero(~chosen_R), np.flatnonzero(chosen_R)


def _whole(group_R: NDArray[np.int64], most: int) -> int:
    """How many of the first rows are whole groups, about `most`; all of one group: that many."""
    edges = np.flatnonzero(np.diff(group_R)) + 1
    return int(edges[np.abs(edges - most).argmin()]) if len(edges) and most else most


def _square_errors(found_B1: Tensor, target_B: Tensor) -> Tensor:
    return (found_B1.squeeze(1) - target_B).square()
