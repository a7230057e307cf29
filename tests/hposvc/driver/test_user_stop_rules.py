"""Rules of users that end a sweep. If these fail, a sweep ends too soon, or not at all."""

import numpy as np
import pytest
from simulated_sweeps import Lab, fold, make_spec

from hposvc.errors import PlugInFailed
from hposvc.events import Closed, Decided, Ended
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.views.formatting import why_ended

CALLS: list[int] = []  # the number of ended trials at each call of `noted`
HERE = __name__
WIDE = {"trials": {"max": 20, "parallel": 3}}


def ended(history):
    return sum(seen.state == "done" for seen in history)


def noted(history):
    CALLS.append(ended(history))
    history.clear()  # the list is the rule's own
    return False


def five(history):
    return ended(history) >= 5


def said(history):
    return f" five are\nenough: {ended(history)} " if ended(history) >= 5 else ""


def numpy_like(history):
    return np.bool_(ended(history) >= 5)


def quitting(history):
    raise SystemExit(3)


def failing(history):
    return history[0].no_such_field


def odd(history):
    return 5


class Patience:
    def __init__(self, most):
        self.most = most

    def __call__(self, history):
        return ended(history) >= self.most


patient = Patience(5)


def rules(*names):
    return {"stop": [f"{HERE}:{name}" for name in names]}


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


@pytest.mark.parametrize("name", ["five", "said", "numpy_like", "patient"])
def test_a_rule_ends_the_sweep_and_its_running_trials(lab, name):
    spec = make_spec(**WIDE, **rules("noted", name))
    state = lab.run(spec)
    assert (state.state, state.reason) == ("COMPLETED", "rule")
    assert state.trials.counts["COMPLETED"] >= 5
    assert len(state.trials) < 20
    cut = [event for event in lab.events() if isinstance(event, Decided) and event.whole]
    assert {event.reason for event in cut} == {"rule"}
    assert len(cut) == 2  # of which one was at its last step
    assert state.trials.counts["STOPPED"] == 1
    (closed,) = [event for event in lab.events() if isinstance(event, Closed)]
    told = f"five are enough: 5 ({HERE}:said)" if name == "said" else f"the rule {HERE}:{name}"
    assert why_ended(state) == closed.detail
    assert closed.detail.startswith(told)


def test_a_rule_is_asked_once_for_each_new_result(lab):
    spec = make_spec(trials={"max": 6, "parallel": 1}, **rules("noted"))
    assert lab.run(spec).reason == "trials"
    assert CALLS == [1, 2, 3, 4, 5, 6]


def test_a_replay_takes_the_decision_from_the_journal_and_asks_no_rule(lab):
    spec = make_spec(**WIDE, **rules("noted", "five"))
    state = lab.run(spec)
    asked = len(CALLS)
    again = fold(spec, lab.events())
    assert (again.reason, again.closed_detail) == ("rule", state.closed_detail)
    assert len(CALLS) == asked


def test_whenever_the_driver_dies_the_resumed_sweep_ends_by_the_same_rule(tmp_path, lab):
    spec = make_spec(trials={"max": 20, "parallel": 1}, **rules("five"))
    lab.run(spec)
    events = lab.events()
    last_end = max(at for at, event in enumerate(events) if isinstance(event, Ended))
    for cut in (last_end, last_end + 1, last_end + 2):
        store = Store(f"sqlite:///{tmp_path / f'{cut}.db'}")
        resumed = Lab(Journal(store), tmp_path)
        resumed.journal.append("s", 0, events[:cut], [])
        state = resumed.run(spec)
        assert (state.reason, state.trials.counts["COMPLETED"]) == ("rule", 5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("failing", "raised AttributeError: .*no_such_field"),
        ("quitting", "raised SystemExit: 3"),
        ("odd", "returns 5; return True or a text"),
    ],
)
def test_a_rule_that_breaks_is_named_and_no_result_is_lost(lab, name, message):
    spec = make_spec(trials={"max": 3, "parallel": 1}, **rules("noted", name))
    place = rf"stop\.rules .*:{name} {message}.*test_user_stop_rules\.py:\d+\); nothing is lost"
    with pytest.raises(PlugInFailed, match=place):
        lab.run(spec)
    state = fold(spec, lab.events())
    assert state.trials.counts["COMPLETED"] == 1
    with pytest.raises(PlugInFailed, match=place):  # the rule is as it was: asked at once
        lab.run(spec)
    assert fold(spec, lab.events()).trials.counts["COMPLETED"] == 1
    mended = make_spec(trials={"max": 3, "parallel": 1})
    assert lab.run(mended).trials.counts["COMPLETED"] == 3


def test_an_extended_sweep_ends_again_unless_the_rule_is_taken_away(lab):
    spec = make_spec(trials={"max": 20, "parallel": 1}, **rules("five"))
    lab.run(spec)
    lab.journal.request("s", "extend", None, {"trials.max": 21})
    state = lab.run(spec)
    assert (state.reason, len(state.trials)) == ("rule", 5)
    lab.journal.request("s", "extend", None, {"trials.max": 8, "stop.rules": []})
    state = lab.run(spec)
    assert (state.reason, state.trials.counts["COMPLETED"]) == ("trials", 8)
