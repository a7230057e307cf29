"""The contract that every search method must keep, whoever wrote it."""

import json
import math
import os
import random
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from searchers import METHODS, Choice, Constant, Float, Int, Observation, Space, create
from searchers.methods import load_method, takes_several
from searchers.optimizer import Exhausted
from searchers.searcher import call_rng

SPACES = {
    "one parameter": Space({"lr": Float(1e-5, 1e-1, log=True)}),
    "thirty parameters": Space({f"x{i:02}": Float(-1.0, 1.0) for i in range(30)}),
    "all categorical": Space({f"k{i}": Choice((1, True, "1", None)) for i in range(4)}),
    "lists": Space(
        {
            "layers": Choice(([64, 64], [128], [], [[1, "x"]])),
            "betas": Choice(([0.9, 0.99], [0.8, 0.9]), ordered=True, when={"layers": ([128], [])}),
            "rate": Float(0.0, 1.0, when={"layers": ([64, 64], [128])}),
            "seeds": Constant([1, 2]),
        }
    ),
    "conditional": Space(
        {
            "model": Choice(("cnn", "mlp")),
            "norm": Choice(("batch", "none"), when={"model": ("cnn",)}),
            "decay": Float(0.1, 0.9, when={"norm": ("batch",)}),
            "width": Int(16, 512, log=True, when={"model": ("mlp",)}),
            "epochs": Constant(3),
        }
    ),
    "shares": Space.from_dict(
        {
            "mix": {"shares": ["web", "code", "books"], "zeros": True, "max": {"code": 0.5}},
            "experts": {"shares": 3, "total": 8, "step": 1},
        },
        ["mix.web <= 0.9"],
    ),
    "constrained": Space(
        {
            "batch": Choice((16, 32, 64, 128), ordered=True),
            "layers": Int(1, 12),
            "rate": Float(0.0, 1.0, step=0.05),
        },
        ["batch * layers <= 256", "rate < 0.5 or layers > 3"],
    ),
}
TWELVE = Space({"a": Int(1, 4), "b": Int(1, 4)}, ["a != b"])
LINE = Space({"x": Float(0.0, 1.0)})

OPTIONS = {"grid": {"resolution": 40}, "nsga2": {"population": 4}}  # several generations
SEVERAL = [name for name in METHODS if takes_several(load_method(name)) and name != "auto"]

# `auto` proposes what the method of its choice would (tests/searchers/test_auto.py).
every_method = pytest.mark.parametrize("method", [name for name in METHODS if name != "auto"])


def loss(params):
    numbers = [float(value) for value in params.values() if isinstance(value, int | float)]
    return sum((number - 0.3) ** 2 for number in numbers) / 1_000 + len(params)


def build(method):
    return load_method(method)(**OPTIONS.get(method, {}))


def searched(method, space, calls=7, batch=2, seed=0, goals=1):
    """Return an optimizer after some calls, of which the last is still pending."""
    goal = ["minimize", "maximize", "minimize"][:goals] if goals > 1 else "minimize"
    searcher = create(method, space, goal, seed, **OPTIONS.get(method, {}))
    for _ in range(calls):
        for trial in searcher.ask(batch):
            value = loss(trial.params)
            searcher.tell(trial, [value, value**2, -value][:goals] if goals > 1 else value)
    searcher.ask(batch)
    return searcher


@cache
def history_of(method, name):
    """Return the history of `searched` on a space; cached, as several tests need it."""
    return searched(method, SPACES[name]).history


def keys(space, trials):
    return [space.key(trial.params) for trial in trials]


@every_method
@pytest.mark.parametrize("name", SPACES)
def test_proposals_are_valid_and_new(method, name):
    space, history = SPACES[name], history_of(method, name)
    assert len(history) == 16
    for seen in history:
        space.validate(seen.params)
    assert len(set(keys(space, history))) == 16


@every_method
@pytest.mark.parametrize("name", ["lists", "conditional", "constrained"])
def test_the_same_calls_with_the_same_seed_give_the_same_proposals(method, name):
    first = history_of(method, name)
    random.seed(1)
    np.random.seed(1)
    second = searched(method, SPACES[name]).history
    assert [seen.params for seen in first] == [seen.params for seen in second]
    assert [seen.note for seen in first] == [seen.note for seen in second]


@pytest.mark.full
def test_the_hash_seed_of_the_process_changes_nothing():
    code = (
        "from searchers import *; space = Space.from_dict({'m': {'values': ['cnn', 'mlp']},"
        "'a': {'min': 1, 'max': 99, 'when': {'m': 'cnn'}}, 'b': {'min': 0., 'max': 1.},"
        "'c': {'min': 0., 'max': 1., 'when': {'m': 'mlp'}}});"
        f"searchers = [create(method, space) for method in {METHODS!r}];"
        "[one.tell(trial, trial.params['b'])"
        " for one in searchers for _ in range(16) for trial in one.ask(1)];"
        "[print(one.history) for one in searchers]"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
        )
        for seed in ("1", "2")
    ]
    first, second = (run.communicate(timeout=60)[0] for run in runs)
    assert len(first.splitlines()) == len(METHODS)
    assert first == second


@every_method
def test_another_seed_gives_other_proposals(method):
    if method == "grid":
        return
    first, second = (searched(method, LINE, seed=seed) for seed in (1, 2))
    assert [seen.params for seen in first.history] != [seen.params for seen in second.history]


@every_method
@pytest.mark.parametrize("name", SPACES)
def test_a_history_that_comes_back_from_a_journal_gives_the_same_proposals(method, name):
    space, history = SPACES[name], history_of(method, name)
    journaled = [
        replace(
            seen,
            params=json.loads(json.dumps(seen.params)),
            note=json.loads(json.dumps(seen.note)),
        )
        for seen in history
    ]
    searcher, again = (build(method) for _ in range(2))
    fresh = again.suggest(space, journaled, 2, call_rng(0, len(history)))
    assert fresh == searcher.suggest(space, history, 2, call_rng(0, len(history)))
    assert fresh == searcher.suggest(space, history, 2, call_rng(0, len(history)))


@every_method
def test_notes_and_proposals_are_json(method):
    for seen in history_of(method, "conditional"):
        assert json.loads(json.dumps([seen.params, seen.note])) == [seen.params, dict(seen.note)]


@every_method
def test_many_pending_trials_are_not_repeated(method):
    searcher = searched(method, SPACES["constrained"], calls=4, batch=3)
    for _ in range(4):
        searcher.ask(5)
    assert len(set(keys(searcher.space, searcher.history))) == 15 + 20


@every_method
def test_failures_between_results_are_survived(method):
    searcher = create(method, SPACES["conditional"], seed=0)
    for index in range(18):
        trial = searcher.ask()
        searcher.report(trial, math.nan if index % 5 == 4 else 3.0, step=1)
        searcher.tell(trial, [0.5, None, math.nan, 1e300, 0.5][index % 5])
    assert len(set(keys(searcher.space, searcher.history))) == 18


@every_method
def test_a_single_configuration_is_proposed_once(method):
    for space in (Space({"c": Constant(1)}), Space({"k": Choice(("only",))})):
        searcher = create(method, space)
        assert len(searcher.ask(3)) == 1
        with pytest.raises(Exhausted):
            searcher.ask()


@every_method
def test_a_small_space_is_used_up_without_a_repeat_and_then_exhausted(method):
    searcher = create(method, TWELVE)
    for _ in range(4):
        for trial in searcher.ask(5)[:5]:
            searcher.tell(trial, loss(trial.params))
        if len(searcher.history) == 12:
            break
    assert len(set(keys(TWELVE, searcher.history))) == 12
    with pytest.raises(Exhausted):
        searcher.ask()


@every_method
def test_early_losses_of_stopped_trials_are_not_taken_for_final_ones(method):
    if (
        not load_method(method).uses_results or method == "nsga2"
    ):  # of one parameter nsga2 only mutates
        return
    finished = [  # best near 0.2 at the end, but not yet after one step
        Observation(f"f{i}", {"x": x}, {}, 0.5 + abs(x - 0.2), ((1, 5.0), (9, 0.5 + abs(x - 0.2))))
        for i, x in enumerate(np.linspace(0.02, 0.98, 14).round(3).tolist())
    ]
    stopped = [  # after one step these look better than all others
        Observation(f"s{i}", {"x": x}, {}, 0.1, ((1, 0.1),), reason="rung")
        for i, x in enumerate(np.linspace(0.85, 0.95, 14).round(4).tolist())
    ]
    history = [replace(seen, state="done") for seen in [*finished, *stopped]]
    proposed = [
        build(method).suggest(LINE, history, 1, call_rng(seed, 28))[0].params["x"]
        for seed in range(5)
    ]
    # An evolution of 14 results has not gone far, but stopped trials would have drawn it away.
    near = 0.4 if method == "cmaes" else 0.2
    assert np.median(np.abs(np.array(proposed) - 0.2)) < near


HUGE = sys.float_info.max
HOSTILE = {  # (loss, excess, whether the configuration is the one before it)
    "nothing": [],
    "one point": [(1.0, 0.0, False)],
    "duplicates": [(1.0, 0.0, True)] * 14,
    "constants": [(0.0, -1.0, False)] * 14,
    "contradictions": [(float(i), float(i % 2), True) for i in range(14)],
    "huge": [(sign * size, size, False) for sign in (1, -1) for size in (1e300, HUGE, 1e9, 0.0)]
    * 3,
    "tiny": [(1.0 + i * 1e-16, i * 5e-324, False) for i in range(14)],
    "not finite": [(loss, loss, False) for loss in (math.nan, math.inf, -math.inf, 0.5)] * 4,
    "all failed": [(None, 0.0, False)] * 14,
    "no limit kept": [(float(i), 1.0 + i, False) for i in range(14)],
    "far from its limits": [(float(i), math.inf, False) for i in range(14)],
    "unknown limits": [(float(i), [math.nan, 1.0][i % 2], False) for i in range(14)],
}


def hostile(space, outcomes, goals):
    """Return observations that no well-behaved sweep has, some of them still running."""
    rng, params = np.random.default_rng(1), space.sample(np.random.default_rng(0))
    history = []
    for number, (loss, excess, repeats) in enumerate(outcomes):
        params = params if repeats else space.sample(rng)
        failed = loss is None
        result = {} if failed else {"loss": loss} if goals == 1 else {"losses": (loss, -loss)}
        state = "failed" if failed else "done" if number % 5 else "pending"
        curve = () if failed or number % 3 else ((1, loss),)
        history.append(
            Observation(
                str(number), params, {}, curve=curve, state=state, excess=(excess,), **result
            )
        )
    return history


@pytest.mark.parametrize(
    ("method", "goals"), [*((name, 1) for name in METHODS), *((name, 2) for name in SEVERAL)]
)
@pytest.mark.parametrize("outcomes", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("space", [SPACES["conditional"], TWELVE], ids=["cond", "12"])
def test_no_history_is_too_strange(method, goals, outcomes, space):
    """An error here would end a sweep that has run for days."""
    history = hostile(space, outcomes, goals)
    proposals = build(method).suggest(space, history, 2, call_rng(0, len(history)))
    for proposal in proposals:
        space.validate(proposal.params)
    existing = set(keys(space, history))
    assert len(proposals) == 2 or (space is TWELVE and len(existing) + len(proposals) == 12)
    assert len({*existing, *keys(space, proposals)}) == len(existing) + len(proposals)


@pytest.mark.parametrize("method", SEVERAL)
@pytest.mark.parametrize(("goals", "name"), [(2, "conditional"), (3, "constrained")])
def test_several_objectives_give_valid_new_proposals_and_the_same_again(method, goals, name):
    space = SPACES[name]
    first, second = (searched(method, space, goals=goals) for _ in range(2))
    assert len(set(keys(space, first.history))) == 16
    for seen in first.history:
        space.validate(seen.params)
    assert [seen.params for seen in first.history] == [seen.params for seen in second.history]
    assert [seen.note for seen in first.history] == [seen.note for seen in second.history]
