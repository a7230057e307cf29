"""A metric over all predictions under a name that trackers refuse, from a Task to MLflow."""

import json
from typing import Any

import pytest
from mlflow import MlflowClient

from hposvc.api import Sweeps
from hposvc.events import Reported
from hposvc.tracking.mlflow_names import legal_name

pytestmark = [pytest.mark.ray, pytest.mark.long]

RETRIEVING = '''
from collections.abc import Mapping
from dataclasses import dataclass

from sklearn.metrics import f1_score, top_k_accuracy_score
from torch import Tensor, nn

from trainables.data import Batch
from trainables.zoo.digits import DigitsCNN


@dataclass(frozen=True)
class Retrieving(DigitsCNN):
    """Digits, judged by metrics that need all predictions."""

    def predict(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        images, labels_B = batch
        return {"scores": model(images), "labels": labels_B}

    def score(self, predictions: Mapping[str, Tensor]) -> Mapping[str, float]:
        scores, labels = predictions["scores"], predictions["labels"]
        return {
            "recall@3": top_k_accuracy_score(labels, scores, k=3),
            "f1/macro": f1_score(labels, scores.argmax(dim=1), average="macro"),
        }
'''
SPEC = """
name: retrieving
trainable: retrieving.py:Retrieving
metric: {name: val/recall@3, goal: maximize}
limits: ["val/f1/macro >= 0.01"]
fidelity: {unit: epoch, max: 2}
parameters:
  lr: {min: 1.0e-3, max: 1.0e-1, log: true}
  width: 4
trials: {max: 2, parallel: 1}
resources: {workers: 2, cpus_per_worker: 0.5}
"""
NAMES = ("val/recall@3", "val/f1/macro")


def test_a_score_of_any_name_chooses_the_best_and_reaches_the_journal_and_mlflow(
    python, home, tmp_path
):
    (tmp_path / "retrieving.py").write_text(RETRIEVING)
    (tmp_path / "sweep.yaml").write_text(SPEC)
    ended = python("-m", "hposvc", "run", "sweep.yaml", "-o", "json", cwd=tmp_path)
    status: dict[str, Any] = json.loads(ended.stdout)
    assert status["state"] == "COMPLETED"
    assert status["trials"]["failed"] == 0

    sweeps = Sweeps.open(home)
    journal = sweeps.journal
    reports = [event for _, event in journal.read(status["sweep"]) if isinstance(event, Reported)]
    values = {name: {report.metrics[name] for report in reports} for name in NAMES}
    assert status["best"]["value"] in values["val/recall@3"]
    assert max(values["val/recall@3"]) > 0.3  # of ten digits, by guessing

    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments)
    for name in NAMES:
        histories = (client.get_metric_history(run.info.run_id, legal_name(name)) for run in runs)
        logged = {point.value for history in histories for point in history}
        assert values[name] <= logged
