"""A driver whose wall clock jumps: durations are those of the monotonic clock."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from jumping_clock import JumpingClock, Missing

from hposvc import api
from hposvc.backends.backend import Setting
from hposvc.events import RetryDue
from hposvc.journal.home import Home

ROOT = Path(__file__).parents[3]
TRAIN = """
import os, struct, time
from pathlib import Path

def train(params, worker):
    for step in worker.steps():
        time.sleep(0.3)  # longer than the driver's look at its limits
        with open(os.environ["CLOCK_SHIFT"], "r+b") as file:
            file.write(struct.pack("d", float(os.environ["SHIFT"])))
        lost = Path(os.environ["HPOSVC_HOME"], f"lost-{params['x']}-{step}")
        if os.environ.get("LOSES") and step == 2 and len(list(lost.parent.glob("lost-*"))) < 3:
            lost.with_name(f"{lost.name}-{time.monotonic()}").touch()
            raise OSError(5, "Input/output error")
        worker.report(step, {"loss": params["x"]})
"""
HOUR_S = 3600.0


@pytest.fixture
def run(tmp_path):
    """Run a sweep whose clock jumps in its first step; return it as its journal has it."""
    try:
        clock = JumpingClock(tmp_path)
    except Missing as error:
        pytest.skip(str(error))

    def run(shift_s, changes, **variables):
        (tmp_path / "jumps.py").write_text(TRAIN)
        document = {
            "trainable": "jumps.py:train",
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"x": {"min": 0.0, "max": 1.0}},
            "fidelity": {"max": 3},
            "trials": {"max": 3},
            "search": "random",
            "engine": "local",
            "tracking": {"send_to": []},
            **changes,
        }
        spec = tmp_path / "spec.json"
        spec.write_text(json.dumps(document))
        home = tmp_path / "home"
        environment = {**os.environ, **clock.variables, **variables, "SHIFT": str(shift_s)}
        environment |= {"HPOSVC_HOME": str(home), "HPOSVC_REPORT": "off", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "hposvc", "run", str(spec), "--id", "c"]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=400, env=environment
        )
        assert done.returncode == 0, done.stderr
        sweeps = api.Sweeps(Home.of(home, {}), Home.of(home, {}).journal())
        return api.load(sweeps, "c").state, [event for _, event in sweeps.journal.read("c")]

    return run


def test_a_clock_that_is_set_forward_ends_nothing(run):
    state, _ = run(5 * HOUR_S, {"budget": {"wall": "1h"}, "failure": {"timeout": 600}})
    assert state.trials.counts["COMPLETED"] == 3
    assert state.elapsed_s < HOUR_S


def test_a_clock_that_is_set_back_lifts_no_budget_and_puts_off_no_retry(run):
    changes = {"budget": {"wall": "8s"}, "trials": {"max": 500}}
    state, events = run(-3 * HOUR_S, changes, LOSES="yes")
    assert (state.state, state.reason) == ("COMPLETED", "budget")
    assert any(isinstance(event, RetryDue) for event in events)
    assert all(before.time <= after.time for before, after in pairwise(events))


def test_a_driver_s_time_is_never_before_the_last_event(tmp_path):
    ahead = Setting("s", None, tmp_path, tmp_path, clock=4e9)  # recorded by a clock far ahead
    times = [ahead.now() for _ in range(3)]
    assert 4e9 <= times[0] <= times[1] <= times[2] < 4e9 + HOUR_S
