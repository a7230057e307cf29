"""Log a trained model with an MLflow run, from which it can be registered and served."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import mlflow
import mlflow.pytorch
import numpy as np
from numpy.typing import NDArray

URI_VARIABLE = "MLFLOW_TRACKING_URI"  # set by MLflow itself, for child processes


def log_model(
    uri: str, run: str, model: object, example: NDArray[np.generic], name: str = "model"
) -> str:
    """Log a model with a run, and return the URI by which MLflow loads it. Takes half a minute.

    The model is stored as the graph that torch.export traces, so using it needs none of our code.

    Args:
        uri: of the MLflow server or database.
        run: its id; the status and end time of an ended run stay the same.
        model: a torch.nn.Module on the CPU, with its weights, in the mode in which it will be used.
        example: an input, a batch of two samples or more; other batches may have other sizes.
    """
    with selected_server(uri):
        client = mlflow.MlflowClient(tracking_uri=uri)
        before = client.get_run(run).info
        with mlflow.start_run(run_id=run):
            logged = mlflow.pytorch.log_model(model, name=name, input_example=example)
        if before.end_time is not None:
            client.set_terminated(run, before.status, before.end_time)
    return str(logged.model_uri)


@contextmanager
def selected_server(uri: str) -> Iterator[None]:
    """Select the server that MLflow's fluent functions use, for the whole process.

    If none was selected before, none is selected afterwards: a selection would take precedence
    over the environment.
    """
    before = os.environ.get(URI_VARIABLE)
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]  # this is how MLflow itself unsets it
        if before is not None:
            os.environ[URI_VARIABLE] = before
