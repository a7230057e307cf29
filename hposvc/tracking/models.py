"""A trained model among a run's things in MLflow, from where it can be registered and served."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import mlflow
import mlflow.pytorch
import numpy as np
from numpy.typing import NDArray

CHOICE = "MLFLOW_TRACKING_URI"  # MLflow writes there what it is told, for child processes


def log_model(
    uri: str, run: str, model: object, example: NDArray[np.generic], name: str = "model"
) -> str:
    """Give a run a model; returns the URI by which MLflow loads it. Takes half a minute.

    What is kept is its graph, as torch.export finds it: to use it takes none of our code.

    Args:
        uri: of the MLflow server or database.
        run: its id; one that has ended ends again as it did.
        model: a torch.nn.Module on the CPU, with its weights, in the mode in which it will be used.
        example: an input, a batch of two samples or more; other batches may have other sizes.
    """
    with chosen(uri):
        client = mlflow.MlflowClient(tracking_uri=uri)
        before = client.get_run(run).info
        with mlflow.start_run(run_id=run):
            logged = mlflow.pytorch.log_model(model, name=name, input_example=example)
        if before.end_time is not None:
            client.set_terminated(run, before.status, before.end_time)
    return str(logged.model_uri)


@contextmanager
def chosen(uri: str) -> Iterator[None]:
    """MLflow's fluent functions speak with one server of the whole process.

    Where none had been chosen, none is afterwards: a choice would go before the environment's.
    """
    before = os.environ.get(CHOICE)
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]  # it is how MLflow itself unsets it
        if before is not None:
            os.environ[CHOICE] = before
