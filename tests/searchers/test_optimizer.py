import math
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from searchers import Exhausted, Float, Int, Proposal, Space, SpaceError, create
from searchers.optimizer import Optimizer

LINE = Space({"x": Float(0.0, 1.0)})


def test_ask_tell_and_best_speak_the_users_sign():
    searcher = create("random", LINE, goal="maximize", seed=0)
    for trial in searcher.ask(4):
        searcher.tell(trial, trial.params["x"])
    best = max(seen.params["x"] for seen in searcher.history)
    assert searcher.best.value == best
    assert searcher.best.params == {"x": best}
    assert [seen.loss for seen in searcher.history] == [
        -seen.params["x"] for seen in searcher.history
    ]


def test_none_is_a_failure_and_nan_or_inf_a_divergence():
    searcher = create("random", LINE)
    oom, plain, nan, inf = searcher.ask(4)
    searcher.tell(oom, None, reason="oom")
    searcher.tell(plain, None)
    searcher.tell(nan, math.nan)
    searcher.tell(inf, np.float32(np.inf))
    assert [seen.state for seen in searcher.history] == ["failed"] * 4
    assert [seen.reason for seen in searcher.history] == ["oom", "failed", "diverged", "diverged"]
    assert all(seen.loss is None for seen in searcher.history)


def test_reports_make_the_curve_and_the_told_value_counts_at_their_last_step():
    searcher = create("random", LINE, goal="maximize")
    trial = searcher.ask()
    searcher.report(trial, value=0.5, step=1)
    searcher.report(trial, value=0.6, step=3)
    assert searcher.history[0].curve == ((1, -0.5), (3, -0.6))
    searcher.tell(trial, 0.7)
    assert searcher.history[0].curve == ((1, -0.5), (3, -0.7))


def test_results_from_elsewhere_are_checked_and_counted():
    searcher = create("random", LINE)
    searcher.add({"x": 0.5}, 0.1)
    assert searcher.best.params == {"x": 0.5}
    with pytest.raises(SpaceError, match=r"x: is 2.0, outside 0.0 to 1.0"):
        searcher.add({"x": 2.0}, 0.1)
    assert len(searcher.history) == 1


def test_what_cannot_be_told_says_why():
    searcher = create("random", LINE)
    trial = searcher.ask()
    with pytest.raises(ValueError, match="tell: there is no trial '7'"):
        searcher.tell("7", 0.1)
    with pytest.raises(ValueError, match=r"value is \[0.1, 0.2\], but there is one goal"):
        searcher.tell(trial, [0.1, 0.2])
    with pytest.raises(ValueError, match="cost is -1; give seconds"):
        searcher.tell(trial, 0.1, cost=-1)
    with pytest.raises(ValueError, match="excess is \\('much',\\); give a list, a number for each"):
        searcher.tell(trial, 0.1, excess=("much",))
    with pytest.raises(ValueError, match="value is 'good'; give a number"):
        searcher.tell(trial, "good")
    with pytest.raises(ValueError, match="value is True; give a number"):
        searcher.tell(trial, True)
    searcher.report(trial, 0.3, step=2)
    with pytest.raises(ValueError, match="is at step 2 already; step 2 would go back"):
        searcher.report(trial, 0.3, step=2)
    searcher.tell(trial, 0.1)
    with pytest.raises(ValueError, match=r"trial 0 has ended \(done\)"):
        searcher.tell(trial, 0.1)


def test_wrong_goals_methods_options_and_numbers_are_refused():
    with pytest.raises(ValueError, match=r"goal is \['minimize'\]; give one word, or a list of 2"):
        create("random", LINE, goal=["minimize"])
    with pytest.raises(ValueError, match="goal is 'max'; write minimize or maximize"):
        create("random", LINE, goal=["minimize", "max"])
    with pytest.raises(
        ValueError, match=r"'cmaes' takes one objective; for several use one of .*tpe"
    ):
        create("cmaes", LINE, goal=["minimize", "maximize"])
    with pytest.raises(ValueError, match="goal is 'max'; write minimize or maximize"):
        create("random", LINE, goal="max")
    with pytest.raises(ValueError, match="no search method 'randon': did you mean 'random'"):
        create("randon", LINE)
    with pytest.raises(ValueError, match="no option 'startups': did you mean 'startup'"):
        create("tpe", LINE, startups=3)
    with pytest.raises(ValueError, match="seed is -1"):
        create("random", LINE, seed=-1)
    with pytest.raises(ValueError, match="n is 0; ask for 1 or more"):
        create("random", LINE).ask(0)


def searched_both():
    """Return an optimizer after five trials of two goals, one over a limit, and a pending one."""
    searcher = create("random", LINE, goal=["minimize", "maximize"])
    for value in ([1.0, 5.0], [2.0, 9.0], [1.5, 4.0], [2.0, 9.0]):
        searcher.tell(searcher.ask(), value, excess=[-1.0, 0.0], cost=3)
    searcher.tell(searcher.ask(), np.array([0.0, 99.0]), excess=[-1.0, 0.5])
    searcher.report(searcher.ask(), [0.0, 99.0], step=1)
    return searcher


def test_the_best_of_several_goals_is_the_front_in_the_users_signs():
    searcher = searched_both()
    assert [best.value for best in searcher.best] == [(1.0, 5.0), (2.0, 9.0), (2.0, 9.0)]
    assert searcher.best == searcher.front
    assert searcher.history[0].losses == (1.0, -5.0)
    assert searcher.history[0].loss is None
    assert searcher.history[0].cost == 3


def test_the_hypervolume_is_in_the_users_units_and_from_the_worst_values_unless_told():
    searcher = searched_both()
    assert create("random", LINE, goal=["minimize", "minimize"]).hypervolume() == 0.0
    assert searcher.hypervolume([3.0, 4.0]) == 2 * 1 + 1 * 5 - 1 * 1
    assert searcher.hypervolume() == 1 * 1  # from (2, 4)
    with pytest.raises(
        ValueError, match=r"hypervolume: there are 1 values in \[1.0\]; give a list"
    ):
        searcher.hypervolume([1.0])
    with pytest.raises(ValueError, match="hypervolume: there is one goal"):
        create("random", LINE).hypervolume()


def test_a_trial_that_exceeds_a_limit_is_not_the_best():
    searcher = create("random", LINE)
    searcher.add({"x": 0.1}, 1.0, excess=[0.1])
    searcher.add({"x": 0.2}, 1.0, excess=[math.nan])
    assert searcher.best is None
    searcher.add({"x": 0.3}, 2.0, excess=[0.0])
    assert searcher.best.value == 2.0
    assert [best.id for best in searcher.front] == ["2"]


@pytest.mark.parametrize(
    "excess", [0.5, np.array(0.5), "ab", {0.1}, [[1], [1, 2]], [0.1, "b"], None]
)
def test_an_excess_that_is_no_list_of_numbers_is_refused(excess):
    """`for` over a number is a TypeError that names neither tell nor excess."""
    searcher = create("random", LINE)
    with pytest.raises(ValueError, match=r"tell: excess is .*; give a list, a number for each"):
        searcher.tell(searcher.ask(), 1.0, excess=excess)
    with pytest.raises(ValueError, match=r"tell: excess is .*; give a list, a number for each"):
        searcher.add({"x": 0.5}, 1.0, excess=excess)
    assert len(searcher.history) == 1, "what was refused is pending for ever"


def test_an_excess_of_another_length_than_before_is_refused():
    """Each limit has a model, so limits must keep their order; an empty excess means unknown."""
    searcher = create("random", LINE)
    searcher.tell(searcher.ask(), 1.0)
    searcher.tell(searcher.ask(), 1.0, excess=np.array([0.1, -0.1]))
    trial = searcher.ask()
    with pytest.raises(ValueError, match="excess has 1 numbers, that of earlier trials 2; give"):
        searcher.tell(trial, 1.0, excess=[0.1])
    searcher.tell(trial, None)
    assert [len(seen.excess) for seen in searcher.history] == [0, 2, 0]


def test_several_values_are_reported_and_told_together():
    searcher = create("random", LINE, goal=["minimize", "maximize"])
    trial, other = searcher.ask(2)
    searcher.report(trial, [0.5, 0.1], step=1)
    searcher.report(trial, [math.nan, 0.2], step=2)
    searcher.report(trial, [0.4, 0.2], step=3)
    assert searcher.history[0].losses == (0.4, -0.2)
    searcher.tell(trial, [0.3, 0.3])
    steps, losses = zip(*searcher.history[0].curve, strict=True)
    assert steps == (1, 2, 3)
    assert losses == (0.5, pytest.approx(math.nan, nan_ok=True), 0.3)
    searcher.tell(other, [0.1, math.nan])
    assert searcher.history[1].state == "failed"
    assert searcher.history[1].reason == "diverged"
    assert searcher.history[1].losses == ()


def test_asking_beyond_the_last_configuration_raises():
    searcher = create("random", Space({"n": Int(1, 3)}))
    assert {trial.params["n"] for trial in searcher.ask(5)} == {1, 2, 3}
    with pytest.raises(Exhausted, match=r"all configurations .* were proposed: 3"):
        searcher.ask()


@dataclass(frozen=True)
class Middle:
    """A user's own searcher."""

    share: float = 0.5

    def suggest(self, space, history, n, rng):
        return [Proposal(space.decode(np.full(len(space.searched), self.share))) for _ in range(n)]


def test_a_searcher_of_the_users_own_can_be_used():
    assert Optimizer(Middle(0.25), LINE).ask().params == {"x": 0.25}


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import searchers, searchers.methods", {"numpy", "scipy", "optuna", "ray", "torch"}),
        ("from searchers import Space, create", {"optuna", "ray", "torch", "scipy"}),
        (
            "from searchers import METHODS; from searchers.methods import load_method;"
            "[load_method(name) for name in METHODS if name not in ('tpe', 'nsga2')]",
            {"optuna", "ray", "torch"},
        ),
        ("from searchers.methods import load_method; load_method('tpe')", {"ray", "torch"}),
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(statement, absent):
    code = f"import sys; {statement}; print(*{absent!r} & sys.modules.keys())"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.split() == []
