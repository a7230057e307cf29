"""The median stopping rule against a reference that rescans, and on cases worked out by hand."""

import math
from random import Random

import pytest
from asha_reference import Cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from median_reference import both
from simulated_sweeps import make_spec

from hposvc.schedulers.median import Median
from hposvc.schedulers.scheduler import Left, NewTrial, Ordered, Plan, Report, SearchDone


class Eighths(Cluster):
    """A cluster with losses in eighths, whose sums are exact in any order."""

    def advance(self):
        self.rng.random, exact = lambda: self.rng.getrandbits(3) / 8, self.rng.random
        try:
            return super().advance()
        finally:
            self.rng.random = exact


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    min_trials=st.integers(1, 4),
    interval=st.integers(1, 4),
    first=st.integers(1, 3),
    last=st.integers(3, 12),
    slots=st.sampled_from([1, 2, 3, 5, 16, 64]),
    most=st.integers(1, 50),
)
def test_decisions_are_those_of_a_rescan_and_the_sweep_ends(
    seed, min_trials, interval, first, last, slots, most
):
    rng = Random(seed)
    scheduler = both(min_trials, interval, first, last)
    cluster = Eighths(scheduler, rng, range(1, last + 1), most)
    for _ in range(5_000):
        if len(cluster.running) < slots and rng.random() < 0.7:
            if isinstance(cluster.fill(), SearchDone):
                break
        elif cluster.running:
            cluster.advance()
        elif rng.random() < 0.001:
            cluster.close()  # the space is used up
    else:
        pytest.fail("the sweep does not end")
    assert not cluster.running


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    min_trials=st.integers(1, 4),
    interval=st.integers(1, 4),
    first=st.integers(1, 3),
    last=st.integers(3, 8),
)
def test_decisions_are_those_of_a_rescan_when_trials_are_retried_and_become_longer(
    seed, min_trials, interval, first, last
):
    """As a controller does it, each time with another scheduler, which is told what holds."""
    rng = Random(seed)
    scheduler = both(min_trials, interval, first, last)
    facts = scheduler.reference.facts
    reached, running, diverged = {}, set(), set()  # `reached`: the last reported step by trial
    for _ in range(120):
        action = rng.random()
        over = [t for t in reached if t not in running and t not in diverged and reached[t] < last]
        if action < 0.02:
            last += rng.randint(1, 4)
            scheduler = renewed(both(min_trials, interval, first, last), facts)
            facts = scheduler.reference.facts
        elif action < 0.15 and over:
            trial = rng.choice(over)
            held = [fact for fact in facts if fact != Left(trial)]
            scheduler = renewed(both(min_trials, interval, first, last), held)
            facts = scheduler.reference.facts
            running.add(trial)
        elif action < 0.4 or not running:
            trial = f"t{len(reached)}"
            scheduler.apply(Ordered(trial, last))
            reached[trial] = 0
            running.add(trial)
        else:
            trial = rng.choice(sorted(running))
            step = min(last, reached[trial] + rng.randint(1, 2))
            stop = rng.random() < 0.1
            if step > reached[trial]:
                reached[trial] = step
                loss = rng.choice([rng.getrandbits(3) / 8] * 5 + [math.inf])
                scheduler.apply(Report(trial, step, loss))
                judged = loss < math.inf and step < last
                verdict = judged and scheduler.judge(Report(trial, step, loss)).verdict
                stop = stop or loss == math.inf or verdict == "stop"
                diverged |= {trial} if loss == math.inf else set()
            if stop or step == last:
                scheduler.apply(Left(trial))
                running.remove(trial)


def renewed(scheduler, facts):
    """Return a scheduler that was told these facts."""
    for fact in facts:
        scheduler.apply(fact)
    return scheduler


def after(curves, last=4, **options):
    """Return a scheduler of trials of so many steps, after these trials have ended."""
    scheduler = Median(**options).scheduler(Plan(1, last))
    for number, curve in enumerate(curves):
        scheduler.apply(Ordered(f"t{number}", 4))
        for step, loss in curve.items():
            scheduler.apply(Report(f"t{number}", step, loss))
        scheduler.apply(Left(f"t{number}"))
    return scheduler


def verdict(scheduler, *losses):
    """Return the verdict on a trial that reported these losses, one per step."""
    scheduler.apply(Ordered("new", 4))
    for step, loss in enumerate(losses, 1):
        scheduler.apply(Report("new", step, loss))
    return scheduler.judge(Report("new", len(losses), losses[-1])).verdict


FALLING = [{1: 8.0, 2: 4.0, 3: 3.0, 4: 2.0}, {1: 6.0, 2: 2.0, 3: 1.0}, {1: 9.0, 2: 9.0}]


def test_the_best_so_far_is_held_against_the_median_of_the_means_so_far():
    # The means up to step 2 are 6, 4 and 9; those up to step 3 are 5 and 3, whose median is 4.
    assert verdict(after(FALLING, min_trials=2), 7.0, 6.5) == "stop"
    assert verdict(after(FALLING, min_trials=2), 7.0, 6.0) == "continue"
    assert verdict(after(FALLING, min_trials=2), 6.5, 8.0) == "stop"
    assert verdict(after(FALLING, min_trials=2), 5.0, 8.0) == "continue"
    assert verdict(after(FALLING, min_trials=2), 5.0, 4.1, 4.5) == "stop"
    assert verdict(after(FALLING, min_trials=2), 5.0, 4.0, 4.5) == "continue"


def test_a_diverged_trial_is_the_worst_from_there_on_and_poisons_no_median():
    gone = {1: 1.0, 2: math.inf}
    assert verdict(after([gone, *FALLING[:2]], min_trials=3), 1.0, 6.5, 5.5) == "continue"
    assert verdict(after([gone, *FALLING[:2]], min_trials=3), 9.0, 6.5, 5.5) == "stop"
    assert verdict(after([gone, gone, gone], min_trials=3), 9.0, 9.0) == "continue"


def test_long_trials_are_judged_a_hundred_times_unless_told_otherwise():
    assert Median().scheduler(Plan(1, 27)).next() == NewTrial(27, tuple(range(1, 27)))
    long = Median().scheduler(Plan(10, 50_000)).next().milestones
    assert (long[:2], len(long)) == ((10, 510), 100)
    assert Median(interval=10).scheduler(Plan(5, 36)).next() == NewTrial(36, (5, 15, 25, 35))


def test_on_curves_that_keep_their_order_about_half_is_stopped_and_not_the_best(lab):
    spec = make_spec(
        fidelity={"max": 27}, scheduler={"type": "median"}, trials={"max": 300, "parallel": 8}
    )
    state = lab.run(spec)
    stopped = [trial for trial in state.trials.values() if trial.reason == "median"]
    assert 0.4 < len(stopped) / len(state.trials) < 0.8
    assert state.trials[state.best].step == 27
