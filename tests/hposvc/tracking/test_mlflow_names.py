"""The names and values that MLflow takes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name

from hposvc.tracking.mlflow_names import legal_entry, legal_name
from hposvc.tracking.projection import MetricPoint, RunContent


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("val/loss", "val/loss"),
        ("recall@10", "recall_10-2ad980"),
        ("recall%10", "recall_10-e078f3"),
        ("recall_10-2ad980", "recall_10-2ad980-4f53cd"),
        ("a//b", "a__b-df1b7e"),
        ("../up", "_../up-236965"),
        ("", "_-4f53cd"),
        ("größe", "größe"),
        ("x" * 400, "x" * 243 + "-bb53aa"),
    ],
)
def test_names_that_mlflow_refuses_are_made_legal(name: str, expected: str):
    assert legal_name(name) == expected


@given(st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_a_legal_name_is_one_that_mlflow_takes(text: str):
    _validate_metric_name(legal_name(text))


@given(st.lists(st.text("a_@%/.- \n", max_size=6), unique=True, max_size=20))
@settings(max_examples=200, deadline=None)
def test_two_names_never_become_one(names: list[str]):
    assert len({legal_name(name) for name in names}) == len(names)
    assert len({legal_name("x" * 245 + name) for name in names}) == len(names)


def test_an_entry_gets_legal_names_and_params_as_short_text():
    points = [MetricPoint("acc@1", 0.5, 1_000, 1)]
    tags = {"hposvc.description": "a valley", "team@home": "vision"}
    entry = legal_entry(RunContent({"lr@0": 1e-3, "wide": None, "text": "x" * 9000}, tags, points))
    assert entry.params == {"lr_0-f3563a": "0.001", "wide": "None", "text": "x" * 6000}
    assert entry.tags == {"mlflow.note.content": "a valley", "team_home-54598f": "vision"}
    assert entry.points == [MetricPoint("acc_1-f3563a", 0.5, 1_000, 1)]
