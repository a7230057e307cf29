"""Which trials are the best: one by one metric, a front by several, within limits."""

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import Lab, at_desk, make_several, make_spec

from hposvc.events import Reported
from hposvc.spec.metrics import Metric, read_limit
from hposvc.state.ranking import Front, Ranking
from hposvc.state.trial import TrialState
from searchers.pareto import dominates

TWO = (Metric("loss", "minimize"), Metric("speed", "maximize"))
LIMIT = read_limit("size <= 2")
grades = st.integers(0, 3).map(float) | st.just(math.nan)
# A trial reports a loss, speed and size, or comes to its end, where the loss is None.
happenings = st.lists(
    st.tuples(st.integers(0, 7), st.none() | grades, grades, st.integers(1, 3)),
    min_size=1,
    max_size=40,
)


def a_trial(number, objectives=TWO, limits=(LIMIT,)):
    return TrialState(f"t{number}", objectives, {}, {}, 99, (), number, limits)


def replay(told, kind, objectives):
    """The trials and the ranking after all that was told, looked at along the way."""
    trials = {f"t{number}": a_trial(number, objectives) for number in range(8)}
    ranking = kind(trials)
    for number, loss, speed, size in told:
        trial = trials[f"t{number}"]
        if loss is None:
            trial.at_end = trial.step > 0 and not trial.at_end  # an extended trial goes on
        else:
            trial.report(trial.step + 1, {"loss": loss, "speed": speed, "size": size})
        ranking.update(trial)
        if size == 1:
            ranking.best()
    return trials, ranking


def reach(trial):
    return math.inf if trial.at_end else trial.step


def beats(one, other):
    """Whether a trial was better at the last step that both have; its result is for all steps."""
    step = max(one.step, other.step) if one.at_end and other.at_end else other.step
    return one.loss_at(step) < other.loss_at(step)


@settings(max_examples=300, deadline=None)
@given(happenings)
def test_no_trial_stands_above_one_that_went_as_far_and_beat_it(told):
    trials, ranking = replay(told, Ranking, TWO[:1])
    order = [trials[name] for name in ranking.order()]
    assert {trial.id for trial in order} == {t.id for t in trials.values() if t.loss < math.inf}
    for place, lower in enumerate(order):
        for higher in order[:place]:
            assert not (reach(lower) >= reach(higher) and beats(lower, higher))


@settings(max_examples=300, deadline=None)
@given(happenings)
def test_a_ranking_that_is_kept_is_the_one_of_looking_at_all(told):
    trials, ranking = replay(told, Ranking, TWO[:1])
    anew = Ranking.of(trials)
    assert (ranking.order(), ranking.best()) == (anew.order(), anew.best())
    assert ranking.best() == ranking.order()[:1]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12),
    st.sampled_from([lambda step: 0.5 * step, lambda step: 3 / step, lambda step: 4.5]),
    st.randoms(use_true_random=False),
)
def test_curves_that_do_not_cross_are_ranked_as_they_lie(lengths, shape, random):
    """Whether losses rise, fall or stay with the step: where a trial was stopped does not count."""
    heights = random.sample(range(100), len(lengths))
    trials = {}
    for number, ((length, ends), height) in enumerate(zip(lengths, heights, strict=True)):
        trial = trials[f"t{number}"] = a_trial(number, TWO[:1], ())
        for step in range(1, 10 if ends else length + 1):
            trial.report(step, {"loss": height + shape(step)})
        trial.at_end = ends
    best, *others = Ranking.of(trials).order()
    low = [heights[trials[name].number] for name in others]
    assert low == sorted(low)
    able = [t for t in trials.values() if t.at_end] or [
        t for t in trials.values() if 2 * t.step >= max(length for length, _ in lengths)
    ]
    assert trials[best] == min(able, key=lambda trial: heights[trial.number])


def test_the_first_steps_of_a_trial_make_it_no_leader():
    trials = {name: a_trial(number, TWO[:1], ()) for number, name in enumerate(("t0", "t1"))}
    old, new = trials.values()
    for step in range(1, 9):
        old.report(step, {"loss": 0.5})
    for step in range(1, 4):
        new.report(step, {"loss": 0.1})
        assert Ranking.of(trials).best() == ["t0"]
    new.report(4, {"loss": 0.1})
    assert Ranking.of(trials).best() == ["t1"]
    old.at_end = True
    assert Ranking.of(trials).order() == ["t0", "t1"]


@settings(max_examples=300, deadline=None)
@given(happenings)
def test_a_front_that_is_kept_is_the_one_of_looking_at_all(told):
    """Trials come and go with every report: none may be lost, or stay for what it was."""
    trials, ranking = replay(told, Front, TWO)
    known = [trial for trial in trials.values() if math.isfinite(trial.loss)]
    furthest = max((trial.step for trial in known), default=0)
    able = [trial for trial in known if trial.at_end] or [
        trial for trial in known if 2 * trial.step >= furthest
    ]

    def is_beaten(one, by):
        if one.at_end:
            return dominates(by.losses, one.losses)
        return by.step >= one.step and dominates(by.losses_at(one.step), one.losses)

    free = [one for one in able if not any(is_beaten(one, by) for by in able)]
    assert ranking.best() == [trial.id for trial in free]
    assert {*ranking.order()} == {trial.id for trial in known}
    assert {*ranking.order()[: len(free)]} == {*ranking.best()}


@pytest.mark.parametrize("at_end", [False, True])
def test_a_report_looks_at_few_other_trials(at_end):
    """All views ask for the best after each report: looking through 5,000 trials took 40 ms."""
    trials = {f"t{number}": a_trial(number, TWO[:1]) for number in range(3000)}
    ranking = Ranking(trials)
    for number, trial in enumerate(trials.values()):
        trial.report(1, {"loss": float(-number), "size": 1.0})
        trial.at_end = at_end
        ranking.update(trial)
    looked = 0

    def count(frame, kind, argument):
        nonlocal looked
        codes = (TrialState.losses.fget.__code__, TrialState.loss_at.__code__)
        looked += kind == "call" and frame.f_code in codes

    trials["t7"].report(2, {"loss": -5000.0, "size": 1.0})
    sys.setprofile(count)
    try:
        ranking.update(trials["t7"])
        best = ranking.best()
    finally:
        sys.setprofile(None)
    assert best == (["t7"] if at_end else ["t2999"]), "which was better at step 1"
    assert looked < 10


def test_a_trial_without_the_limited_metric_is_not_silently_the_best():
    """A misspelled metric must not turn a limit off."""
    trial = a_trial(0)
    trial.report(1, {"loss": 0.1, "speed": 1.0})
    assert (trial.excess, trial.kept, trial.losses) == ((math.inf,), False, (math.inf, math.inf))
    trial.report(2, {"loss": 0.1, "speed": 1.0, "size": 2.0})
    assert (trial.excess, trial.kept, trial.losses) == ((0.0,), True, (0.1, -1.0))


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
    assert not tell(desk, first, 1, 0.1, 4), "its values may become worse"
    assert not tell(desk, second, 9, 0.9, 1)
    assert [event.reason for event in tell(desk, first, 9, 0.2, 5)] == [
        "target",
        "target",
        "target",
    ]


def test_limits_cut_a_front(tmp_path):
    lab = Lab.at(tmp_path)
    free = lab.run(make_several(trials={"max": 40, "parallel": 4}), "free")
    cut = lab.run(make_several(trials={"max": 40, "parallel": 4}, limits=["speed >= -7"]), "cut")
    kept = [name for name in free.front if free.trials[name].values[1] >= -7]
    assert 0 < len(kept) < len(free.front)
    assert set(kept) <= set(cut.front)
    assert all(cut.trials[name].values[1] >= -7 for name in cut.front)


@pytest.mark.parametrize(
    ("scheduler", "goal"),
    [
        ("asha", "minimize"),
        ({"type": "asha", "mode": "promote"}, "maximize"),
        ("hyperband", "maximize"),
        ("median", "minimize"),
    ],
)
def test_a_trial_that_lost_at_its_rung_is_no_best_where_values_worsen_with_the_step(
    scheduler, goal, tmp_path
):
    """Its value is that of a lower step, and would be the best of all."""
    lab = Lab.at(tmp_path)
    spec = make_spec(
        metric={"name": {"minimize": "loss", "maximize": "gain"}[goal], "goal": goal},
        engine={"type": "simulate", "curve": "simulated_sweeps:worsening"},
        scheduler=scheduler,
        finalists={"top": 3, "seeds": 2},
        trials={"max": 24, "parallel": 4},
    )
    state = lab.run(spec)
    ranked = state.trials.ranked()
    assert [trial.id for trial in ranked] == [
        trial.id for trial in sorted(ranked, key=lambda t: abs(math.log10(t.params["lr"]) + 3))
    ]
    assert list(state.replicates.finalists) == [trial.id for trial in ranked[:3]]
    assert len({trial.step for trial in ranked}) > 1
