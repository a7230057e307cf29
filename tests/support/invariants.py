"""Invariants of the journal of every ended sweep."""

from collections import Counter

from simulated_sweeps import fold

from hposvc.events import Attached, Decided, Ended, Failed, Finished, Ordered, Reported


def check(spec, events):
    """Check all invariants, and return the final state."""
    state = fold(spec, events)
    assert state.finished
    assert isinstance(events[-1], Finished)
    if state.closed in ("trials", None):
        assert len(state.trials) == spec.trials.max
    assert all(trial.over for trial in state.trials.values())
    assert not state.trials.orders
    assert sum(state.trials.counts.values()) == len(state.trials)
    check_orders(events)
    check_reports(spec, events)
    check_verdicts(events)
    return state


def check_orders(events):
    """Check that each order is over once: it ended, failed, or was lost with its driver."""
    running = {}
    for event in events:
        if isinstance(event, Ordered):
            order = event.order
            assert order.id not in running
            assert order.replicate or order.trial not in running.values()
            assert order.first <= order.until
            running[order.id] = order.trial
        elif isinstance(event, Ended | Failed):
            assert running.pop(event.order) == event.trial
        elif isinstance(event, Attached):
            running = {order: trial for order, trial in running.items() if order in event.kept}
    assert not running


def check_reports(spec, events):
    """Check that each step of a trial counts once, and that orders start at a reported step."""
    reached = Counter()
    for event in events:
        if isinstance(event, Reported):
            assert event.step <= reached[event.trial] + 1
            reached[event.trial] = max(reached[event.trial], event.step)
        elif isinstance(event, Ordered):
            order = event.order
            assert order.first <= reached[order.trial] + 1
            if order.parent is None:
                assert order.first == (order.start.step + 1 if order.start else 1)
            else:  # a copy keeps its own step count
                assert order.start is not None
    for trial in fold(spec, events).trials.values():
        steps = [*(step for step, _ in trial.curve), *trial.unjudged]
        assert sorted(steps) == list(range(1, trial.reached + 1))


def check_verdicts(events):
    """Check that no trial gets two different verdicts at the same milestone."""
    verdicts = {}
    for event in events:
        if isinstance(event, Decided) and event.reason.startswith("rung"):
            place = event.trial, event.step
            assert verdicts.setdefault(place, event.verdict) == event.verdict
