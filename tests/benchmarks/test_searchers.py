"""The searchers' benchmark: it runs, goes on where it was ended, and its figures mean something."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from peers.method import active, axes, filled
from problems.catalogue import OWN, PROBLEMS, Reference
from runs import Run, search
from standings import Standing, interval, regret

from searchers import Optimizer, create

ROOT = Path(__file__).parents[2]


def python(*arguments: object) -> str:
    ended = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.full
@pytest.mark.timeout(290)
def test_quick_run_prints_its_tables_and_repeats_no_run(tmp_path):
    command = ["benchmarks/searchers.py", "--quick", "--seeds", 1, "--methods", "gp", "random"]
    printed = python(*command, "--results", tmp_path)
    assert "over 2 common runs on 2 problems" in printed
    assert "| random |" in printed
    before = (tmp_path / "gp.jsonl").read_text()
    assert [json.loads(line)["problem"] for line in before.splitlines()] == ["hartmann6", "models"]
    assert python(*command, "--results", tmp_path).count("| gp |") == printed.count("| gp |")
    assert (tmp_path / "gp.jsonl").read_text() == before


def test_a_benchmark_that_imports_searchers_gets_the_package_and_not_the_script():
    code = "import sys; sys.path.insert(0, 'benchmarks'); import searchers.space, searchers as s; "
    assert python("-c", code + "print(s.__path__)").strip().endswith("searchers']")


@pytest.mark.parametrize("name", PROBLEMS)
def test_references_bound_what_random_search_finds(name: str):
    """A best loss that a few samples beat would make regrets of 0 that are none."""
    problem, known = PROBLEMS[name], OWN.references[name]
    rng = np.random.default_rng(5)
    losses = [problem.loss(problem.space.sample(rng)) for _ in range(60)]
    assert np.isfinite(losses).all()
    assert known.best < known.random
    assert min(losses) >= known.best


def test_axes_are_undone_on_the_way_back():
    """A peer would evaluate another configuration than the one that it proposed."""
    rng = np.random.default_rng(0)
    for problem in PROBLEMS.values():
        known = axes(problem.space)
        for params in (problem.space.sample(rng) for _ in range(20)):
            there = {name: known[name].forward(value) for name, value in params.items()}
            assert {name: known[name].backward(value) for name, value in there.items()} == params
            assert active(problem.space, filled(problem.space, params)) == params


def test_parallel_runs_tell_every_loss_once(monkeypatch):
    pending, most = 0, 0
    ask, tell = Optimizer.ask, Optimizer.tell

    def counted_ask(self):
        nonlocal pending, most
        pending += 1
        most = max(most, pending)
        return ask(self)

    def counted_tell(self, trial, value):
        nonlocal pending
        pending -= 1
        tell(self, trial, value)

    monkeypatch.setattr(Optimizer, "ask", counted_ask)
    monkeypatch.setattr(Optimizer, "tell", counted_tell)
    run = search("random", PROBLEMS["branin2"], seed=0, parallel=4, budget=10)
    assert (pending, most) == (0, 4)
    assert len(run.incumbent) == len(run.ask_ms) == 10
    assert np.all(np.diff(run.incumbent) <= 0)


def test_noise_is_not_in_the_figures():
    """The incumbent's true loss counts; else whoever has the luckiest noise would win."""
    problem = PROBLEMS["hartmann6_noisy"]
    run = search("random", problem, seed=0, parallel=1, budget=30)
    same = create("random", problem.space, seed=0)
    true = [problem.loss(trial.params) for trial in (same.ask() for _ in range(30))]
    assert set(run.incumbent) <= set(true)
    assert len(set(run.incumbent)) > 1


def made(method: str, problem: str, seed: int, loss: float) -> Run:
    return Run(method, problem, seed, 1, [loss] * 20, [1.0] * 20)


def test_regret_is_one_at_random_search_and_none_at_the_best():
    known = Reference(best=2.0, random=4.0)
    assert [regret(loss, known) for loss in (2.0, 4.0, 3.0, 100.0)] == [0.0, 1.0, 0.5, 3.0]


def test_a_method_that_always_wins_has_rank_one_and_no_doubt():
    pairs = [(name, seed) for name in ("branin2", "valley") for seed in range(3)]
    found = [made("better", *pair, loss=0.5) for pair in pairs]
    found += [made("worse", *pair, loss=0.6) for pair in pairs]
    standing = Standing.of(found, 20, OWN)
    ranks_PM = standing.ranks(["better", "worse"], pairs)
    assert ranks_PM.mean(axis=0).tolist() == [1.0, 2.0]
    assert interval(ranks_PM, pairs).tolist() == [[1.0, 2.0], [1.0, 2.0]]
