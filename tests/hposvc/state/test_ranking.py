"""Which trials are the best: one by one metric, a front by several, within limits."""

import math
import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import Lab, at_desk, make_several, make_spec

from hposvc.events import Reported
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.spec import Metric
from hposvc.spec.metrics import read_limit
from hposvc.state.ranking import Front, Ranking
from hposvc.state.trial import TrialState
from searchers.pareto import dominates

TWO = (Metric("loss", "minimize"), Metric("speed", "maximize"))
LIMIT = read_limit("size <= 2")
grades = st.integers(0, 3).map(float) | st.just(math.nan)
reports = st.lists(
    st.tuples(st.integers(0, 7), grades, grades, st.integers(1, 3)), min_size=1, max_size=40
)


def a_trial(number, objectives=TWO, limits=(LIMIT,)):
    return TrialState(f"t{number}", objectives, {}, {}, 99, (), number, limits)


def replay(told, kind, objectives):
    """The ranking after reports of (trial, loss, speed, size), looked at along the way."""
    trials = {f"t{number}": a_trial(number, objectives) for number in range(8)}
    ranking = kind(trials) if kind is Front else kind()
    for number, loss, speed, size in told:
        trial = trials[f"t{number}"]
        trial.report(trial.step + 1, {"loss": loss, "speed": speed, "size": size})
        ranking.update(trial)
        if size == 1:
            ranking.best()
    return trials, ranking.best()


@settings(max_examples=300, deadline=None)
@given(reports)
def test_a_front_that_is_kept_is_the_one_of_looking_at_all(told):
    """Trials come and go with every report: none may be lost, or stay for what it was."""
    trials, front = replay(told, Front, TWO)
    finite = [trial for trial in trials.values() if math.isfinite(trial.loss)]
    free = [one for one in finite if not any(dominates(o.losses, one.losses) for o in finite)]
    assert front == [trial.id for trial in free]


def test_a_fall_from_a_wide_front_costs_one_look_at_each_trial():
    """Folding all trials again took a quarter of a second at 3,000, at nearly every report."""
    trials = {f"t{number}": a_trial(number) for number in range(300)}
    ranking = Front(trials)
    for number, trial in enumerate(trials.values()):
        trial.report(1, {"loss": float(number), "speed": float(number), "size": 1.0})
        ranking.update(trial)
    trials["t7"].report(2, {"loss": 7.5, "speed": 7.0, "size": 1.0})
    calls = 0

    def count(frame, kind, argument):
        nonlocal calls
        calls += kind == "call" and frame.f_code is dominates.__code__

    sys.setprofile(count)
    try:
        ranking.update(trials["t7"])
        best = ranking.best()
    finally:
        sys.setprofile(None)
    assert best == list(trials)
    assert calls < 5 * len(trials)


@settings(max_examples=200, deadline=None)
@given(reports)
def test_the_best_of_one_metric_is_the_lowest_within_the_limits(told):
    trials, best = replay(told, Ranking, TWO[:1])
    kept = [t for t in trials.values() if t.value is not None and t.metrics["size"] <= 2]
    expected = min(kept, key=lambda trial: (trial.value, trial.number), default=None)
    assert best == ([] if expected is None else [expected.id])


def test_a_report_looks_at_no_other_trial():
    """A quota asks for the finalists at each report: looking through 5,000 trials took 40 ms."""
    trials = {f"t{number}": a_trial(number, TWO[:1]) for number in range(3000)}
    ranking = Ranking()
    for number, trial in enumerate(trials.values()):
        trial.report(1, {"loss": float(-number), "size": 1.0})
        ranking.update(trial)
    looked = 0

    def count(frame, kind, argument):
        nonlocal looked
        looked += kind == "call" and frame.f_code is TrialState.losses.fget.__code__

    trials["t7"].report(2, {"loss": -5000.0, "size": 1.0})
    sys.setprofile(count)
    try:
        ranking.update(trials["t7"])
        leaders = ranking.leaders(3)
    finally:
        sys.setprofile(None)
    assert leaders == ["t7", "t2999", "t2998"]
    assert looked < 10


def test_a_trial_without_the_limited_metric_is_not_silently_the_best():
    """A misspelled metric must not turn a limit off."""
    trial = a_trial(0)
    trial.report(1, {"loss": 0.1, "speed": 1.0})
    assert (trial.excess, trial.kept, trial.losses) == ((math.inf,), False, (math.inf, math.inf))
    trial.report(2, {"loss": 0.1, "speed": 1.0, "size": 2.0})
    assert (trial.excess, trial.kept, trial.losses) == ((0.0,), True, (0.1, -1.0))


def test_the_limits_are_those_of_the_step_that_the_value_is_of():
    """What is shown as the best keeps the limits where it was best."""
    trial = a_trial(0, (Metric("loss", "minimize", "best"),))
    trial.report(1, {"loss": 0.1, "size": 1.0})
    trial.report(2, {"loss": 0.5, "size": 9.0})
    assert (trial.value, trial.kept) == (0.1, True)


def test_a_searcher_sees_all_losses_and_how_far_limits_were_exceeded():
    trial = a_trial(0)
    trial.report(1, {"loss": 0.5, "speed": 3.0, "size": 4.0})
    seen = trial.observation()
    assert (seen.loss, seen.losses, seen.excess) == (None, (0.5, -3.0), (2.0,))
    assert seen.curve == ((1, 0.5),)
    trial.report(2, {"loss": 0.5, "speed": math.nan, "size": 4.0})
    seen = trial.observation()
    assert (seen.losses, seen.excess) == ((), ())


def at_two(**sections):
    return at_desk(
        metric=None,
        metrics=[
            {"name": "loss", "goal": "minimize", "target": 0.2},
            {"name": "size", "goal": "minimize", "target": 5},
        ],
        **sections,
    )


def tell(desk, order, step, loss, size):
    metrics = {"loss": loss, "size": size}
    return desk.happen(Reported(desk.time, order.id, order.trial, step, metrics))


def test_a_sweep_with_targets_ends_when_one_trial_meets_all_of_them():
    desk = at_two()
    first, second = desk.start(), desk.start()
    assert not tell(desk, first, 1, 0.1, 9)
    assert not tell(desk, second, 1, 0.9, 1)
    assert [event.reason for event in tell(desk, first, 2, 0.2, 5)] == [
        "target",
        "target",
        "target",
    ]


def test_a_target_beyond_a_limit_is_not_met():
    desk = at_two(limits=["size <= 3"])
    order = desk.start()
    assert not tell(desk, order, 1, 0.1, 4)
    assert tell(desk, order, 2, 0.1, 3)


def test_a_sweep_in_which_no_trial_keeps_the_limits_says_so(tmp_path):
    """It must not end as if there were a best configuration."""
    lab = Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)
    state = lab.run(make_spec(limits=["loss <= -1"]))
    assert (state.state, state.reason) == ("FAILED", "no trial keeps the limits")
    assert (state.best, state.front) == (None, [])


def test_limits_cut_a_front(tmp_path):
    lab = Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)
    free = lab.run(make_several(trials={"max": 40, "parallel": 4}), "free")
    cut = lab.run(make_several(trials={"max": 40, "parallel": 4}, limits=["speed >= -7"]), "cut")
    kept = [name for name in free.front if free.trials[name].values[1] >= -7]
    assert 0 < len(kept) < len(free.front)
    assert set(kept) <= set(cut.front)
    assert all(cut.trials[name].values[1] >= -7 for name in cut.front)
