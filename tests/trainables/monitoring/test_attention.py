"""If these fail, people believe that a fused kernel is at work where it is not."""

import pytest
import torch
from tasks import Attentive
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from trainables import Training, Worker
from trainables.monitoring import attention

KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}


def attend() -> Tensor:
    query = torch.ones(2, 2, 4, 8, requires_grad=True)
    return scaled_dot_product_attention(query, query, query).sum()


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_kernel_that_ran_is_named_with_its_calls(kernel):
    with sdpa_kernel(KERNELS[kernel]), attention.count_kernels() as calls:
        attend().backward()
        attend().backward()
    assert {name: number for name, number in calls.items() if number} == {kernel: 2}


def test_a_report_says_which_kernel_the_model_uses():
    worker = Worker.alone(training=Training(attention="math"))
    Attentive().train(worker)
    metrics = worker.reports[0].metrics
    assert metrics["perf/attention_math"] >= 1
    assert "perf/attention_flash" not in metrics


def test_a_model_without_attention_has_none():
    with attention.count_kernels() as calls:
        torch.ones(2, 2) @ torch.ones(2, 2)
    assert attention.metrics(calls) == {}
