"""Every pair of training options that is not refused, on two ranks: a covering array of runs.

If a run fails, two options that `validate` lets pass together do not work together, or an option
does not work with a kind of model that people have.
"""

import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import cycle
from typing import Any

import pytest
import torch
from option_pairs import (
    VALUES,
    Choice,
    Combination,
    allowed,
    combinations_in,
    covering,
    every,
)
from tasks import Deep, alone, curve
from tolerances import CALM, CLOSE, LOCAL_DIFFERS
from torch import nn
from usual_models import USUAL

from trainables import Training, Worker
from trainables.training_state import precision

STEPS = 2
FLOAT32 = {"convnet": "4", "transformer": "norm", "llama": "*norm"}  # a module; else head
Run = tuple[str, Choice]  # a model's name


def refusal(model: str, chosen: Choice) -> str:
    """Return a part of the message by which the runtime refuses a model; empty: it does not."""
    if chosen.get("strategy") == "pipeline" and model != "convnet":
        return "let build_model return an nn.Sequential"
    splits = chosen.get("strategy") == "tensor" or chosen.get("tensor_parallel", 1) > 1
    if splits and model != "transformer":
        return "let plan_tensor say which are colwise"
    if chosen.get("activation_checkpointing") and model == "lstm":
        return "has no blocks; put them into an nn.ModuleList"
    if chosen.get("optimizer") == "muon" and model == "convnet":
        return "muon is for hidden matrices"
    compiled = chosen.get("compile", "none") != "none"
    if chosen.get("activation_checkpointing") and compiled and model == "convnet":
        return "a norm with running means, which a compiled model would update twice"
    return ""


def suits(model: str, chosen: Choice) -> bool:
    """Return whether a model can have these options, and should learn what one rank learns."""
    if refusal(model, chosen) or not allowed(chosen):
        return False
    numbers = chosen.get("precision", "")
    # On a CPU, oneDNN has no LSTM in float16 (torch 2.13).
    if model == "lstm" and numbers.startswith("16"):
        return False
    if model == "lstm" and numbers.startswith("bf16") and not has_bf16_lstm():
        return False
    # Batch norm sees one micro-batch, and ranks that exchange no statistics see their own share.
    alike = chosen.get("sync_batchnorm") or chosen.get("strategy") in ("tensor", "pipeline")
    return model != "convnet" or (bool(alike) and chosen.get("accumulate", 1) == 1)


@cache
def has_bf16_lstm() -> bool:
    """Return whether oneDNN has an LSTM in bfloat16 on this CPU: without AVX-512 it has none."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            nn.LSTM(8, 8)(torch.zeros(1, 1, 8))
    except RuntimeError:
        return False
    return True


def usual_runs(wanted: set[Combination]) -> list[Run]:
    """Return runs that together try each wanted combination with each model."""
    return [
        (model, run)
        for number, model in enumerate(USUAL)
        for run in covering(wanted, partial(suits, model), number)
    ]


def shared_runs(wanted: set[Combination]) -> list[Run]:
    """Return runs that together try each wanted combination with one model, in turn."""
    runs: list[Run] = []
    open_, without = set(wanted), 0  # models one after another without a run
    for model in cycle(USUAL):
        run = next(covering(open_, partial(suits, model), len(runs)), None)
        without = 0 if run else without + 1
        if without == len(USUAL):
            break
        if run is not None:
            runs.append((model, run))
            open_ -= combinations_in(run)
    return runs


def on_rank(rank: int, runs: list[Run]) -> list[Any]:
    """Return the curve of each run, or its error."""
    precision.FIRST_SCALE = CALM
    results: list[Any] = []
    for model, chosen in runs:
        try:
            results.append(learned(model, chosen, rank, 2))
        except Exception:  # noqa: BLE001 - whatever it is, the test shows it
            results.append(traceback.format_exc())
    return results


def learned(model: str, chosen: Choice, rank: int = 0, ranks: int = 1) -> list[dict[str, float]]:
    """Return a rank's reports."""
    options = Training(**{k: v for k, v in chosen.items() if k != "nan"})
    if options.float32_modules and model:
        options = replace(options, float32_modules=(FLOAT32.get(model, "head"),))
    if ranks == 1:
        options = alone(replace(options, static_graph=False, sync_batchnorm=False))
        options = replace(options, gradient_compression="none", bucket_cap_mb=25.0)
    lone_worker = Worker.alone(until=STEPS, training=options)
    worker = replace(lone_worker, rank=rank, world_size=ranks, nan=chosen.get("nan", "stop"))
    USUAL.get(model, Deep()).train(worker)
    return curve(worker)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_every_pair_of_options_that_is_let_pass_learns_what_one_rank_learns(
    on_two_ranks, monkeypatch
):
    runs = [("", chosen) for chosen in covering(every(2))]
    assert len(runs) > 30
    check(runs, on_two_ranks, monkeypatch)


MIXED = (("strategy", "fsdp"), ("precision", "bf16-mixed"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        pytest.param({MIXED}, usual_runs, id="a run of each"),
        pytest.param(every(1), shared_runs, id="each value", marks=pytest.mark.long),
        pytest.param(
            {pair for pair in every(2) if pair[0][0] == "strategy"},
            usual_runs,
            id="each value with each strategy",
            marks=pytest.mark.full,
        ),
    ],
)
def test_usual_models_learn_with_every_option_what_one_rank_learns(
    wanted, chosen, on_two_ranks, monkeypatch
):
    pytest.importorskip("transformers")
    runs = chosen(wanted)
    assert {model for model, _ in runs} >= USUAL.keys() - (set() if has_bf16_lstm() else {"lstm"})
    check(runs, on_two_ranks, monkeypatch)


def test_options_that_do_not_suit_a_model_are_refused_on_all_ranks_by_what_to_do(on_two_ranks):
    options: list[dict[str, Any]] = [
        {"strategy": "pipeline", "pipeline_schedule": "gpipe"},
        {"strategy": "tensor"},
        {"strategy": "fsdp", "tensor_parallel": 2},
        {"strategy": "ddp", "activation_checkpointing": 1},
        {"strategy": "ddp", "activation_checkpointing": 1, "compile": "aot_eager"},
        {"strategy": "ddp", "optimizer": "muon"},
    ]
    refused = [(model, chosen) for model in USUAL for chosen in options if refusal(model, chosen)]
    assert len(refused) > 15
    for results in on_two_ranks(on_rank, refused):
        for run, result in zip(refused, results, strict=True):
            assert "ValueError: " in result
            assert refusal(*run) in result


def check(runs: list[Run], on_two_ranks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail with the faults of all runs on two ranks, if there are any."""
    monkeypatch.setattr(precision, "FIRST_SCALE", CALM)
    wrong = []
    for at in range(0, len(runs), 20):  # a failure may leave ranks apart: others begin afresh
        part = runs[at : at + 20]
        for run, result in zip(part, on_two_ranks(on_rank, part)[0], strict=True):
            wrong += faults(*run, result)
    if wrong:
        pytest.fail("\n\n".join(wrong), pytrace=False)


def faults(model: str, chosen: Choice, found: Any) -> Iterator[str]:
    """Return the faults of a run, if there are any."""
    shown = ", ".join([model, *(f"{name}: {value}" for name, value in chosen.items())])
    if isinstance(found, str):
        yield f"{shown}\n{found[-1500:]}"
        return
    rounded = chosen.get("gradient_compression", "none") != "none"
    differs = chosen["strategy"] == "local_sgd" and (
        chosen.get("sync_every") != 1
        or any(chosen.get(name, VALUES[name][0]) != VALUES[name][0] for name in LOCAL_DIFFERS)
    )
    expected = learned(model, chosen)
    off = max(
        abs(metrics[name] - other[name])
        for metrics, other in zip(found, expected, strict=True)
        for name in ("train/loss", "val/loss")
    )
    if off > CLOSE[chosen.get("precision", "32-true")] and not (rounded or differs):
        yield f"{shown}\nis {off:.2g} off"
