"""Check of the samples of a spec's Task: rows in both sources, NaN, classes, and what to do."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hposvc.analysis.memory import Case, in_trial_folder
from hposvc.spec import SweepSpec
from hposvc.text import listed
from trainables.data.checking import Column, Rows, read_rows
from trainables.randomness import preserved, seed_all

ROWS = 100_000  # of a source that are read
MOST_CLASSES = 1000  # a last column of more different integers holds no classes
MAJORITY = 0.8  # share of a class from which a remark is made
LISTED = 6  # classes that a sentence names

Pair = tuple[int, int]  # a row, and one that it is compared with
Classes = dict[int, tuple[int, int]]  # rows of training and of validation by class


@dataclass(frozen=True)
class DataCheck:
    """Training and validation samples, and their rows that are equal."""

    train: Rows
    validation: Rows
    leaked: list[Pair]  # of validation, equal to one of training
    duplicates: list[Pair]  # of training, equal to an earlier one
    # Equal in all columns but the last: of training with an earlier one; of validation with one
    # of training.
    contradictory: list[Pair]
    contradictory_across: list[Pair]
    classes: Classes | None  # None: the last column holds no classes

    @property
    def problems(self) -> list[str]:
        """Return the faults that make a trial's metrics wrong, as sentences."""
        return [*_leaks(self), *_unusable("NaN", self)]

    @property
    def remarks(self) -> list[str]:
        """Return the oddities that are worth a look, as sentences."""
        return [
            *_contradictions(self),
            *_duplicates(self),
            *_unusable("infinite", self),
            *_class_remarks(self),
        ]

    def data(self) -> dict[str, Any]:
        """Return what `hposvc validate --data -o json` prints of it."""
        classes = None
        if self.classes is not None:
            names = ("class", "train", "validation")
            classes = [
                dict(zip(names, (name, *counts), strict=True))
                for name, counts in self.classes.items()
            ]
        return {
            "train": _plain(self.train),
            "validation": _plain(self.validation),
            "leaked": self.leaked,
            "duplicates": self.duplicates,
            "contradictory": self.contradictory,
            "contradictory_across": self.contradictory_across,
            "classes": classes,
            "problems": self.problems,
            "remarks": self.remarks,
        }


def check_data(spec: SweepSpec, rows: int = ROWS) -> DataCheck:
    """Load the samples of a spec's Task in this process, and look at so many rows of each source.

    Raises:
        SpecError: the spec does not train a Task.
    """
    with in_trial_folder(spec), preserved():
        case = Case.of(spec)
        seed_all(spec.seed)
        data = case.task.load_data()
        train, validation = read_rows(data.train, rows), read_rows(data.validation, rows)
        data.close()
    duplicates, contradictory = _compare(train, train)
    leaked, across = _compare(validation, train)
    classes = _classes(train, validation)
    return DataCheck(train, validation, leaked, duplicates, contradictory, across, classes)


def _compare(rows: Rows, others: Rows) -> tuple[list[Pair], list[Pair]]:
    """Return pairs of equal rows, and of those that differ in the last column only.

    Rows are compared with earlier ones if both arguments are the same.
    """
    by_row: dict[str, int] = {}
    by_inputs: dict[str, int] = {}
    equal, differing = [], []
    if others is not rows:
        for number, row, inputs in zip(others.number_N, others.row_N, others.inputs_N, strict=True):
            by_row.setdefault(row, number)
            by_inputs.setdefault(inputs, number)
    for number, row, inputs in zip(rows.number_N, rows.row_N, rows.inputs_N, strict=True):
        if row in by_row:
            equal.append((number, by_row[row]))
        elif inputs in by_inputs:
            differing.append((number, by_inputs[inputs]))
        if others is rows:
            by_row.setdefault(row, number)
            by_inputs.setdefault(inputs, number)
    return equal, differing


def _classes(train: Rows, validation: Rows) -> Classes | None:
    in_train, in_validation = Counter(train.label_N), Counter(validation.label_N)
    names = {*in_train, *in_validation}
    rows = len(train.label_N) + len(validation.label_N)
    if None in names or len(names) > min(MOST_CLASSES, max(2, rows // 2)):
        return None
    known = sorted(name for name in names if name is not None)
    return {name: (in_train[name], in_validation[name]) for name in known}


def _leaks(check: DataCheck) -> Iterator[str]:
    if check.leaked:
        row, same = check.leaked[0]
        yield (
            f"validation: {_of(len(check.leaked), len(check.validation.number_N))} rows are in "
            f"train too (row {row:,} is row {same:,} of train), so its metrics are too good; take "
            "them out of train or of validation"
        )


def _unusable(what: str, check: DataCheck) -> Iterator[str]:
    for name, index, column in _columns(check):
        if what == "NaN" and column.nan:
            yield (
                f"{name}, column {index}: NaN in {column.nan:,} values, first in row "
                f"{column.first_nan:,}, which makes losses NaN; fill them in load_data, or leave "
                "the rows out"
            )
        if what == "infinite" and column.infinite:
            yield (
                f"{name}, column {index}: infinity in {column.infinite:,} values; limit them in "
                "load_data unless the model expects them, as in a mask"
            )


def _contradictions(check: DataCheck) -> Iterator[str]:
    for pairs, rows, name, other in (
        (check.contradictory, check.train, "train", "an earlier row"),
        (check.contradictory_across, check.validation, "validation", "a row of train"),
    ):
        if pairs:
            yield (
                f"{name}: {_of(len(pairs), len(rows.number_N))} rows equal {other} in all but the "
                f"last column (row {pairs[0][0]:,} and row {pairs[0][1]:,}); if that is their "
                "label, one of the two is wrong, or the inputs do not determine it"
            )


def _duplicates(check: DataCheck) -> Iterator[str]:
    if pairs := check.duplicates:
        yield (
            f"train: {_of(len(pairs), len(check.train.number_N))} rows repeat an earlier one (row "
            f"{pairs[0][0]:,} is row {pairs[0][1]:,}); leave them out unless they shall count more"
        )


def _class_remarks(check: DataCheck) -> Iterator[str]:
    classes = check.classes or {}
    if missing := [f"{name}" for name, (train, _) in classes.items() if not train]:
        yield (
            f"validation has classes that train lacks ({listed(missing, LISTED)}); divide the rows "
            "of each class between the two"
        )
    if absent := [f"{name}" for name, (_, validation) in classes.items() if not validation]:
        yield (
            f"validation lacks classes of train ({listed(absent, LISTED)}), and says nothing about "
            "them"
        )
    rows = sum(train for train, _ in classes.values())
    most = max(classes, key=lambda name: classes[name][0], default=0)
    if len(classes) > 1 and classes[most][0] >= MAJORITY * rows:
        yield (
            f"train: {classes[most][0] / rows:.1%} of the rows have class {most}, and a model that "
            "always answers so is right as often; look at a metric of the other classes too, or "
            "draw them more often (hposvc docs weighted)"
        )


def _columns(check: DataCheck) -> Iterator[tuple[str, int, Column]]:
    for name, rows in (("train", check.train), ("validation", check.validation)):
        for index, column in enumerate(rows.columns):
            yield name, index, column


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,}"


def _plain(rows: Rows) -> dict[str, Any]:
    columns = [
        {"kind": column.kind, "nan": column.nan, "infinite": column.infinite}
        for column in rows.columns
    ]
    return {"rows": len(rows.number_N), "of": rows.of, "columns": columns}
