"""Networks for tables: they predict a class or a number for each row.

A table is one bundled with scikit-learn, or a CSV file:

    data: homes.csv
    target: price

The split into training and validation rows, and their order, depend on the contents of the rows
alone: neither a trial's seed nor sorting the file changes them, and equal rows are adjacent.

Axes: R rows, B of a batch, F features.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import get_args

import encoding
import numpy as np
import tabular_networks
import torch
from columns import Columns, Predicts, Rows, read
from encoding import Layout, Scaling
from numpy.typing import NDArray
from tabular_networks import Kind, Shape
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables.data import Batch, Data, Tensors
from trainables.optim.building import OptimizerOptions, build
from trainables.parallel.plan import How
from trainables.task import Task
from trainables.zoo.digits import class_metrics


@dataclass(frozen=True)
class Tables(Task):
    """A network for rows; for classes it reports val/accuracy (a share) and val/loss (nats).

    For numbers it reports val/rmse, in the target's units, val/r2 (the share of variance
    explained), and val/loss: the mean square error, in variances of the training rows.
    """

    lr: float = 1e-3
    batch: int = 64
    data: str = "breast_cancer"  # or diabetes, iris, wine; or a CSV file readable on every node
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
        self._shape  # noqa: B018 - raises for shapes that cannot be built

    @property
    def _shape(self) -> Shape:
        return Shape(self.kind, self.width, self.depth, self.heads, self.dropout)

    def table(self) -> "Table":
        """Return the table, read once per process."""
        return prepare(self.data, self.target, self.predicts, self.scaling, self.validation)

    def build_model(self) -> nn.Module:
        table = self.table()
        return tabular_networks.build(self._shape, table.layout, len(table.classes) or 1)

    def load_data(self) -> Data:
        return self.table().data

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BF, target_B = batch
        outputs = model(x_BF)
        if target_B.is_floating_point():
            return _square_errors(outputs, target_B)
        return cross_entropy(outputs, target_B, reduction="none")

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        x_BF, target_B = batch
        outputs = model(x_BF)
        if target_B.is_floating_point():
            return {"loss": _square_errors(outputs, target_B)}
        return class_metrics(outputs, target_B)

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
    """Encoded rows, and the factors that convert errors to the target's units."""

    data: Data  # x_RF and indices of classes, or numbers of mean 0 and variance 1
    layout: Layout
    classes: tuple[str, ...]  # empty: numbers
    deviation: float = 1.0  # of the training rows' targets
    variance: float = 1.0  # of the validation rows' targets, in that deviation's units


# Cached by five fields of a trial: two choose the rows, and three how they are used.
@cache
def prepare(
    data: str, target: str | None, predicts: Predicts, scaling: Scaling, validation: float
) -> Table:
    """Read a table, split it, and encode it as fitted to its training rows.

    Raises:
        ValueError: the table cannot be read, has nothing to learn, or has too few rows to split.
    """
    columns = read(data, target, predicts)
    train, held_out = (columns.pick(rows) for rows in split(columns, validation))
    encoder = encoding.fit(train, scaling)
    inputs = encoder.encode(train), encoder.encode(held_out)
    if columns.classes:
        labels = (torch.from_numpy(part.target_R).long() for part in (train, held_out))
        parts = [Tensors(*pair) for pair in zip(inputs, labels, strict=True)]
        return Table(Data(*parts), encoder.layout, columns.classes)
    if np.ptp(train.target_R) == 0:
        raise ValueError(
            f"validation is {validation}: the {len(train)} training rows that it leaves are of one "
            "target; give a smaller share, or more rows"
        )
    *targets, deviation = encoding.standardized(train.target_R, held_out.target_R)
    numbers = [torch.from_numpy(part.astype(np.float32)) for part in targets]
    parts = [Tensors(*pair) for pair in zip(inputs, numbers, strict=True)]
    return Table(Data(*parts), encoder.layout, (), deviation, float(targets[1].var()))


def split(columns: Columns, validation: float) -> tuple[Rows, Rows]:
    """Split rows for training and validation: the same share of each class, and at least one row.

    Rows with equal inputs, such as repeated measurements, stay together within a class.

    Raises:
        ValueError: there are too few rows for both.
    """
    if len(columns) < 2:
        raise ValueError(f"the table has {len(columns)} row; give 2 or more")
    strata = columns.target_R if columns.classes else np.zeros(len(columns))
    chosen_R = np.zeros(len(columns), dtype=bool)
    for value in np.unique(strata):
        rows = np.flatnonzero(strata == value)
        wanted = min(len(rows) - 1, max(1, round(validation * len(rows))))
        chosen_R[rows[: _rows_of_full_groups(columns.group_R[rows], wanted)]] = True
    return np.flatnonzero(~chosen_R), np.flatnonzero(chosen_R)


def _rows_of_full_groups(group_R: NDArray[np.int64], most: int) -> int:
    """Return how many rows to take, near `most`, without cutting a group.

    If all rows are of one group, return `most`.
    """
    edges = np.flatnonzero(np.diff(group_R)) + 1
    return int(edges[np.abs(edges - most).argmin()]) if len(edges) and most else most


def _square_errors(found_B1: Tensor, target_B: Tensor) -> Tensor:
    return (found_B1.squeeze(1) - target_B).square()
