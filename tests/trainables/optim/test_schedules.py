"""If these fail, trials train at learning rates other than those that their specs ask for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from trainables.optim.schedules import (
    DECAY,
    PATIENCE,
    SHRINK,
    START,
    Plateau,
    ScheduleName,
    factor,
    scale_lr,
)

UPDATES = 200


def by_torch(schedule, **options) -> list[float]:
    """Return the learning rates of torch's schedule for a rate of 1."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler = schedule(optimizer, **options)
    rates = []
    for update in range(UPDATES):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if update + 1 < UPDATES:
            scheduler.step()
    return rates


def ours(name: ScheduleName, warmup: float, last: int = UPDATES) -> list[float]:
    return [factor(name, update / last, warmup) for update in range(UPDATES)]


def test_linear_is_that_of_torch():
    options = {"start_factor": 1.0, "end_factor": 0.0, "total_iters": UPDATES}
    assert ours("linear", 0.0) == pytest.approx(by_torch(lr_scheduler.LinearLR, **options))


def test_a_warm_up_is_that_of_torch():
    options = {"start_factor": START, "total_iters": 50}
    assert ours("constant", 0.25) == pytest.approx(by_torch(lr_scheduler.LinearLR, **options))


def test_cosine_is_that_of_torch():
    expected = by_torch(lr_scheduler.CosineAnnealingLR, T_max=UPDATES)
    assert ours("cosine", 0.0) == pytest.approx(expected)


def test_polynomial_is_that_of_torch_with_power_2():
    expected = by_torch(lr_scheduler.PolynomialLR, total_iters=UPDATES, power=2)
    assert ours("polynomial", 0.0) == pytest.approx(expected)


@pytest.mark.parametrize("warmup", [0.0, 0.1])
def test_one_cycle_is_that_of_torch(warmup):
    last = UPDATES - 1  # torch's last update is at the end, and its rise ends one before its share
    rise = ((warmup or 0.3) * last + 1) / UPDATES
    options = {"max_lr": 1.0, "total_steps": UPDATES, "pct_start": rise}
    expected = by_torch(lr_scheduler.OneCycleLR, **options, final_div_factor=math.inf)
    assert ours("one_cycle", warmup, last) == pytest.approx(expected, abs=1e-12)


def test_wsd_is_constant_until_its_last_part():
    assert factor("wsd", 1 - DECAY, 0.05) == 1
    assert factor("wsd", 1 - DECAY / 2, 0.05) == pytest.approx(1 - math.sqrt(0.5))


@pytest.mark.parametrize(("rule", "expected"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_the_rate_follows_the_batch(rule, expected):
    assert scale_lr(rule, 1024, 256) == expected
    assert scale_lr(rule, 256, 256) == 1.0


@given(st.lists(st.integers(1, 9), max_size=80))
def test_a_plateau_falls_when_that_of_torch_does(losses):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs, plateau = lr_scheduler.ReduceLROnPlateau(optimizer), Plateau()
    for loss in losses:
        theirs.step(loss)
        plateau.observe(loss)
        assert plateau.factor == optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("loss", [2.0, -0.9, math.nan])
def test_the_same_loss_again_and_again_is_a_plateau(loss):
    plateau = Plateau()
    plateau.observe(loss)
    for _ in range(PATIENCE):
        plateau.observe(loss)
    assert plateau.factor == (SHRINK if math.isnan(loss) else 1.0)
    plateau.observe(loss)
    assert plateau.factor == SHRINK


@given(st.lists(st.floats(-1, 1), max_size=40), st.lists(st.floats(-1, 1), max_size=40))
def test_a_plateau_goes_on_from_a_saved_one(before, after):
    first, second = Plateau(), Plateau()
    for loss in before:
        first.observe(loss)
    second.load_state_dict(first.state_dict())
    for loss in after:
        first.observe(loss)
        second.observe(loss)
    assert first.state_dict() == second.state_dict()
