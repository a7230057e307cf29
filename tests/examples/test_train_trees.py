from dataclasses import replace

import pytest
from train_trees import train

from trainables import Worker

PARAMS = {"learning_rate": 0.1, "max_leaf_nodes": 8, "max_features": 0.5}


def test_boosting_learns_to_tell_tumours_apart(tmp_path):
    worker = Worker.alone(PARAMS, until=6, folder=tmp_path)
    train(PARAMS, worker)
    losses = [report.metrics["val/loss"] for report in worker.reports]
    assert losses[-1] < 0.25 < losses[0]
    assert worker.reports[-1].metrics["val/accuracy"] > 0.92


def test_a_resumed_boosting_grows_the_same_trees(tmp_path):
    uninterrupted = Worker.alone(PARAMS, until=4, folder=tmp_path / "whole")
    train(PARAMS, uninterrupted)
    half = Worker.alone(PARAMS, until=2, folder=tmp_path / "halves")
    train(PARAMS, half)
    rest = replace(half, order=2, first=3, until=4, start=half.reports[-1].checkpoint)
    train(PARAMS, rest)
    assert [seen.metrics for seen in half.reports] == [
        seen.metrics for seen in uninterrupted.reports
    ]


def test_a_parameter_that_the_model_lacks_is_named():
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        train({"depth": 3}, Worker.alone())
