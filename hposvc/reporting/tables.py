"""A sweep's trials, or all its reports, as a file for other tools: CSV, JSON or Parquet."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hposvc.analysis.selection import plain_cell
from hposvc.errors import fail
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.result import Result
from searchers import nearest

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "json", "parquet")
STUDIES = (".db", ".log")  # endings of Optuna's files, which hold studies in place of a table


def trials_table(sweep: OpenSweep) -> "pd.DataFrame":
    """Return all trials, one row each, with the columns of `Result.trials`."""
    record = sweep.record()
    return Result(record.row.id, record.phase, record).trials


def curves_table(sweep: OpenSweep) -> "pd.DataFrame":
    """Return all reports, one row each, with the columns of `Result.curves`."""
    record = sweep.record()
    return Result(record.row.id, record.phase, record, lambda: sweep.history()[1]).curves


def format_of(file: Path) -> str:
    """Return the format that a file's ending says: one of FORMATS, or optuna.

    Raises:
        SpecError: it says none.
    """
    if file.suffix[1:] in FORMATS:
        return file.suffix[1:]
    if file.suffix in STUDIES:
        return "optuna"
    hint = nearest(file.suffix[1:], (*FORMATS, *(name[1:] for name in STUDIES)))
    raise fail(f"{file}: no such format", fix=f"{hint}; or give --format")


def written(frame: "pd.DataFrame", form: str) -> bytes:
    """Return a table in one of FORMATS: UTF-8 text, of JSON a list of objects; or Parquet.

    In CSV, texts that a spreadsheet would run as a formula are quoted. A Parquet column has one
    type: one of several, such as a choice between 1 and "auto", becomes text.
    """
    if form == "csv":
        return frame.map(plain_cell).to_csv(index=False).encode()
    if form == "json":
        return f"{frame.to_json(orient='records', indent=2)}\n".encode()
    data: bytes = frame.apply(_of_one_type).to_parquet(index=False)
    return data


def _of_one_type(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of several types as texts, any other as it is."""
    types = {type(value) for value in column.dropna()}
    if column.dtype != object or len(types) < 2:
        return column
    return column.map(str, na_action="ignore")
