"""torch's globals during an order. If these fail, one trial's settings leak into the next."""

import pytest
import torch
from torch.backends.cuda import flash_sdp_enabled, math_sdp_enabled
from torch.nn.functional import scaled_dot_product_attention

from trainables import Training
from trainables.fitting.settings import applied
from trainables.slots import hygiene

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "training",
    [Training(tf32=True), Training(deterministic=True), Training(attention="math")],
    ids=["tf32", "deterministic", "attention"],
)
def test_what_an_option_sets_is_as_before_afterwards(training):
    before = hygiene.baseline()
    attention = flash_sdp_enabled(), math_sdp_enabled()
    with pytest.raises(KeyError), applied(training, CPU):
        raise KeyError
    hygiene.restore(before)
    assert hygiene.difference(before, hygiene.baseline()) == []
    assert (flash_sdp_enabled(), math_sdp_enabled()) == attention


def test_tf32_is_set():
    with applied(Training(tf32=True), CPU):
        assert torch.get_float32_matmul_precision() == "high"


def test_deterministic_refuses_an_operation_that_is_not():
    zeros, twice, values = torch.zeros(3), torch.tensor([1, 1]), torch.tensor([2.0, 3.0])
    zeros.put_(twice, values)
    said = "training.deterministic is true, but put_ does not have a deterministic implementation"
    with pytest.raises(RuntimeError, match=said), applied(Training(deterministic=True), CPU):
        zeros.put_(twice, values)
    with pytest.raises(RuntimeError, match=r"^another"), applied(Training(deterministic=True), CPU):
        raise RuntimeError("another")


def test_deterministic_is_told_to_cudnn_too():
    with applied(Training(deterministic=True), CPU):
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.benchmark


def test_an_attention_kernel_that_this_device_lacks_is_refused_not_replaced():
    query = torch.ones(1, 1, 4, 8)
    with applied(Training(attention="efficient"), CPU), pytest.raises(RuntimeError):
        scaled_dot_product_attention(query, query, query)
    with applied(Training(attention="flash"), CPU):
        scaled_dot_product_attention(query, query, query)
