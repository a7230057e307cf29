"""If this fails, trials that both split and shard layers learn differently from one rank."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tasks import Attentive, Deep, learned, resumed, runs_of

from trainables import Training
from trainables.combinations import refusals

EXACT = Training("fsdp", "64-true", tensor_parallel=2)
RUNS: dict[str, tuple[Deep, Training]] = {
    "plain": (Deep(), EXACT),
    "accumulate": (Deep(), replace(EXACT, accumulate=2, clip=0.1)),
    "ema, weights kept": (Deep(), replace(EXACT, reshard_after_forward=False, ema=0.9)),
    "adaptive, activation_checkpointing": (
        Deep(),
        replace(EXACT, activation_checkpointing=1, clip=0.01, clip_by="adaptive"),
    ),
    "lamb": (Deep(), replace(EXACT, optimizer="lamb")),
    "attention by heads": (Attentive(), replace(EXACT, accumulate=2, clip=0.1)),
}
BFLOAT, HALF = (replace(EXACT, precision=name) for name in ("bf16-mixed", "16-mixed"))


@pytest.fixture(scope="module")
def rank_reports(on_ranks: Callable[..., Any]) -> dict[str, list[dict[str, float]]]:
    """Return rank 0's reports of each run."""
    runs = RUNS | {"bfloat": (Deep(), BFLOAT), "half": (Deep(), HALF)}
    rank_0, *others = on_ranks(runs_of, list(runs.values()), 4, ranks=4)
    assert others == [[[{}, {}, {}]] * len(runs)] * 3
    return dict(zip(runs, rank_0, strict=True))


@pytest.mark.full
@pytest.mark.parametrize("name", RUNS)
def test_four_ranks_in_two_dimensions_learn_what_one_learns(rank_reports, name):
    for seen, expected in zip(rank_reports[name], learned(*RUNS[name]), strict=True):
        assert seen == pytest.approx(expected, abs=1e-12)


@pytest.mark.full
def test_mixed_precisions_learn_in_two_dimensions(rank_reports):
    expected = learned(Deep(), BFLOAT)[-1]["val/loss"]
    assert rank_reports["bfloat"][-1]["val/loss"] == pytest.approx(expected, rel=0.1)
    # How many updates float16 skips depends on how much of a batch a rank adds up.
    losses = [seen["val/loss"] for seen in rank_reports["half"]]
    assert losses[-1] < losses[0]


@pytest.mark.full
def test_two_dimensions_with_dropout_go_on_bit_by_bit(on_ranks, tmp_path):
    trainings = [replace(EXACT, optimizer="adamw")]
    rank_0, *_ = on_ranks(resumed, Deep(dropout=0.2), trainings, 4, tmp_path, ranks=4)
    uninterrupted, resumed_reports = rank_0[0]
    assert len(uninterrupted) == 4
    assert resumed_reports == uninterrupted


def test_ranks_that_make_no_rectangle_are_refused():
    [(option, reason)] = refusals(replace(EXACT, tensor_parallel=4), 6)
    assert option == "tensor_parallel"
    assert "no multiple of it" in reason
