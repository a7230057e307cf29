"""A request is carried out once, in any state of the sweep and beside any other request."""

import threading

import pytest

from hposvc import api
from hposvc.driver.driver import Driver
from hposvc.errors import Busy, NotFound, SpecError
from hposvc.events import BECAUSE, MARKS, Attached, Finished, Requested, Suspended
from hposvc.journal.lease import Lease, holder
from hposvc.spec.extension import more_trials
from hposvc.verbs import steering
from hposvc.verbs.steering import steer

SPEC = {
    "name": "valley",
    "engine": {"type": "simulate", "curve": "curves:valley"},
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"min": 0.0, "max": 6.0}},
    "search": "random",
    "trials": {"max": 4, "parallel": 2},
    "budget": {"wall": "1h"},
    "tracking": {},
}
DEADLINE_S = 20.0
VERBS = ("pause", "stop", "drain", "kill", "extend", "retry")
VERBS += ("stop t", "kill t", "retry t", "exclude t", "include t")
WHY = {BECAUSE: "wrong data"}
STATES = ("QUEUED", "INTERRUPTED", "PAUSING", "STOPPING", "PAUSED", "COMPLETED", "STOPPED")


@pytest.fixture
def sweeps(tmp_path, monkeypatch):
    monkeypatch.setattr("hposvc.tracking.mlflow_server.MOST_SIMULATED", 0)
    monkeypatch.setattr(steering, "HEEDED_S", 0.1)
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    return api.Sweeps.open(tmp_path)


def begun(sweeps, name="s", **changes):
    return api.create(sweeps, api.validate({**SPEC, **changes}, {}), name)


def events(sweeps, name="s"):
    return [event for _, event in sweeps.journal.read(name)]


def requests(sweeps, name="s"):
    return [request for _, request in sweeps.journal.requests(name)]


def within(action, *arguments):
    """Return the result of an action, or the error that it raises; fail after the deadline."""
    outcomes = []

    def act():
        try:
            outcomes.append(action(*arguments))
        except (NotFound, SpecError, Busy) as error:
            outcomes.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert outcomes, f"{arguments} did not return"
    return outcomes[0]


def bring(sweeps, state, name="s"):
    """Create a sweep in this state, without a driver."""
    row = begun(sweeps, name)
    if state == "QUEUED":
        return
    if sweeps.journal.find("model") is None:
        api.drive(sweeps, begun(sweeps, "model"))
    history = events(sweeps, "model")
    first_half = history[: len(history) // 2]
    now = first_half[-1].time
    later = {
        "INTERRUPTED": [],
        "PAUSING": [Requested(now, "pause")],
        "STOPPING": [Requested(now, "stop")],
        "PAUSED": [Requested(now, "pause"), Suspended(now)],
        "COMPLETED": history[len(first_half) :],
        "STOPPED": [Requested(now, "stop"), Finished(now, "STOPPED", "user")],
    }
    sweeps.journal.append(row.id, 0, [*first_half, *later[state]])


def ask(sweeps, asked, name="s"):
    verb, _, trial = asked.partition(" ")
    changes = {"extend": more_trials({}, 1), "exclude": WHY}.get(verb, {})
    return within(steer, sweeps, name, verb, "t0001" if trial else None, changes)


@pytest.mark.parametrize("state", STATES)
def test_every_verb_returns_and_is_heeded_once(sweeps, state):
    for asked in VERBS:
        bring(sweeps, state, asked.replace(" ", "-"))
        heed(sweeps, state, asked, asked.replace(" ", "-"))


def heed(sweeps, state, asked, name):
    verb, _, trial = asked.partition(" ")
    for _ in range(2):  # as if by two people
        answer = ask(sweeps, asked, name)
        assert holder(sweeps.journal.store, name).state == "none"
        if isinstance(answer, NotFound):
            assert verb == "retry" or state == "QUEUED"
            assert requests(sweeps, name) == []
            continue
        if verb in ("stop", "kill", "pause") and not trial:
            # A sweep that has ended, or is stopping, is not paused.
            ends = verb != "pause" or state in ("STOPPING", "STOPPED")
            wanted = "STOPPED" if ends else "PAUSED"
            assert answer.state == ("COMPLETED" if state == "COMPLETED" else wanted)
            assert requests(sweeps, name) == []
        if verb == "exclude":
            assert api.load(sweeps, name).state.excluded == {"t0001": "wrong data"}
            assert requests(sweeps, name) == []
    record = within(api.drive, sweeps, sweeps.find(name))
    if verb in MARKS and state != "QUEUED":  # once, though asked for twice; an include of nothing
        asked = [event for event in events(sweeps, name) if isinstance(event, Requested)]
        assert sum(event.verb in MARKS for event in asked) == (verb == "exclude")
    assert record.state.finished
    assert requests(sweeps, name) == []
    if verb == "extend":
        assert len(record.state.trials) == 6


def test_extensions_by_two_people_add_up(sweeps):
    api.drive(sweeps, begun(sweeps))
    for _ in range(2):
        steer(sweeps, "s", "extend", None, more_trials({}, 1))
    assert len(api.drive(sweeps, sweeps.find("s")).state.trials) == 6
    asked = [event for event in events(sweeps) if isinstance(event, Requested)]
    assert [event.changes for event in asked] == [{"trials.max": 5}, {"trials.max": 6}]


class AtTheEnd:
    """A watcher that makes a request with the sweep's last event, while its driver still runs."""

    def __init__(self, sweeps, verb, changes, trial=None):
        self.sweeps, self.verb, self.changes, self.trial = sweeps, verb, changes, trial
        self.answer = None

    def on_events(self, state, written):
        over = any(isinstance(event, Finished | Suspended) for event in written)
        if over and self.answer is None:
            self.answer = within(steer, self.sweeps, "s", self.verb, self.trial, self.changes)


def test_an_extension_at_a_driver_s_last_moment_is_taken_by_it(sweeps):
    late = AtTheEnd(sweeps, "extend", more_trials({}, 2))
    record = api.drive(sweeps, begun(sweeps), [late])
    assert late.answer.driver == "alive"
    assert (record.state.state, len(record.state.trials)) == ("COMPLETED", 6)
    assert requests(sweeps) == []


def test_an_exclusion_at_a_driver_s_last_moment_is_carried_out_by_it(sweeps):
    late = AtTheEnd(sweeps, "exclude", WHY, "t0002")
    record = api.drive(sweeps, begun(sweeps), [late])
    assert late.answer.driver == "alive"
    assert (record.state.state, record.state.excluded) == ("COMPLETED", {"t0002": "wrong data"})
    assert requests(sweeps) == []


@pytest.mark.parametrize("verb", ["stop", "pause"])
def test_an_end_requested_too_late_is_forgotten(sweeps, verb):
    late = AtTheEnd(sweeps, verb, {})
    assert api.drive(sweeps, begun(sweeps), [late]).state.state == "COMPLETED"
    assert requests(sweeps) == []


def test_the_driver_that_is_named_is_the_one_at_work(sweeps):
    bring(sweeps, "INTERRUPTED")
    [before] = [event.driver for event in events(sweeps) if isinstance(event, Attached)]
    lease = Lease(sweeps.journal.store, "s")
    lease.acquire()
    with sweeps.journal.store.writing() as connection:
        connection.exec_driver_sql("UPDATE leases SET host = 'elsewhere', pid = 7")
    answer = steer(sweeps, "s", "stop")
    assert (answer.driver, answer.place) == ("alive", "elsewhere:7")
    assert before != answer.place


def test_ending_a_sweep_without_a_driver_takes_no_extension(sweeps):
    """Ending a sweep takes no slots, so an extension would wait for ever."""
    bring(sweeps, "INTERRUPTED")
    sweeps.journal.request("s", "stop")

    class Extend:
        asked = False

        def on_events(self, state, written):
            if not self.asked:
                self.asked = True
                sweeps.journal.request("s", "extend", None, {"trials.max": "+1"})

    row = sweeps.journal.find("s")
    within(Driver(sweeps.home, sweeps.journal, row, watchers=[Extend()]).end)
    assert api.load(sweeps, "s").state.spec.trials.max == 5
    assert len(within(api.drive, sweeps, sweeps.find("s")).state.trials) == 5
    assert requests(sweeps) == []
