"""The history of simulated sweeps, and of recorded ones."""

import math
import sys
from collections import Counter
from itertools import pairwise

import pytest
import recorded_home

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis.failure_words import LOST
from hposvc.events import Event, Failed, Ordered
from hposvc.reporting.history import History


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    return recorded_home.fill(tmp_path_factory.mktemp("home"))


def read(sweeps, sweep):
    row = api.find(sweeps.journal, sweep)
    return specs.restore(row.spec), [event for _, event in sweeps.journal.read(row.id)]


RECORDED = ("ended", "front", "copies", "finalists", "longer", "cut-off")


@pytest.mark.parametrize("sweep", RECORDED)
def test_a_history_has_the_state_its_orders_and_its_failures(sweeps, sweep):
    spec, events = read(sweeps, sweep)
    history = History.of(spec, events)
    assert history.state.trials.counts == api.load(sweeps, sweep).state.trials.counts
    assert len(history.spans) == sum(isinstance(event, Ordered) for event in events)
    assert len(history.failures) == sum(isinstance(event, Failed) for event in events)
    for trial, readings in history.readings.items():
        steps = [reading.step for reading in readings]
        assert steps == [step for step, _ in history.state.trials[trial].curve]
    running = {span.order for span in history.spans.values() if span.end is None}
    assert running == {*history.state.trials.orders, *history.state.replicates.trials.orders}
    assert all(span.end >= span.start for span in history.spans.values() if span.end is not None)
    free_at: dict[int, float] = {}  # orders on one lane follow each other
    for span in history.spans.values():
        assert span.start >= free_at.get(span.lane, 0.0)
        free_at[span.lane] = math.inf if span.end is None else span.end
    assert len(free_at) == history.lanes


@pytest.mark.parametrize("sweep", RECORDED)
def test_after_every_event_it_agrees_with_the_state(sweeps, sweep):
    spec, events = read(sweeps, sweep)
    history = History(spec)
    for event in events:
        history.apply(event)
        state = history.state
        assert history.busy == sum(trial.order.workers for trial in state.running())
        assert history.rank_s == pytest.approx(state.rank_s)
        best = None if spec.several else next(iter(state.trials.best()), None)
        if best is not None:
            last = history.improvements[-1]
            assert (last.trial, last.value) == (best, state.trials[best].value)


def test_orders_of_a_dead_driver_are_lost(sweeps):
    spec, events = read(sweeps, "cut-off")
    again = History.of(spec, [*events, events[0]])
    assert Counter(span.how for span in again.spans.values()) == {LOST: 1}


def test_improvements_follow_the_best_trial_to_the_last_one(sweeps):
    spec, events = read(sweeps, "ended")
    history = History.of(spec, events)
    marks = [(mark.trial, mark.value) for mark in history.improvements]
    assert all(before != after for before, after in pairwise(marks))
    assert marks[-1] == (history.state.best, history.state.trials[history.state.best].value)


def test_an_event_costs_the_same_however_many_came_before(sweeps):
    spec, events = read(sweeps, "ended")
    history, middle = History(spec), len(events) // 2
    early, late = (calls(history, half) for half in (events[:middle], events[middle:]))
    assert late / (len(events) - middle) < 1.2 * early / middle


def calls(history: History, events: list[Event]) -> int:
    """Return how many functions are called to apply events."""
    number = 0

    def count(frame: object, what: str, argument: object) -> None:
        nonlocal number
        number += what in ("call", "c_call")

    sys.setprofile(count)
    for event in events:
        history.apply(event)
    sys.setprofile(None)
    return number


@pytest.mark.parametrize("sweep", RECORDED)
def test_the_cost_of_a_trial_grows_with_its_reports_up_to_the_cost_of_its_orders(sweeps, sweep):
    state = History.of(*read(sweeps, sweep)).state
    for trial in state.trials.values():
        costs = [cost for _, cost in trial.costs]
        assert [step for step, _ in trial.costs] == [step for step, _ in trial.curve]
        assert costs == sorted(costs)
        assert not costs or costs[-1] <= trial.rank_s_at(state.now) * (1 + 1e-9)
