"""Trials and sweeps know what energy they used; where nothing measures it, they say why.

If these fail, a sweep that goes by energy runs on for ever, or finds trials cheap that are not.
"""

import os
import sys

import pytest
from powercap import make_tree, used_kwh
from simulated_sweeps import make_spec

from hposvc import api
from hposvc.analysis.audit import explain
from hposvc.analysis.findings import why
from hposvc.events import Reported
from hposvc.journal.home import Home
from hposvc.open_sweep import OpenSweep
from hposvc.views.formatting import why_ended
from trainables.monitoring import energy

JOULES = [3600, 7200, 10800]
ENERGY = {"name": "energy_kwh", "goal": "minimize"}
PROGRAM = """
import sys
import hposvc, powercap
for step in range(1, 4):
    powercap.burn(float(sys.argv[1]))
    hposvc.report({"loss": 1 / step}, step=step)
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A machine with a package, as this process and those that it starts see it."""
    folder = make_tree(tmp_path / "powercap")
    monkeypatch.setenv(energy.POWERCAP, f"{folder}")
    energy.meter.cache_clear()
    yield folder
    energy.meter.cache_clear()


def burn(home, **sections):
    """Run a sweep of three trials that use energy, and return its record and reports."""
    spec = make_spec(
        **{
            "trainable": "powercap:burning",
            "engine": "local",
            "parameters": {"joules": {"values": JOULES, "ordered": True}},
            "search": "grid",
            "fidelity": {"max": 3},
            "trials": {"max": 3, "parallel": 1},
            "tracking": {"send_to": []},
            "price": {"co2_kg_per_kwh": 0.5},
            **sections,
        }
    )
    sweeps = api.Sweeps(home, home.journal())
    row = api.create(sweeps, spec, f"burnt-{abs(hash(str(sections)))}")
    record = api.drive(sweeps, row)
    events = [event for _, event in sweeps.journal.read(row.id)]
    return record, [event for event in events if isinstance(event, Reported)]


def check(record, reports):
    """Check that reports, trials and sweep agree, and come to no more than the package used."""
    state, status = record.state, record.status()
    assert state.state == "COMPLETED", record.failures()
    trials = record.trials()
    for trial in trials:
        curve = [one.metrics["energy_kwh"] for one in reports if one.trial == trial.trial]
        assert curve == sorted(curve)
        assert 0 < curve[-1] <= trial.energy_kwh * (1 + 1e-12)  # which is summed another way
    assert status.energy_kwh == pytest.approx(sum(trial.energy_kwh for trial in trials))
    assert status.energy_kwh <= used_kwh(os.environ[energy.POWERCAP]) * (1 + 1e-12)
    assert status.co2_kg == pytest.approx(0.5 * status.energy_kwh)
    assert status.unmeasured == ""


def test_a_front_of_loss_and_energy(tmp_path, tree):
    loss = {"name": "loss", "goal": "minimize"}
    record, reports = burn(Home.of(tmp_path / "home"), metric=None, metrics=[loss, ENERGY])
    check(record, reports)
    assert [trial.value[1] for trial in record.trials()] == [
        reports[number].metrics["energy_kwh"] for number in (2, 5, 8)
    ]
    [cost] = [one for one in why("s", record.state, ()) if one.topic == "cost"]
    assert " kWh, " in cost.sentence or " Wh, " in cost.sentence
    assert cost.sentence.endswith(" kg CO2.")


def test_a_trial_that_is_tried_again_goes_on_counting(tmp_path, tree):
    params = {"joules": {"values": JOULES, "ordered": True}, "fails": 1}
    failing = {"parameters": params, "failure": {"user_retries": 1}}
    record, reports = burn(Home.of(tmp_path / "home"), **failing)
    check(record, reports)
    assert [trial.attempts for trial in record.trials()] == [2, 2, 2]
    for trial in record.trials():
        [second] = [one for one in reports if one.trial == trial.trial and one.step == 3]
        assert second.metrics["energy_kwh"] > second.energy_kwh, "it is that of the second attempt"


def test_programs_count_and_a_limit_on_their_energy_holds(tmp_path, tree, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    (tmp_path / "burn.py").write_text(PROGRAM)
    command = [sys.executable, f"{tmp_path / 'burn.py'}", "${joules}"]
    sections = {"trainable": None, "command": command, "limits": ["energy_kwh <= 1e-9"]}
    record, reports = burn(Home.of(tmp_path / "home"), **sections)
    assert len(reports) == 9
    assert [trial.kept for trial in record.trials()] == [False] * 3
    assert record.state.reason == "no trial keeps the limits"


def test_a_budget_of_energy_ends_the_sweep_and_the_audit_says_so(tmp_path, tree):
    home = Home.of(tmp_path / "home")
    record, _ = burn(home, budget={"energy_kwh": 1e-9}, fidelity={"max": 1000})
    assert (record.state.state, record.state.reason) == ("COMPLETED", "budget")
    assert [trial.reason for trial in record.trials()] == ["budget"]
    assert why_ended(record.state) == "budget.energy_kwh is used up"
    lines = explain(OpenSweep(api.Sweeps(home, home.journal()), record.row.id)).lines
    assert any("budget.energy_kwh is used up" in f"{line}" for line in lines)


@pytest.mark.parametrize(
    "sections",
    [
        {"metric": ENERGY},
        {"limits": ["energy_kwh <= 1"]},
        {"budget": {"energy_kwh": 1}},
        {"stop": {"worth": {"gain": 1, "energy_kwh": 1}}},
    ],
)
def test_a_sweep_that_goes_by_energy_fails_at_once_where_nothing_measures_it(
    tmp_path, tree, monkeypatch, sections
):
    monkeypatch.setenv(energy.POWERCAP, f"{tmp_path}")
    record, reports = burn(Home.of(tmp_path / "home"), **sections)
    assert (record.state.state, reports) == ("FAILED", [])
    missing = f"which is not measured here: processors (no RAPL in {tmp_path})"
    assert missing in record.state.reason


def test_other_sweeps_say_why_nothing_is_measured(tmp_path, tree, monkeypatch):
    monkeypatch.setenv(energy.POWERCAP, f"{tmp_path}")
    monkeypatch.setattr("powercap.burn", lambda joules: None)
    record, reports = burn(Home.of(tmp_path / "home"))
    status = record.status()
    assert (status.energy_kwh, status.co2_kg) == (None, None)
    assert status.unmeasured == f"processors (no RAPL in {tmp_path})"
    assert not any("energy_kwh" in report.metrics for report in reports)


@pytest.mark.ranks
@pytest.mark.long
def test_the_ranks_of_a_trial_count_together(tmp_path, tree):
    check(*burn(Home.of(tmp_path / "home"), resources={"workers": 2, "cpus_per_worker": 0.5}))


@pytest.mark.long
@pytest.mark.parametrize(("engine", "workers"), [("ray", 1), ("ray", 2), ("tune", 1)])
def test_so_they_do_on_ray(tree, home_with_ray, engine, workers):
    resources = {"workers": workers, "cpus_per_worker": 0.5}
    check(*burn(Home.of(home_with_ray), engine=engine, resources=resources))
