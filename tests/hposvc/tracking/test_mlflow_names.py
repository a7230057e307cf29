"""The names and values that MLflow takes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name

from hposvc.tracking.mlflow_names import legal_entry, legal_name
from hposvc.tracking.projection import Entry, Point


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("val/loss", "val/loss"),
        ("acc@1", "acc_1"),
        ("f1(macro) %", "f1_macro_ _"),
        ("a//b", "a__b"),
        ("/rooted", "_rooted"),
        ("../up", "_../up"),
        ("trailing/", "trailing_"),
        ("..", "_.."),
        ("", "_"),
        ("größe", "größe"),
        ("x" * 400, "x" * 250),
    ],
)
def test_names_that_mlflow_refuses_are_made_legal(name: str, expected: str):
    assert legal_name(name) == expected


@given(st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_a_legal_name_is_one_that_mlflow_takes(text: str):
    _validate_metric_name(legal_name(text))


def test_an_entry_gets_legal_names_and_params_as_short_text():
    points = [Point("acc@1", 0.5, 1_000, 1)]
    tags = {"hposvc.description": "a valley", "team@home": "vision"}
    entry = legal_entry(Entry({"lr@0": 1e-3, "wide": None, "text": "x" * 9000}, tags, points))
    assert entry.params == {"lr_0": "0.001", "wide": "None", "text": "x" * 6000}
    assert entry.tags == {"mlflow.note.content": "a valley", "team_home": "vision"}
    assert entry.points == [Point("acc_1", 0.5, 1_000, 1)]
