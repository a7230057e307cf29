import math
import threading

import pytest

from hposvc import api
from hposvc.errors import NotFound
from hposvc.events import Attached, Finished, Proposed, Reported
from hposvc.operations import event_log

SPEC = {
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"min": 0.0, "max": 1.0}, "width": 64},
    "trials": {"max": 1},
    "engine": {"type": "simulate", "curve": "curves:valley"},
}


@pytest.fixture
def sweeps(tmp_path):
    sweeps = api.Sweeps.open(tmp_path)
    api.create(sweeps, api.validate(SPEC, {}), "mine")
    return sweeps


def test_events_come_after_a_number_with_texts_for_what_json_has_not(sweeps):
    assert event_log.events(sweeps, "mine") == {"events": [], "next": 0, "over": False}
    trial = Proposed(1.5, "t0001", {"x": 0.5}, {}, 3)
    told = Reported(2.0, 1, "t0001", 1, {"loss": math.nan, "speed": math.inf})
    sweeps.journal.append("mine", 0, [trial, told])
    page = event_log.events(sweeps, "mine", since=1)
    (event,) = page["events"]
    assert (event["seq"], event["kind"], event["time"]) == (2, "reported", 2.0)
    assert event["data"]["metrics"] == {"loss": "NaN", "speed": "Infinity"}
    assert (page["next"], page["over"]) == (2, False)
    with pytest.raises(NotFound):
        event_log.events(sweeps, "other")


def test_a_wait_ends_with_the_first_event_and_with_the_sweep(sweeps):
    timer = threading.Timer(
        0.3, sweeps.journal.append, ("mine", 0, [Attached(1.0, "here:1", False)])
    )
    timer.start()
    assert event_log.events(sweeps, "mine", wait_s=60)["next"] == 1
    timer.join()
    sweeps.journal.append("mine", 1, [Finished(2.0, "STOPPED", "user")])
    page = event_log.events(sweeps, "mine", since=2, wait_s=60)
    assert (page["events"], page["over"]) == ([], True)
