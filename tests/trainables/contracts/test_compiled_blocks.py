"""Compiled blocks of a sharded model. If these fail, compiled trials learn something else."""

from dataclasses import dataclass, replace

import pytest
from tasks import Attention, Decoded, Decoding, curves, learned, losses
from torch import nn

from trainables import Training

EXACT = Training("fsdp", "64-true", compile="aot_eager")
TRAININGS = (
    replace(EXACT, activation_checkpointing=1),
    replace(EXACT, accumulate=2, reshard_after_forward=False, activation_checkpointing=2),
    replace(EXACT, precision="bf16-mixed"),
)


@dataclass(frozen=True)
class Tall(Decoded):
    """Decoded with more blocks than the compiler keeps versions of a function."""

    lr: float = 0.01

    def build_model(self) -> nn.Module:
        model = Decoding()
        model.blocks = nn.ModuleList(Attention(8) for _ in range(12))
        return model


def compiled(rank: int) -> list[tuple[list[dict[str, float]], int]]:
    """Return the reports of each training, and how many graphs the compiler made."""
    from torch._dynamo.utils import counters  # cannot be sent to a rank

    results = []
    for training in TRAININGS:
        counters.clear()
        (reports,) = curves(rank, Tall(), [training], 2)
        assert not counters["graph_break"]
        results.append((reports, counters["stats"]["unique_graphs"]))
    return results


@pytest.mark.full
def test_compiled_blocks_share_their_code_and_learn_what_one_rank_learns(on_two_ranks):
    alone = losses(learned(Tall(), Training(precision="64-true")))
    for training, (reports, graphs) in zip(TRAININGS, on_two_ranks(compiled)[0], strict=True):
        rounding = 0.02 if training.precision == "bf16-mixed" else 1e-9
        assert losses(reports) == pytest.approx(alone, abs=rounding)
        assert 0 < graphs < 12  # not one for each block
