"""Compression of ended sweeps' events, beside drivers that may begin at any moment."""

from pathlib import Path

import pytest
from simulated_sweeps import Lab, make_spec

from hposvc import api
from hposvc import spec as specs
from hposvc.journal.lease import Lease
from hposvc.operations import gc
from hposvc.operations.gc import compress
from trainables.runtime.assignment import log_file


@pytest.fixture
def sweeps(tmp_path, monkeypatch):
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    opened = api.Sweeps.open(tmp_path / "home")
    row = api.create(opened, make_spec(), "valley")
    Lab(opened.journal, tmp_path).run(specs.restore(row.spec), "valley")
    return opened


def test_a_sweep_with_a_driver_is_left_to_it(sweeps):
    before = list(sweeps.journal.read("valley"))
    lease = Lease(sweeps.journal.store, "valley")
    lease.acquire()
    try:
        assert compress(sweeps, "valley") is None
    finally:
        lease.release()
    assert list(sweeps.journal.read("valley")) == before


def test_logs_of_ended_sweeps_go_on_request_but_those_of_the_best_and_of_failed_trials(tmp_path):
    sweeps = api.Sweeps.open(tmp_path)
    spec = make_spec(
        engine={"type": "simulate", "curve": "curves:torn"},
        parameters={"x": {"values": [1, 2, 3, 4]}},
        search="grid",
        trials={"max": 4},
        tracking={"send_to": []},
    )
    row = api.create(sweeps, spec, "mine")
    logs = sweeps.home.folder("mine", None) / "logs"
    state = api.drive(sweeps, row).state
    for trial in state.trials:
        log = log_file(logs.parent, trial, 1, 0)
        log.parent.mkdir(parents=True)
        log.write_text("hello")
        (log.parent / "mine.txt").touch()
    [failed] = [trial.id for trial in state.trials.values() if trial.state == "FAILED"]
    kept = {state.best, failed}
    assert gc.collect(sweeps).items == []
    freed = gc.collect(sweeps, logs=True).items
    assert {item.what for item in freed} == {"log"}
    assert {Path(item.path).parent.name for item in freed} == state.trials.keys() - kept
    assert {path.parent.name for path in logs.glob("*/1-0.log")} == kept
    assert len([*logs.glob("*/mine.txt")]) == 4
