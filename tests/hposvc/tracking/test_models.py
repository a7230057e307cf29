"""If these fail, a sweep's model cannot be served from MLflow, or its run's end is rewritten."""

import mlflow
import pytest
import torch
from torch import nn

from hposvc.tracking.models import log_model


@pytest.mark.slow
def test_a_runs_model_is_loaded_without_our_code_and_the_run_ends_as_it_did(tmp_path):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    experiment = client.create_experiment("sweep", artifact_location=f"{tmp_path}/artifacts")
    run = client.create_run(experiment).info.run_id
    client.set_terminated(run, "FINISHED", 123)
    model, x_BF = nn.Sequential(nn.Linear(2, 3), nn.Tanh()).eval(), torch.randn(7, 2)
    where, before = log_model(uri, run, model, x_BF[:4].numpy()), mlflow.get_tracking_uri()
    info = client.get_run(run).info
    assert (info.status, info.end_time) == ("FINISHED", 123)
    mlflow.set_tracking_uri(uri)
    loaded = mlflow.pytorch.load_model(where)
    mlflow.set_tracking_uri(before)
    assert before != uri
    assert torch.equal(loaded(x_BF), model(x_BF))
