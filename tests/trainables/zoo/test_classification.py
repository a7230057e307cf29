import math

import torch

from trainables.zoo.classification import class_metrics


def test_a_sample_s_accuracy_is_0_or_1_and_its_loss_is_in_nats():
    scores_BC = torch.tensor([[0.0, 0.0], [0.0, math.log(3.0)]])
    metrics = class_metrics(scores_BC, torch.tensor([1, 1]))
    assert metrics["accuracy"].tolist() == [False, True]
    torch.testing.assert_close(metrics["loss"], torch.tensor([math.log(2.0), math.log(4.0 / 3.0)]))
