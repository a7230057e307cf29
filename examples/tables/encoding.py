"""Encoding of a table's rows as a tensor of numbers, fitted to the training rows.

Numbers are scaled to mean 0 and variance 1; missing ones become 0, and each column with missing
values gets an indicator column. Categories are codes for a network's embeddings. All are in one
tensor, so that the stages of a pipeline can pass it on: codes end at 255, since every precision of
training holds integers up to 255 exactly.

Axes: R rows, N columns of numbers, K of categories, F of all features, indicators included.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from columns import Array, Columns
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from torch import Tensor

Scaling = Literal["standard", "quantile"]

MOST_KINDS = 255  # values of a column with a code; bfloat16 holds no integers between 256 and 258
MOST_QUANTILES = 1_000
OTHER = 0  # the code of unknown values, trained on values that occur in a single training row


@dataclass(frozen=True)
class Layout:
    """The columns of encoded rows: numbers first, then codes."""

    numbers: int
    kinds: tuple[int, ...]  # number of codes of each category, OTHER included

    @property
    def features(self) -> int:
        return self.numbers + len(self.kinds)


@dataclass(frozen=True)
class Encoding:
    """An encoding fitted to training rows, for rows with the same columns."""

    scaler: Any  # of scikit-learn
    known_N: NDArray[np.bool_]  # columns with a value in at least one training row
    lacks_N: NDArray[np.bool_]  # those of them with a missing value in another training row
    codes: tuple[Mapping[str | None, int], ...]  # for each category; None: a missing value

    @property
    def layout(self) -> Layout:
        numbers = int(self.known_N.sum() + self.lacks_N.sum())
        return Layout(numbers, tuple(1 + len(codes) for codes in self.codes))

    def encode(self, columns: Columns) -> Tensor:
        """Return the encoded rows x_RF in float32."""
        number_RN = columns.number_RN[:, self.known_N]
        scaled_RN = self.scaler.transform(number_RN) if number_RN.size else number_RN
        lacking_RN = np.isnan(columns.number_RN[:, self.lacks_N])
        code_RK = [
            [codes.get(kind, OTHER) for kind in columns.category_RK[:, index]]
            for index, codes in enumerate(self.codes)
        ]
        parts = [np.nan_to_num(scaled_RN), lacking_RN, np.reshape(code_RK, (-1, len(columns))).T]
        return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))


def fit(train: Columns, scaling: Scaling) -> Encoding:
    """Fit an encoding to training rows.

    Args:
        scaling: "quantile" replaces numbers by their ranks, so that outliers do no harm.
    """
    missing_RN = np.isnan(train.number_RN)
    known_N = ~np.logical_and.reduce(missing_RN)
    scaler = _scaler(scaling, len(train))
    if known_N.any():
        scaler.fit(train.number_RN[:, known_N])
    codes = tuple(_codes(kind_R) for kind_R in train.category_RK.T)
    return Encoding(scaler, known_N, np.logical_or.reduce(missing_RN) & known_N, codes)


def standardized(train_R: Array, other_R: Array) -> tuple[Array, Array, float]:
    """Standardize both by the mean and deviation of the first; also return that deviation."""
    mean, deviation = float(train_R.mean()), float(train_R.std())
    return (train_R - mean) / deviation, (other_R - mean) / deviation, deviation


def _scaler(scaling: Scaling, rows: int) -> Any:
    if scaling == "standard":
        return StandardScaler()
    quantiles = QuantileTransformer(
        n_quantiles=min(rows, MOST_QUANTILES), output_distribution="normal", subsample=None
    )
    # Ties at an end, as in yes/no columns, would come out as 5 deviations.
    return make_pipeline(quantiles, StandardScaler())


def _codes(kind_R: NDArray[np.object_]) -> dict[str | None, int]:
    """Number the most frequent values 1, 2, ...; equally frequent ones in order of their names."""
    counts = Counter(kind_R.tolist())
    often = sorted(
        (kind for kind, count in counts.items() if count > 1),
        key=lambda kind: (-counts[kind], kind is None, kind or ""),
    )
    return {kind: code for code, kind in enumerate(often[:MOST_KINDS], start=OTHER + 1)}
