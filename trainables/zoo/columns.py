"""A table as columns: numbers, categories, and what is to be predicted.

Axes: R rows, N columns of numbers, K columns of categories.
Data that come with scikit-learn: Fisher's iris, Forina's wine, Wolberg's breast_cancer, and the
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
MOST_CLASSES = 20  # whole numbers of more values than that are numbers, unless one says otherwise


@dataclass(frozen=True)
class Columns:
    """A table; its rows are in an order that follows from what they hold, not from the file's."""

    numbers: tuple[str, ...]  # names
    categories: tuple[str, ...]
    number_RN: Array  # NaN where it is missing
    category_RK: NDArray[np.object_]  # text; None where it is missing
    target_R: Array  # numbers, or places in `classes`
    classes: tuple[str, ...]  # empty: a number is predicted
    group_R: NDArray[np.int64]  # ascending; equal where all but the target is

    def __len__(self) -> int:
        return len(self.target_R)

    def pick(self, rows: Rows) -> "Columns":
        """Some of its rows."""
        return replace(
            self,
            number_RN=self.number_RN[rows],
            category_RK=self.category_RK[rows],
            target_R=self.target_R[rows],
            group_R=self.group_R[rows],
        )


def read(data: str, target: str | None, predicts: Predicts) -> Columns:
    """A bundled table by its name, or a file: CSV, or TSV by its ending, compressed or not.

    Args:
        target: the column to predict; None: that of a bundled table.
        predicts: "auto" takes text for classes, and whole numbers of few values.

    Raises:
        ValueError: there is no such table or column, or nothing can be learned from it.
    """
    if data in BUNDLED:
        if target is not None:
            raise ValueError(f"target is {target!r}; {data} has its own, so leave it out")
        return arranged(BUNDLED[data](as_frame=True)["frame"], "target", predicts)
    frame = _file(data)
    if target is None:
        known = ", ".join(map(str, frame.columns))
        raise ValueError(f"target is not given; name the column of {data} to predict: {known}")
    return arranged(frame, target, predicts)


def arranged(frame: pd.DataFrame, target: str, predicts: Predicts) -> Columns:
    """A frame's columns; those without any value are left out.

    Raises:
        ValueError: as for `read`.
    """
    if target not in frame.columns:
        raise ValueError(f"target is {target!r}, which is no column; {_near(target, frame)}")
    target_R, classes = _target(frame[target], target, predicts)
    given = frame.drop(columns=target).dropna(axis=1, how="all")
    if given.columns.empty:
        raise ValueError(f"target is {target!r}, and no other column has a value to go by")
    numbers = [name for name in given if pd.api.types.is_numeric_dtype(given[name])]
    categories = [name for name in given if name not in numbers]
    kind_RK = np.array(given[categories].astype(str), dtype=object)
    kind_RK[given[categories].isna().to_numpy(np.bool_)] = None
    columns = Columns(
        tuple(map(str, numbers)),
        tuple(map(str, categories)),
        given[numbers].to_numpy(np.float64, na_value=np.nan),
        kind_RK,
        target_R,
        classes,
        np.zeros(len(frame), dtype=np.int64),
    )
    for at, name in enumerate(columns.numbers):
        _check_finite(columns.number_RN[:, at], f"column {name!r}")
    rows, group_R = _order(frame, target)
    return replace(columns.pick(rows), group_R=group_R)


def _file(data: str) -> pd.DataFrame:
    path = Path(data)
    if not path.is_file():
        raise ValueError(
            f"data is {data!r}, which is no file here; give one that every node sees, or one of "
            f"{', '.join(BUNDLED)}: {_near(data, BUNDLED)}"
        )
    try:
        # "?" is what the UCI's tables hold where a value is missing.
        return pd.read_csv(
            path,
            sep="\t" if ".tsv" in path.suffixes else ",",
            na_values=["?"],
            skipinitialspace=True,
            low_memory=False,
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"data is {data!r}, which cannot be read as a table: {error}") from error


def _order(frame: pd.DataFrame, target: str) -> tuple[Rows, NDArray[np.int64]]:
    """Rows as if shuffled, by what they hold; equal inputs lie together, and have one number."""
    input_R, whole_R = _keys(frame.drop(columns=target)), _keys(frame)
    rows = np.array(sorted(range(len(frame)), key=lambda row: (input_R[row], whole_R[row])))
    ordered = [input_R[row] for row in rows]
    new_R = [before != after for before, after in pairwise(ordered)]
    return rows, np.cumsum([0, *new_R])


def _keys(frame: pd.DataFrame) -> list[bytes]:
    """A number of each row's contents."""
    hash_R = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    # The order of pandas's own hashes is not quite random: it put breast_cancer's hard rows first.
    return [blake2b(each.tobytes(), digest_size=8).digest() for each in hash_R]


def _target(
    column: "pd.Series[float]", name: str, predicts: Predicts
) -> tuple[Array, tuple[str, ...]]:
    """Numbers, or places in classes and these."""
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
    kept = column if pd.api.types.is_numeric_dtype(column) else column.astype(str)
    places_R, values = pd.factorize(kept, sort=True)
    rare = np.bincount(places_R) < 2
    if rare.any():
        found = [str(value) for value in values[rare]]
        raise ValueError(
            f"target {name!r}: {', '.join(found[:5])} {'is' if len(found) == 1 else 'are'} in one "
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


def _near(name: str, known: Iterable[object]) -> str:
    return f"the nearest is {get_close_matches(name, list(map(str, known)), n=1, cutoff=0.0)[0]!r}"
