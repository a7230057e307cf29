"""`hposvc validate --data`: what it says of a Task's samples, and its exit code."""

import re
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[3] / "examples" / "digits.yaml"
TASK = """
from dataclasses import dataclass

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

from trainables import Task
from trainables.data import Data, Tensors


@dataclass(frozen=True)
class Cells(Task):
    fault: str = "none"

    def build_model(self):
        return nn.Linear(30, 2)

    def load_data(self):
        x, y = map(torch.from_numpy, load_breast_cancer(return_X_y=True))
        train, other = torch.arange(569) % 5 > 0, torch.arange(569) % 5 == 0
        x_train, y_train, x_other, y_other = x[train], y[train], x[other], y[other]
        if self.fault == "leak":
            x_other[3:5], y_other[3:5] = x_train[7:9], y_train[7:9]
        if self.fault == "nan":
            x_train[11, 2] = float("nan")
        if self.fault == "remarks":
            x_train[9, 0] = float("inf")
            x_train[5], y_train[5] = x_train[4], y_train[4]
            x_train[6], y_train[6] = x_train[4], 1 - y_train[4]
            y_other[0] = 7
            rare = (y_train == 0).nonzero()[8:, 0]
            y_train[rare] = 1
            y_train[6] = 1 - y_train[4]
        return Data(Tensors(x_train, y_train), Tensors(x_other, y_other))

    def compute_losses(self, model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
"""
SPEC = """
trainable: cells.py:Cells
metric: {{name: val/loss, goal: minimize}}
fidelity: {{max: 1}}
parameters: {{fault: {{values: [{fault}, other]}}}}
trials: {{max: 1}}
initial: [{{fault: {fault}}}]
"""


@pytest.fixture
def cells(tmp_path):
    """Return a function that writes the spec of a Task whose samples have a fault."""

    def write(fault):
        (tmp_path / "cells.py").write_text(TASK)
        (tmp_path / "cells.yaml").write_text(SPEC.format(fault=fault))
        return tmp_path / "cells.yaml"

    return write


def test_good_samples_are_counted_and_nothing_is_said_against_them(hposvc, cells):
    code, out, _ = hposvc("validate", cells("none"), "--data")
    assert code == 0
    for row in (
        r"train +455 rows",
        r"validation +114 rows",
        r"train +0 +float64 30 +0 +0",
        r"validation +1 +int64 +0 +0",
        r"0 +\d+ +\d+\.\d% +\d+ +\d+\.\d%",
        r"samples: nothing to remark",
    ):
        assert re.search(row, out), row


def test_rows_in_both_sources_are_a_problem_with_its_place(hposvc, cells):
    result = hposvc("validate", cells("leak"), "--data", "-o", "json")
    assert result.code == 2
    assert result.data["data"]["leaked"] == [[3, 7], [4, 8]]
    (problem,) = result.data["data"]["problems"]
    assert problem.startswith(
        "validation: 2 of 114 rows are in train too (row 3 is row 7 of train)"
    )


def test_nan_is_a_problem_with_its_place(hposvc, cells):
    code, out, _ = hposvc("validate", cells("nan"), "--data")
    assert code == 2
    assert "problem: train, column 0: NaN in 1 values, first in row 11" in " ".join(out.split())


def test_what_may_be_meant_is_a_remark(hposvc, cells):
    result = hposvc("validate", cells("remarks"), "--data", "-o", "json")
    assert result.code == 0
    remarks = result.data["data"]["remarks"]
    for text in (
        r"train: 1 of 455 rows equal an earlier row in all but the last column \(row 6 and row 4\)",
        r"train: 1 of 455 rows repeat an earlier one \(row 5 is row 4\)",
        r"train, column 0: infinity in 1 values",
        r"validation has classes that train lacks \(7\)",
        r"train: 9\d\.\d% of the rows have class 1",
    ):
        assert any(re.match(text, remark) for remark in remarks), text
    assert result.data["data"]["classes"][-1] == {"class": 7, "train": 0, "validation": 1}


def test_fewer_rows_are_checked_if_asked_for(hposvc):
    code, out, _ = hposvc("validate", DIGITS, "--data", "--rows", 100)
    assert code == 0
    assert re.search(r"train +100 of 1,437 rows", out)
    code, _, error = hposvc("validate", DIGITS, "--rows", 100)
    assert code == 2
    assert "give --data too" in error


def test_samples_of_other_trainables_are_not_known(hposvc, spec):
    code, _, error = hposvc("validate", spec(), "--data")
    assert code == 2
    assert "known of a Task only" in error
