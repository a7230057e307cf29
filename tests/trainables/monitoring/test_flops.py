"""If these fail, MFU is wrong, and so is every choice of batch or precision that is made by it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from trainables.monitoring.flops import count_flops

BATCH, TOKENS, HEADS, WIDTH, LAYERS = 3, 16, 4, 8, 2  # WIDTH: of a head
MODEL = HEADS * WIDTH


class Block(nn.Module):
    """A transformer block without norms and biases."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(MODEL, 3 * MODEL, bias=False)
        self.out = nn.Linear(MODEL, MODEL, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(MODEL, 4 * MODEL, bias=False),
            nn.GELU(),
            nn.Linear(4 * MODEL, MODEL, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.view(BATCH, TOKENS, HEADS, WIDTH).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + self.out(seen.reshape(BATCH, TOKENS, MODEL))
        return x + self.mlp(x)


def transformer() -> nn.Sequential:
    return nn.Sequential(*[Block() for _ in range(LAYERS)])


def tokens() -> Tensor:
    return torch.randn(BATCH, TOKENS, MODEL, requires_grad=True)


def size(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def test_a_forward_pass_takes_two_operations_a_weight_and_sample_and_a_backward_pass_four():
    model = nn.Sequential(nn.Linear(7, 11, bias=False), nn.ReLU(), nn.Linear(11, 5, bias=False))
    x = torch.randn(13, 7, requires_grad=True)
    with count_flops() as forward:
        loss = model(x).sum()
    with count_flops() as backward:
        loss.backward()
    assert forward.model == 2 * size(model) * 13
    assert backward.model == 4 * size(model) * 13


@pytest.mark.parametrize("kernel", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_a_transformer_takes_what_palm_says_whatever_the_kernel(kernel):
    """Chowdhery et al., appendix B: 6 N + 12 L H Q T for each token."""
    model = transformer()
    with sdpa_kernel(kernel), count_flops() as count:
        model(tokens()).sum().backward()
    a_token = 6 * size(model) + 12 * LAYERS * HEADS * WIDTH * TOKENS
    assert count.model == a_token * BATCH * TOKENS
    assert count.repeated == 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_activation_checkpointing_repeats_does_not_count(reentrant):
    model = transformer()
    with count_flops() as plain:
        model(tokens()).sum().backward()
    with count_flops() as saving:
        x = tokens()
        for block in model:
            x = checkpoint(block, x, use_reentrant=reentrant)
        x.sum().backward()
    assert saving.model == plain.model
    assert 0.2 * plain.model < saving.repeated <= plain.model / 3
