"""A table as columns: numbers, categories, and the target.

Axes: R rows, N columns of numbers, K columns of categories.
Data bundled with scikit-learn: Fisher's iris, Forina's wine, Wolberg's breast_cancer, and the
diabetes of Efron et al., Least Angle Regression (2004), section 1.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

Predicts = Literal["auto", "class", "number"]
Array = NDArray[np.float64]
Rows = NDArray[np.int64]

BUNDLED: Mapping[str, Callable[..., dict[str, pd.DataFrame]]] = {
    "breast_cancer": load_breast_cancer,
    "diabetes": load_diabetes,
    "iris": load_iris,
    "wine": load_wine,
}
MOST_CLASSES = 20  # integer targets with more values are numbers, unless `predicts` is class


@dataclass(frozen=True)
class Columns:
    """A table, with rows ordered by their contents instead of by their order in the file."""

    numbers: tuple[str, ...]  # names of columns
    categories: tuple[str, ...]  # names of columns
    number_RN: Array  # NaN: missing
    category_RK: NDArray[np.object_]  # text; None: missing
    target_R: Array  # numbers, or indices into `classes`
    classes: tuple[str, ...]  # empty: a number is predicted
    group_R: NDArray[np.int64]  # ascending; rows with equal inputs have equal numbers

    def __len__(self) -> int:
        return len(self.target_R)

    def pick(self, rows: Rows) -> "Columns":
        """Return a table of these rows."""
        return replace(
            self,
            number_RN=self.number_RN[rows],
            category_RK=self.category_RK[rows],
            target_R=self.target_R[rows],
            group_R=self.group_R[rows],
        )


def read(data: str, target: str | None, predicts: Predicts) -> Columns:
    """Read a bundled table by its name, or a file: CSV, or TSV by its suffix, compressed or not.

    Args:
        target: the column to predict; None: the target of a bundled table.
        predicts: "auto" treats text, and integers with few values, as classes.

    Raises:
        ValueError: there is no such table or column, or nothing can be learned from it.
    """
    if data in BUNDLED:
        if target is not None:
            raise ValueError(f"target is {target!r}; {data} has its own, so leave it out")
        return from_frame(BUNDLED[data](as_frame=True)["frame"], "target", predicts)
    frame = _read_file(data)
    if target is None:
        names = ", ".join(map(str, frame.columns))
        raise ValueError(f"target is not given; name the column of {data} to predict: {names}")
    return from_frame(frame, target, predicts)


def from_frame(frame: pd.DataFrame, target: str, predicts: Predicts) -> Columns:
    """Return the columns of a frame, without empty ones.

    Raises:
        ValueError: as for `read`.
    """
    if target not in frame.columns:
        raise ValueError(
            f"target is {target!r}, which is no column; {_nearest_hint(target, frame)}"
        )
    target_R, classes = _parse_target(frame[target], target, predicts)
    inputs = frame.drop(columns=target).dropna(axis=1, how="all")
    if inputs.columns.empty:
        raise ValueError(f"target is {target!r}, and no other column has a value to go by")
    numbers = [name for name in inputs if pd.api.types.is_numeric_dtype(inputs[name])]
    categories = [name for name in inputs if name not in numbers]
    kind_RK = np.array(inputs[categories].astype(str), dtype=object)
    kind_RK[inputs[categories].isna().to_numpy(np.bool_)] = None
    columns = Columns(
        tuple(map(str, numbers)),
        tuple(map(str, categories)),
        inputs[numbers].to_numpy(np.float64, na_value=np.nan),
        kind_RK,
        target_R,
        classes,
        np.zeros(len(frame), dtype=np.int64),
    )
    for index, name in enumerate(columns.numbers):
        _check_finite(columns.number_RN[:, index], f"column {name!r}")
    rows, group_R = _row_order(frame, target)
    return replace(columns.pick(rows), group_R=group_R)


def _read_file(data: str) -> pd.DataFrame:
    path = Path(data)
    if not path.is_file():
        raise ValueError(
            f"data is {data!r}, which is no file here; give one that every node sees, or one of "
            f"{', '.join(BUNDLED)}: {_nearest_hint(data, BUNDLED)}"
        )
    try:
        # Tables of the UCI repository have "?" for missing values.
        return pd.read_csv(
            path,
            sep="\t" if ".tsv" in path.suffixes else ",",
            na_values=["?"],
            skipinitialspace=True,
            low_memory=False,
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"data is {data!r}, which cannot be read as a table: {error}") from error


def _row_order(frame: pd.DataFrame, target: str) -> tuple[Rows, NDArray[np.int64]]:
    """Order rows pseudo-randomly by their contents; equal inputs are adjacent, with one number."""
    input_R, row_R = _row_keys(frame.drop(columns=target)), _row_keys(frame)
    rows = np.array(sorted(range(len(frame)), key=lambda row: (input_R[row], row_R[row])))
    ordered = [input_R[row] for row in rows]
    new_R = [before != after for before, after in pairwise(ordered)]
    return rows, np.cumsum([0, *new_R])


def _row_keys(frame: pd.DataFrame) -> list[bytes]:
    """Return a hash of each row's contents."""
    hash_R = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    # Sorting by pandas's own hashes is not quite random: it put breast_cancer's hard rows first.
    return [blake2b(hash_.tobytes(), digest_size=8).digest() for hash_ in hash_R]


def _parse_target(
    column: "pd.Series[float]", name: str, predicts: Predicts
) -> tuple[Array, tuple[str, ...]]:
    """Return the target as numbers without classes, or as indices into classes with these."""
    missing_R = column.isna().to_numpy()
    if missing_R.any():
        row = int(missing_R.argmax()) + 1
        raise ValueError(
            f"target {name!r} is missing in {missing_R.sum()} rows, first in row {row}; leave such "
            "rows out"
        )
    if column.nunique() < 2:
        raise ValueError(
            f"target {name!r} has {column.nunique()} value in {len(column)} rows; it takes 2 or "
            "more to learn what tells them apart"
        )
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if predicts == "class" or (predicts == "auto" and (not numeric or _looks_like_classes(column))):
        return _classes(column, name)
    if not numeric:
        raise ValueError(
            f"target {name!r} is {column.iloc[0]!r} in row 1, which is no number; let predicts be "
            "class"
        )
    values_R = np.asarray(column, dtype=np.float64)
    _check_finite(values_R, f"target {name!r}")
    return values_R, ()


def _looks_like_classes(column: "pd.Series[float]") -> bool:
    return column.nunique() <= MOST_CLASSES and bool((column % 1 == 0).all())


def _classes(column: "pd.Series[float]", name: str) -> tuple[Array, tuple[str, ...]]:
    labels = column if pd.api.types.is_numeric_dtype(column) else column.astype(str)
    places_R, values = pd.factorize(labels, sort=True)
    rare = np.bincount(places_R) < 2
    if rare.any():
        names = [str(value) for value in values[rare]]
        raise ValueError(
            f"target {name!r}: {', '.join(names[:5])} {'is' if len(names) == 1 else 'are'} in one "
            "row each; a class has 2 or more, to learn from and to judge by. Leave rare ones out, "
            "or let predicts be number"
        )
    return places_R.astype(np.float64), tuple(map(str, values))


def _check_finite(values_R: Array, what: str) -> None:
    wrong_R = np.isinf(values_R)
    if wrong_R.any():
        row = int(wrong_R.argmax())
        raise ValueError(
            f"{what} is {values_R[row]} in row {row + 1}; give finite numbers, or leave it empty "
            "where it is not known"
        )


def _nearest_hint(name: str, known: Iterable[object]) -> str:
    return f"the nearest is {get_close_matches(name, list(map(str, known)), n=1, cutoff=0.0)[0]!r}"
