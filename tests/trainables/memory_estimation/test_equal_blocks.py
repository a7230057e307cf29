"""Forecasts of deep models from a few of their blocks, beside those from all of them."""

from dataclasses import dataclass

import pytest
from forecasts import Wide
from torch import nn

from trainables import Training
from trainables.memory_estimation import equal_blocks, fake_step
from trainables.memory_estimation.meta_model import example_batch, meta_model


@dataclass(frozen=True)
class Deep(Wide):
    width: int = 64
    layers: int = 18


@dataclass(frozen=True)
class Growing(Deep):
    """A task whose blocks are alike, but which runs each one more often than the one before."""

    def build_model(self) -> nn.Module:
        return Repeated(super().build_model())


class Repeated(nn.Module):
    def __init__(self, blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, x):
        for at, block in enumerate(self.blocks):
            for _ in range(at):
                x = block(x)
        return x


def both(task, training, ranks, gpu):
    """Return the memory as forecast, and as forecast with all blocks."""
    batch = example_batch(task.load_data(), 8, training)
    arguments = (task, training, ranks, batch, gpu)
    return fake_step.run_fake_step(*arguments), fake_step._run_with_blocks(*arguments, None)


def sizes(memory):
    return {name: value for name, value in vars(memory).items() if name != "events"}


@pytest.mark.parametrize(
    ("training", "ranks"),
    [
        (Training(), 1),
        (Training("ddp", "bf16-mixed"), 4),
        (Training("fsdp", activation_checkpointing=1), 4),
        (Training("local_sgd", ema=0.9), 2),
    ],
    ids=lambda value: getattr(value, "strategy", f"{value}"),
)
@pytest.mark.parametrize("gpu", [False, True])
def test_a_few_blocks_tell_what_all_of_them_do(monkeypatch, training, ranks, gpu):
    whole, run = [], fake_step._run_with_blocks

    def counted(*arguments):
        whole.append(arguments[-1])
        return run(*arguments)

    monkeypatch.setattr(fake_step, "_run_with_blocks", counted)
    forecast, complete = both(Deep(), training, ranks, gpu)
    # The last one is the test's own. On a CPU a small model may need all its blocks.
    assert whole == [*equal_blocks.DEPTHS, None] or (not gpu and whole.count(None) == 2)
    assert sizes(forecast) == sizes(complete)


def test_a_model_that_does_not_grow_evenly_is_run_with_all_blocks():
    assert len(equal_blocks.equal_blocks(meta_model(Growing(), Training()))) == 18
    forecast, complete = both(Growing(), Training(), 1, False)
    assert sizes(forecast) == sizes(complete)
