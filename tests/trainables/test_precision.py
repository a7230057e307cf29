import pytest
import torch

from trainables import precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "weights", "computed", "scaled"),
    [
        ("32-true", torch.float32, torch.float32, False),
        ("64-true", torch.float64, torch.float64, False),
        ("bf16-mixed", torch.float32, torch.bfloat16, False),
        ("16-mixed", torch.float32, torch.float16, True),
    ],
)
def test_each_precision_stores_computes_and_scales_as_named(name, weights, computed, scaled):
    assert precision.stored(name) == weights
    matrix = torch.ones(2, 2, dtype=weights)
    with precision.autocast(name, CPU):
        assert (matrix @ matrix).dtype == computed
    assert precision.scaler(name, CPU).is_enabled() is scaled
