"""Selection of trials to list: a filter that passes wrong trials hides the right ones."""

import csv
import io
from dataclasses import replace

import pytest
from simulated_sweeps import make_spec
from trial_rows import row

from hposvc.analysis.selection import choose, to_csv
from hposvc.errors import SpecError

SPEC = make_spec(
    metric={"name": "acc", "goal": "maximize"},
    parameters={"lr": {"min": 0.0, "max": 1.0}, "opt": {"values": ["sgd", "adamw"]}},
)


ROWS = [
    row(trial, state, value, params={"lr": lr, "opt": opt})
    for trial, state, value, lr, opt in (
        ("t0001", "COMPLETED", 0.5, 0.1, "sgd"),
        ("t0002", "FAILED", None, 0.2, "sgd"),
        ("t0003", "COMPLETED", 0.9, 0.3, "adamw"),
        ("t0004", "STOPPED", 0.7, 0.4, "adamw"),
    )
]


def ids(rows):
    return [row.trial[-1] for row in rows]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "1234"),
        ({"top": 2}, "12"),
        ({"sort": "-lr", "top": 3}, "432"),
        ({"where": ["state=failed"]}, "2"),
        ({"where": ["state!=FAILED", "lr>=0.3"]}, "34"),
        ({"where": ["opt=adamw"], "top": 1}, "3"),
    ],
)
def test_trials_are_filtered_sorted_and_cut(options, wanted):
    assert ids(choose(ROWS, SPEC, **options)) == list(wanted)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sort": "lrr"}, "--sort: there is no column 'lrr'; did you mean 'lr'"),
        ({"where": ["stat=FAILED"]}, "--where: there is no column 'stat'; did you mean 'state'"),
        ({"where": ["FAILED"]}, "--where: is 'FAILED'; write state=FAILED"),
    ],
)
def test_a_column_that_is_not_there_is_named(options, said):
    with pytest.raises(SpecError, match=said):
        choose(ROWS, SPEC, **options)


def test_csv_has_every_parameter_and_the_metric():
    rows = list(csv.DictReader(io.StringIO(to_csv(ROWS, SPEC))))
    assert [row["trial"] for row in rows] == ["t0001", "t0002", "t0003", "t0004"]
    assert rows[2]["metrics.acc"] == "0.9"
    assert (rows[2]["params.lr"], rows[2]["params.opt"]) == ("0.3", "adamw")
    assert rows[1]["metrics.acc"] == ""


def test_a_cell_of_csv_is_no_formula():
    hostile = replace(ROWS[0], detail="=cmd|' /C calc'!A0", reason="-1+1", state="@SUM(A1)")
    (row,) = csv.DictReader(io.StringIO(to_csv([hostile], SPEC)))
    shown = {name: row[name] for name in ("detail", "reason", "state") if name in row}
    assert shown
    assert all(text.startswith("'") for text in shown.values())
