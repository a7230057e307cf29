"""The benchmark on public suites: what it counts. The suites themselves are packages of others."""

import math

import numpy as np
import pytest
from runs import Run
from suites.attainment import Standing, report, targets
from suites.catalogue import Key
from suites.players import start
from suites.problem import Outcome, Problem, above

from searchers import Float, Space

SPACE = Space({"x0": Float(-5.0, 5.0), "x1": Float(-5.0, 5.0)})
KEYS = [Key("bbob", function, 5, 80) for function in (1, 8, 20)]


def run(method: str, key: Key, gaps: list[float]) -> tuple[Key, Run]:
    return key, Run(method, key.name, key.instance, 1, gaps, [1.0] * 12)


def test_gap_with_noise_is_the_true_loss_of_what_looks_best():
    outcomes = [Outcome((5.0,), 3.0), Outcome((1.0,), 7.0), Outcome((2.0,), 2.0)]
    assert above(1.0)([], outcomes) == [2.0, 6.0, 6.0]


def test_gap_is_infinite_until_all_limits_are_kept():
    kept, exceeded = (0.0, -1.0), (0.1, -1.0)
    outcomes = [Outcome((0.0,), 0.0, exceeded), Outcome((4.0,), 4.0, kept)]
    outcomes.append(Outcome((1.0,), 1.0, exceeded))
    assert above(0.0)([], outcomes) == [math.inf, 4.0, 4.0]


def test_targets_are_those_of_coco():
    found = targets("bbob")
    assert found[:2] == pytest.approx([1e2, 10**1.8])
    assert (found[-1], len(found)) == (pytest.approx(1e-8), 51)


def test_attained_counts_problems_and_targets_alike():
    found = [run("gp", KEYS[0], [1e3, 1e2, 1e-9]), run("gp", KEYS[1], [1e3, 1e3, 1e-3])]
    share_E = Standing.of(found, "bbob", 3).attained("gp", KEYS[:2])
    assert share_E == pytest.approx([0.0, 0.5 / 51, (51 + 26) / (2 * 51)])


def test_report_has_wins_and_the_function_that_is_lost():
    found = [run("gp", key, [1.0]) for key in KEYS]
    found += [run("random", key, [gap]) for key, gap in zip(KEYS, (4.0, 2.0, 0.25), strict=True)]
    printed = report(found, "gp", [1])
    assert "| random | 2–1 (p 1); 0.5 |" in printed
    assert "| bbob f20 d5 | 2.0 | 1 | random | 0.25 |" in printed
    assert printed.index("| gp | ") < printed.index("| random | ")


@pytest.mark.full
@pytest.mark.parametrize("method", ["gp", "optuna_tpe"])
@pytest.mark.parametrize("objectives", [1, 2])
def test_players_are_told_losses_and_limits(method: str, objectives: int):
    """Where the only limit leaves a fifth of the box, most of the last proposals keep it."""
    problem = Problem(SPACE, lambda _: Outcome((0.0,), 0.0), above(0.0), objectives)
    player = start(method, problem, 3, 60)
    keeps = []
    for _ in range(60):
        params, asked = player.ask()
        keeps.append(params["x0"] <= -3)
        losses = (params["x1"] ** 2, (params["x1"] - 1) ** 2)
        player.tell(asked, Outcome(losses[:objectives], 0.0, (params["x0"] + 3,)))
    assert np.mean(keeps[-20:]) > 0.45
