"""What operations keep for their backward pass, as on a GPU."""

import pytest
import torch
from torch.nn import functional

from trainables.memory_estimation.kernels import device_kernels
from trainables.training import Training

X = torch.ones(64, 64)


def kept(work):
    """Return the types of what autograd keeps of an operation."""
    types = []

    def pack(tensor):
        types.append(tensor.dtype)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        work(X.clone().requires_grad_())
    return types


def test_dropout_keeps_a_byte_an_element_on_a_gpu():
    def drop(x):
        return functional.dropout(x, 0.5)

    with device_kernels(Training(), gpu=True):
        assert kept(drop) == [torch.bool]
    with device_kernels(Training(), gpu=False):
        assert torch.float32 in kept(drop)


@pytest.mark.parametrize("gpu", [False, True])
def test_where_nothing_is_dropped_values_stay_as_they_are(gpu):
    with device_kernels(Training(), gpu):
        assert torch.equal(functional.dropout(X, 0.5, training=False), X)
        assert torch.equal(functional.dropout(X, 0.0), X)


def test_fused_attention_on_a_gpu_draws_its_dropout_again():
    query = torch.ones(1, 2, 4, 8)
    plain = functional.scaled_dot_product_attention(query, query, query)
    with device_kernels(Training(), gpu=True):
        dropped = functional.scaled_dot_product_attention(query, query, query, dropout_p=0.5)
    torch.testing.assert_close(dropped, plain)
