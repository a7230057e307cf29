"""If this fails, trials that split layers and shard them too learn something else than one rank."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tasks import Attentive, Deep, learned, resumed, runs_of

from trainables import Training
from trainables.combinations import refusals

EXACT = Training("fsdp", "64-true", tensor_ranks=2)
RUNS: dict[str, tuple[Deep, Training]] = {
    "plain": (Deep(), EXACT),
    "accumulate": (Deep(), replace(EXACT, accumulate=2, clip=0.1)),
    "ema, weights kept": (Deep(), replace(EXACT, reshard=False, ema=0.9)),
    "adaptive, recompute": (Deep(), replace(EXACT, recompute=1, clip=0.01, clip_by="adaptive")),
    "lamb": (Deep(), replace(EXACT, optimizer="lamb")),
    "attention by heads": (Attentive(), replace(EXACT, accumulate=2, clip=0.1)),
}
BFLOAT, HALF = (replace(EXACT, precision=name) for name in ("bf16-mixed", "16-mixed"))


@pytest.fixture(scope="module")
def heard(on_ranks: Callable[..., Any]) -> dict[str, list[dict[str, float]]]:
    """What rank 0 reports of each run."""
    runs = RUNS | {"bfloat": (Deep(), BFLOAT), "half": (Deep(), HALF)}
    rank_0, *others = on_ranks(runs_of, list(runs.values()), 4, ranks=4)
    assert others == [[[{}, {}, {}]] * len(runs)] * 3
    return dict(zip(runs, rank_0, strict=True))


@pytest.mark.parametrize("name", RUNS)
def test_four_ranks_in_two_dimensions_learn_what_one_learns(heard, name):
    for seen, expected in zip(heard[name], learned(*RUNS[name]), strict=True):
        assert seen == pytest.approx(expected, abs=1e-12)


def test_mixed_precisions_learn_in_two_dimensions(heard):
    expected = learned(Deep(), BFLOAT)[-1]["val/loss"]
    assert heard["bfloat"][-1]["val/loss"] == pytest.approx(expected, rel=0.1)
    # How many updates float16 skips depends on how much of a batch a rank adds up.
    losses = [seen["val/loss"] for seen in heard["half"]]
    assert losses[-1] < losses[0]


def test_two_dimensions_with_dropout_go_on_bit_by_bit(on_ranks, tmp_path):
    trainings = [replace(EXACT, optimizer="adamw")]
    rank_0, *_ = on_ranks(resumed, Deep(dropout=0.2), trainings, 4, tmp_path, ranks=4)
    whole, parts = rank_0[0]
    assert len(whole) == 4
    assert parts == whole


def test_ranks_that_make_no_rectangle_are_refused():
    [(option, reason)] = refusals(replace(EXACT, tensor_ranks=4), 6)
    assert option == "tensor_ranks"
    assert "no multiple of it" in reason
