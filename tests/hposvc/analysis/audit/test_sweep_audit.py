"""Audits of whole sweeps: each line states a fact of the journal."""

import pytest
from simulated_sweeps import Lab, make_spec

from hposvc.analysis.audit import of_sweep
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal


@pytest.fixture
def lab(tmp_path):
    return Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)


def whats(lines):
    return [line.what for line in lines]


def test_a_sweep_s_own_decisions_are_told(lab):
    spec = make_spec()
    state = lab.run(spec)
    lines = of_sweep(spec, lab.events())
    assert whats(lines) == ["driven", "closed", "finished"]
    assert lines[1].detail["reason"] == "trials"
    assert lines[2].detail == {"state": "COMPLETED", "reason": state.reason, "best": state.best}
