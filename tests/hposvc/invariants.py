"""What holds of every journal of a sweep that came to its end."""

from collections import Counter

from simulated_sweeps import fold

from hposvc.events import Attached, Decided, Ended, Failed, Finished, Ordered, Reported


def check(spec, events):
    """The state at the end, once all of it was looked at."""
    state = fold(spec, events)
    assert state.finished
    assert isinstance(events[-1], Finished)
    if state.closed in ("trials", None):
        assert len(state.trials) == spec.trials.max
    assert all(trial.over for trial in state.trials.values())
    assert not state.orders
    assert sum(state.counts.values()) == len(state.trials)
    check_orders(events)
    check_reports(spec, events)
    check_verdicts(events)
    return state


def check_orders(events):
    """Each order is over once: it ended, it failed, or the next driver found it lost."""
    out = {}
    for event in events:
        if isinstance(event, Ordered):
            order = event.order
            assert order.id not in out
            assert order.trial not in out.values()
            assert order.first <= order.until
            out[order.id] = order.trial
        elif isinstance(event, Ended | Failed):
            assert out.pop(event.order) == event.trial
        elif isinstance(event, Attached):
            out.clear()
    assert not out


def check_reports(spec, events):
    """Each step of a trial stands once, and no order starts beyond what was reported."""
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
            else:  # the recipient keeps its own clock
                assert order.start is not None
    for trial in fold(spec, events).trials.values():
        assert [step for step, _ in trial.curve] == list(range(1, trial.step + 1))


def check_verdicts(events):
    """No trial is told to go on and to stop at the same milestone."""
    verdicts = {}
    for event in events:
        if isinstance(event, Decided) and event.reason.startswith("rung"):
            place = event.trial, event.step
            assert verdicts.setdefault(place, event.verdict) == event.verdict
