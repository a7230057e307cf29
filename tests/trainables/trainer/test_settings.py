"""torch's globals during an order. If these fail, one trial's settings leak into the next."""

import operator

import pytest
import torch
from torch.backends.cuda import flash_sdp_enabled, math_sdp_enabled
from torch.nn.functional import scaled_dot_product_attention

from trainables import Training, environment
from trainables.runtime import process_state
from trainables.trainer.settings import applied

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "training",
    [Training(tf32=True), Training(deterministic=True), Training(attention="math")],
    ids=["tf32", "deterministic", "attention"],
)
def test_what_an_option_sets_is_as_before_afterwards(training):
    before = process_state.baseline()
    attention = flash_sdp_enabled(), math_sdp_enabled()
    with pytest.raises(KeyError), applied(training, CPU):
        raise KeyError
    process_state.restore(before)
    assert process_state.difference(before, process_state.baseline()) == []
    assert (flash_sdp_enabled(), math_sdp_enabled()) == attention


@pytest.fixture
def switches():
    """Restore torch's switches."""
    yield torch.backends
    torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


@pytest.mark.parametrize(("tf32", "format"), [(True, "tf32"), (False, "ieee")])
def test_the_option_decides_for_products_and_convolutions(tf32, format, switches):
    with applied(Training(tf32=tf32), CPU):
        assert environment.float32_precision() == (format, format, format)
        assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
        assert switches.cudnn.allow_tf32 is tf32
    assert environment.float32_precision() == ("ieee", "tf32", "tf32")


@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize("which", ["cuda.matmul", "cudnn.conv", ""])
def test_a_task_that_sets_the_newer_switches_trains(which, tf32, switches):
    if not hasattr(switches, "fp32_precision"):
        pytest.skip("torch has no such switches before 2.9")
    fresh = process_state.baseline()
    target = operator.attrgetter(which)(switches) if which else switches
    target.fp32_precision = "ieee" if which == "cudnn.conv" else "tf32"
    set_by_user = process_state.baseline()
    if which:  # the switch for all holds where no other one was set before
        assert any(
            "float32 precision" in difference
            for difference in process_state.difference(fresh, set_by_user)
        )
    with applied(Training(tf32=tf32), CPU):
        assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
    assert process_state.difference(set_by_user, process_state.baseline()) == []


def test_deterministic_refuses_an_operation_that_is_not():
    zeros, twice, values = torch.zeros(3), torch.tensor([1, 1]), torch.tensor([2.0, 3.0])
    zeros.put_(twice, values)
    message = (
        "training.deterministic is true, but put_ does not have a deterministic implementation"
    )
    with pytest.raises(RuntimeError, match=message), applied(Training(deterministic=True), CPU):
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
