"""If these fail, a sweep's model cannot be served from MLflow, or its run's end is rewritten."""

import os

import mlflow
import pytest
import torch
from torch import nn

from hposvc.tracking.models import URI_VARIABLE, log_model, selected_server


@pytest.mark.parametrize("before", [None, "sqlite:///elsewhere.db"])
def test_a_server_that_was_not_chosen_is_not_chosen_afterwards(monkeypatch, before):
    monkeypatch.delenv(URI_VARIABLE, raising=False)
    if before:
        monkeypatch.setenv(URI_VARIABLE, before)
    with selected_server("sqlite:///here.db"):
        assert mlflow.get_tracking_uri() == "sqlite:///here.db"
    assert os.environ.get(URI_VARIABLE) == before
    monkeypatch.setenv(URI_VARIABLE, "sqlite:///next.db")
    assert mlflow.get_tracking_uri() == "sqlite:///next.db"


@pytest.mark.full
@pytest.mark.long
def test_a_runs_model_is_loaded_without_our_code_and_the_run_ends_as_it_did(tmp_path, monkeypatch):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    experiment = client.create_experiment("sweep", artifact_location=f"{tmp_path}/artifacts")
    run = client.create_run(experiment).info.run_id
    client.set_terminated(run, "FINISHED", 123)
    model, x_BF = nn.Sequential(nn.Linear(2, 3), nn.Tanh()).eval(), torch.randn(7, 2)
    model_uri = log_model(uri, run, model, x_BF[:4].numpy())
    info = client.get_run(run).info
    assert (info.status, info.end_time) == ("FINISHED", 123)
    monkeypatch.setenv(URI_VARIABLE, uri)
    loaded = mlflow.pytorch.load_model(model_uri)
    assert torch.equal(loaded(x_BF), model(x_BF))
