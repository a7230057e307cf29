import math
from dataclasses import replace

import pytest
import torch

from trainables import Worker
from trainables.zoo.digits import DigitsCNN, class_metrics, digits


def accuracies(task: DigitsCNN, until: int) -> list[float]:
    worker = replace(Worker.alone(until=until), metrics=("val/accuracy",), every=until)
    task.train(worker)
    return [report.metrics["val/accuracy"] for report in worker.reports]


def test_the_split_is_stratified_and_disjoint():
    data = digits()
    train, _ = data.train.columns
    validation, labels = data.validation.columns
    assert (len(train), len(validation)) == (1437, 360)
    assert all(34 <= (labels == digit).sum() <= 37 for digit in range(10))
    seen = {tuple(image) for image in train.flatten(1).tolist()}
    assert not seen & {tuple(image) for image in validation.flatten(1).tolist()}
    assert -1 <= train.min() < train.max() <= 1


@pytest.mark.long
def test_a_good_configuration_reaches_what_the_example_promises():
    assert max(accuracies(DigitsCNN(lr=1e-2, dropout=0.5), until=27)) >= 0.985


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd", "lr": 0.1, "momentum": 0.95},
        {"optimizer": "lars", "lr": 1.0},
        {"layers": 1},
        {"layers": 3, "batch": 2000},
    ],
)
def test_every_shape_learns(options):
    reached = accuracies(DigitsCNN(**{"width": 8, **options}), until=2)
    assert reached[-1] > 0.15


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match="optimizer is 'adam'; choose one of sgd, adamw, lars"):
        DigitsCNN(optimizer="adam")


def test_a_sample_s_accuracy_is_0_or_1_and_its_loss_is_in_nats():
    scores_BC = torch.tensor([[0.0, 0.0], [0.0, math.log(3.0)]])
    metrics = class_metrics(scores_BC, torch.tensor([1, 1]))
    assert metrics["accuracy"].tolist() == [False, True]
    torch.testing.assert_close(metrics["loss"], torch.tensor([math.log(2.0), math.log(4.0 / 3.0)]))
