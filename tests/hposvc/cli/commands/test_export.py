"""`hposvc export`: it writes a spec to stdout that `hposvc run` accepts."""

import json
import sys

import pytest
from ruamel.yaml import YAML
from simulated_sweeps import make_spec

from hposvc import api
from hposvc.cli.main import main

PBT = {"type": "pbt", "interval": 1, "quantile": 0.5, "mutate": {"lr": {}}}


@pytest.fixture
def hposvc(tmp_path, monkeypatch, capfd):
    """Return a function that runs the command line here: exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))

    def run(*arguments):
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        return left.value.code or 0, *capfd.readouterr()

    return run


@pytest.fixture
def sweeps(hposvc, tmp_path):
    return api.Sweeps.open(tmp_path / "home")


def test_the_exported_schedule_runs(hposvc, sweeps, tmp_path):
    row = api.create(sweeps, make_spec(scheduler=PBT, trials={"max": 4, "parallel": 2}), "group")
    record = api.drive(sweeps, row)
    assert any(trial["parent"] for trial in record.trials())
    code, out, _ = hposvc("export", "group", "--schedule")
    assert code == 0
    assert out.startswith(f"# The schedule of {record.state.best}, the best trial of group: loss ")
    (tmp_path / "again.yaml").write_text(out)
    code, _, err = hposvc("run", tmp_path / "again.yaml", "--id", "again")
    assert code == 0, err
    orders = [event.order for _, event in sweeps.journal.read("again") if event.kind == "ordered"]
    shifts = YAML(typ="safe", pure=True).load(out)["scheduler"]["schedule"]
    assert [order.first for order in orders] == [1, *(shift["after"] + 1 for shift in shifts)]
    assert orders[-1].params == record.state.trials[record.state.best].params
    code, out, _ = hposvc("export", "group", "--schedule", "-o", "json")
    assert json.loads(out)["scheduler"]["schedule"] == shifts


def test_a_sweep_without_a_value_has_no_schedule(hposvc, sweeps):
    api.create(sweeps, make_spec(), "empty")
    code, out, err = hposvc("export", "empty", "--schedule")
    assert (code, out) == (4, "")
    assert "empty: no trial has a value, so there is no schedule" in err
    assert hposvc("export", "nobody", "--schedule")[0] == 4


def test_an_export_of_the_whole_sweep_is_not_there_yet(hposvc, sweeps):
    api.create(sweeps, make_spec(), "empty")
    code, _, err = hposvc("export", "empty")
    assert code == 2
    assert "not there yet" in err
