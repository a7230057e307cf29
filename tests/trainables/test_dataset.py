"""Descriptions of a trial's samples. If these fail, a driver dies of a value that it can't save."""

import json
from pathlib import Path

import numpy as np
import pytest

from trainables.dataset import LONGEST_SOURCE, DataSet


def test_what_people_have_at_hand_becomes_plain():
    data_set = DataSet("mnist", "training", np.int64(3), "", Path("/data/mnist"))
    assert json.loads(json.dumps(vars(data_set)))["source"] == "/data/mnist"
    assert type(data_set.samples) is int


@pytest.mark.parametrize(
    "given",
    [
        {"name": ""},
        {"name": "n" * 501},
        {"digest": "d" * 37},
        {"source": "s" * (LONGEST_SOURCE + 1)},
    ],
)
def test_what_mlflow_would_refuse_for_ever_is_refused_where_it_is_said(given):
    with pytest.raises(ValueError, match="data set"):
        DataSet(**{"name": "mnist", "context": "training", "samples": 3, **given})
