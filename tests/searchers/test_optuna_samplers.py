import logging
import warnings

import numpy as np
import pytest

from searchers import Choice, Float, Space, create


def told(searcher, loss, trials, batch=1):
    for _ in range(trials // batch):
        for trial in searcher.ask(batch):
            searcher.tell(trial, loss(trial.params))
    return searcher


def test_failures_are_avoided_without_a_penalty_of_some_scale():
    space = Space({"x": Float(0.0, 1.0), "kind": Choice(("a", "b"))})
    searcher = create("tpe", space, seed=0)
    for _ in range(60):
        trial = searcher.ask()
        failed = trial.params["kind"] == "b"
        searcher.tell(trial, None if failed else 1e9 + trial.params["x"], reason="oom")
    late = [seen.state for seen in searcher.history[30:]]
    assert late.count("failed") < 10


def test_the_first_trials_are_random_and_the_note_says_so(digits):
    searcher = told(create("tpe", digits, startup=5), lambda params: params["lr"], 8)
    assert [seen.note["source"] for seen in searcher.history] == ["random"] * 5 + ["tpe"] * 3


def test_optuna_is_silent(digits, caplog):
    with caplog.at_level(logging.INFO), warnings.catch_warnings():
        warnings.simplefilter("error")
        told(create("tpe", digits, startup=2), lambda params: params["lr"], 6)
    assert caplog.records == []


ZDT1 = Space({f"x{i}": Float(0.0, 1.0) for i in range(6)})  # the front is where x1 to x5 are 0


def zdt1(params):
    first, *others = params.values()
    rest = 1 + 9 * np.mean(others)
    return [first, rest * (1 - np.sqrt(first / rest))]


@pytest.mark.parametrize(("method", "goals"), [("tpe", 1), ("nsga2", 2)])
def test_limits_keep_proposals_within_them(method, goals):
    """Without the excess, proposals would go where the loss is least: to x0 = 1."""
    goal = ["minimize"] * goals if goals > 1 else "minimize"
    options = {"population": 10} if method == "nsga2" else {}
    searcher = create(method, ZDT1, goal, **options)
    for _ in range(80):
        trial = searcher.ask()
        loss = [-trial.params["x0"], trial.params["x1"]][:goals]
        excess = [trial.params["x0"] - 0.3, 0.0]
        searcher.tell(trial, loss if goals > 1 else loss[0], excess=excess)
    late = [seen.keeps_limits for seen in searcher.history[40:]]
    assert np.mean(late) > 0.5  # 0.3 at random
    assert 0.2 < max(best.params["x0"] for best in searcher.front) <= 0.3


def test_failures_rank_behind_what_exceeds_a_limit():
    """Optuna ranks pruned trials before infeasible ones: proposals would go where all fails."""
    space = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
    searcher = create("tpe", space, seed=0)
    for _ in range(50):
        trial = searcher.ask()
        x = trial.params["x"]
        searcher.tell(trial, None if x < 0.5 else 1.0, reason="oom", excess=[1.5 - x])
    late = [seen.state for seen in searcher.history[25:]]
    assert late.count("failed") < 8


def test_the_population_of_nsga2_is_the_number_of_random_trials_at_first():
    """Were generations not told apart, every proposal would be random."""
    history = told(create("nsga2", ZDT1, population=8), lambda params: params["x0"], 40).history
    values = [set(seen.params.values()) for seen in history]
    earlier = [set().union(*values[:index]) for index in range(len(values))]
    inherited = [len(new & old) for new, old in zip(values, earlier, strict=True)]
    assert inherited[:8] == [0] * 8
    assert min(inherited[8:]) > 0


@pytest.mark.parametrize("method", ["tpe", "nsga2"])
def test_parallel_trials_that_end_late_and_out_of_order_are_survived(method):
    searcher = create(method, ZDT1, ["minimize", "minimize"])
    running, rng = searcher.ask(16), np.random.default_rng(0)
    for _ in range(60):
        trial = running.pop(int(rng.integers(16)))
        searcher.tell(trial, zdt1(trial.params))
        running.append(searcher.ask())
    assert len({space_key(trial) for trial in searcher.history}) == 76


def space_key(trial):
    return ZDT1.key(trial.params)


def test_a_population_below_two_is_refused(digits):
    with pytest.raises(ValueError, match="population is 1; give 2 or more"):
        create("nsga2", digits, population=1)


@pytest.mark.parametrize("option", ["startup", "candidates"])
def test_options_below_one_are_refused(option, digits):
    with pytest.raises(ValueError, match=f"{option} is 0; give 1"):
        create("tpe", digits, **{option: 0})
