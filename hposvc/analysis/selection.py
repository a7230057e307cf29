"""Selection of a sweep's trials to list: by condition, by order, or the best."""

import csv
import io
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hposvc.errors import fail
from hposvc.open_sweep import Record
from hposvc.spec import SweepSpec
from hposvc.state.answers import Trial, values_of
from searchers import Value, as_cell, as_text, is_structured, nearest

OWN_COLUMNS = ("trial", "state", "reason", "step", "duration_s", "attempts", "seeds")
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
CONDITION = re.compile(r"(?P<name>.+?)(?P<sign><=|>=|!=|=|<|>)(?P<value>.*)")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # the first characters of a formula


def chosen(
    record: Record, where: Iterable[str], sort: str | None = None, top: int | None = None
) -> list[Trial]:
    """Return the rows of a sweep's trials that `choose` chooses; the best by the sweep's order."""
    rows = record.trials()
    if sort is None and top is not None:
        rows = [rows[trial.number] for trial in record.state.ranked()]
    return choose(rows, record.state.spec, where, sort, top)


def choose(
    rows: Sequence[Trial],
    spec: SweepSpec,
    where: Iterable[str] = (),
    sort: str | None = None,
    top: int | None = None,
) -> list[Trial]:
    """Return the first `top` of the rows that meet every condition, sorted.

    Args:
        where: conditions: `state=FAILED`, `lr>0.01`, `val/accuracy>=0.9`.
        sort: a column, smallest first; `-name`: largest first. Rows without a value come last.
        top: number of rows; None: all.

    Raises:
        SpecError: a condition is malformed, or a column does not exist.
    """
    matching = list(rows)
    for condition in where:
        matching = _filter(matching, spec, condition)
    if sort is not None:
        matching = _sorted(matching, spec, sort)
    return matching if top is None else matching[:top]


def to_csv(rows: Sequence[Trial], spec: SweepSpec) -> str:
    """Return the rows as CSV, with a column for each parameter and each optimised metric."""
    metrics = [metric.name for metric in spec.objectives]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # The space's parameters, then those that were decided within trials.
    names = dict.fromkeys([*spec.space, *(name for row in rows for name in row.params)])
    prefixed = [
        *(f"metrics.{name}" for name in metrics),
        *(f"params.{name}" for name in names),
    ]
    writer.writerow([*OWN_COLUMNS, *prefixed])
    for row in rows:
        cells = [getattr(row, name) for name in OWN_COLUMNS]
        values = [_column(row, spec, name) for name in metrics]
        params = [as_cell(row.params.get(name)) for name in names]
        writer.writerow(map(plain_cell, [*cells, *values, *params]))
    return text.getvalue()


def plain_cell(value: object) -> object:
    """Return a cell that a spreadsheet shows as it is: it runs a text that begins so."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _filter(rows: Sequence[Trial], spec: SweepSpec, condition: str) -> list[Trial]:
    parsed = CONDITION.fullmatch(condition)
    if parsed is None:
        raise fail(f"is {condition!r}", "--where", fix="write state=FAILED or lr>0.01")
    name, wanted_text = parsed["name"].strip(), parsed["value"].strip()
    _check(spec, name, "--where")
    holds = COMPARISONS[parsed["sign"]]
    return [row for row in rows if _holds(holds, _column(row, spec, name), wanted_text)]


def _holds(holds: Callable[[Any, Any], bool], value: Value, wanted_text: str) -> bool:
    """Return whether a condition holds, comparing numbers as numbers and anything else as text.

    A condition never holds for a row without a value.
    """
    if value is None:
        return False
    number = _number(wanted_text)
    if isinstance(value, int | float) and not isinstance(value, bool) and number is not None:
        return holds(value, number)
    if is_structured(value):
        with suppress(ValueError):  # [64,64] and [64, 64] are the same
            wanted_text = as_text(json.loads(wanted_text))
    return holds(as_text(value).lower(), wanted_text.lower())


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _sorted(rows: Sequence[Trial], spec: SweepSpec, sort: str) -> list[Trial]:
    name = sort.removeprefix("-")
    _check(spec, name, "--sort")
    with_value = [row for row in rows if _column(row, spec, name) is not None]
    kinds = {isinstance(_column(row, spec, name), int | float) for row in with_value}
    key = (lambda value: value) if kinds == {True} else as_text
    with_value.sort(key=lambda row: key(_column(row, spec, name)), reverse=sort.startswith("-"))
    return [*with_value, *(row for row in rows if _column(row, spec, name) is None)]


def _check(spec: SweepSpec, name: str, option: str) -> None:
    columns = [*OWN_COLUMNS, *(metric.name for metric in spec.objectives), *spec.space]
    if name not in columns:
        raise fail(f"there is no column {name!r}", option, fix=nearest(name, columns))


def _column(row: Trial, spec: SweepSpec, name: str) -> Any:
    """Return a row's own column, or its value of a metric or parameter; None: it has no value."""
    if name in OWN_COLUMNS:
        return getattr(row, name)
    metrics = [metric.name for metric in spec.objectives]
    if name not in metrics:
        return row.params.get(name)
    values = values_of(row.value)
    return values[metrics.index(name)] if values else None
