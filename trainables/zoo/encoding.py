"""A table's rows as one tensor of numbers, by what its training rows say.

Numbers come to a mean of 0 and a variance of 1; a missing one is 0, and a column that lacks some
has another that says where. Categories are codes, which a network looks up. All are in one tensor,
so that a pipeline can hand it on: codes end at 255, the last whole number that every format of
training holds exactly.

Axes: R rows, N columns of numbers, K of categories, F of both and of what says where one lacks.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from torch import Tensor

from trainables.zoo.columns import Array, Columns

Scaling = Literal["standard", "quantile"]

MOST_KINDS = (
    255  # of a column that have a code; bfloat16 holds no whole numbers between 256 and 258
)
MOST_QUANTILES = 1_000
OTHER = 0  # the code of kinds that are new, and of those in one training row, from which it learns


@dataclass(frozen=True)
class Layout:
    """The columns of encoded rows: numbers first, then codes."""

    numbers: int
    kinds: tuple[int, ...]  # codes of each category, OTHER included

    @property
    def features(self) -> int:
        return self.numbers + len(self.kinds)


@dataclass(frozen=True)
class Encoding:
    """What has been learned of training rows; makes tensors of any rows with their columns."""

    scaler: Any  # of scikit-learn
    known_N: NDArray[np.bool_]  # columns with a value in some training row
    lacks_N: NDArray[np.bool_]  # and with none in another
    codes: tuple[Mapping[str | None, int], ...]  # of each category; None: it is missing

    @property
    def layout(self) -> Layout:
        numbers = int(self.known_N.sum() + self.lacks_N.sum())
        return Layout(numbers, tuple(1 + len(codes) for codes in self.codes))

    def encode(self, columns: Columns) -> Tensor:
        """Rows as x_RF, float32."""
        number_RN = columns.number_RN[:, self.known_N]
        scaled_RN = self.scaler.transform(number_RN) if number_RN.size else number_RN
        lacking_RN = np.isnan(columns.number_RN[:, self.lacks_N])
        code_RK = [
            [codes.get(kind, OTHER) for kind in columns.category_RK[:, at]]
            for at, codes in enumerate(self.codes)
        ]
        parts = [np.nan_to_num(scaled_RN), lacking_RN, np.reshape(code_RK, (-1, len(columns))).T]
        return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))


def fit(train: Columns, scaling: Scaling) -> Encoding:
    """Learn from training rows.

    Args:
        scaling: "quantile" takes a number's rank for what it is, so that outliers do no harm.
    """
    missing_RN = np.isnan(train.number_RN)
    known_N = ~np.logical_and.reduce(missing_RN)
    scaler = _scaler(scaling, len(train))
    if known_N.any():
        scaler.fit(train.number_RN[:, known_N])
    codes = tuple(_codes(kind_R) for kind_R in train.category_RK.T)
    return Encoding(scaler, known_N, np.logical_or.reduce(missing_RN) & known_N, codes)


def standardized(train_R: Array, other_R: Array) -> tuple[Array, Array, float]:
    """Both by the mean and deviation of the first, and that deviation."""
    mean, deviation = float(train_R.mean()), float(train_R.std())
    return (train_R - mean) / deviation, (other_R - mean) / deviation, deviation


def _scaler(scaling: Scaling, rows: int) -> Any:
    if scaling == "standard":
        return StandardScaler()
    quantiles = QuantileTransformer(
        n_quantiles=min(rows, MOST_QUANTILES), output_distribution="normal", subsample=None
    )
    # Ties at an end, as of yes and no, come out as 5 deviations.
    return make_pipeline(quantiles, StandardScaler())


def _codes(kind_R: NDArray[np.object_]) -> dict[str | None, int]:
    """1, 2, ... for the most frequent kinds, of equally frequent ones by their names."""
    counts = Counter(kind_R.tolist())
    often = sorted(
        (kind for kind, count in counts.items() if count > 1),
        key=lambda kind: (-counts[kind], kind is None, kind or ""),
    )
    return {kind: code for code, kind in enumerate(often[:MOST_KINDS], start=OTHER + 1)}
