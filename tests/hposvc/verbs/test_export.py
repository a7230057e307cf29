"""`hposvc export`: tables for other tools, and a schedule as a spec that `hposvc run` accepts."""

import json
import shutil

import optuna
import pandas as pd
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from ruamel.yaml import YAML
from simulated_sweeps import make_spec

from hposvc import api, load

PBT = {"type": "pbt", "interval": 1, "quantile": 0.5, "mutate": {"lr": {}}}
NOWHERE = {"send_to": []}  # a table is made of the journal, whatever tracks the sweep


def test_the_exported_schedule_runs(hposvc, sweeps, tmp_path):
    spec = make_spec(scheduler=PBT, trials={"max": 4, "parallel": 2}, tracking=NOWHERE)
    row = api.create(sweeps, spec, "group")
    record = api.drive(sweeps, row)
    assert any(trial.parent for trial in record.trials())
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


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A home with a sweep with texts, numbers and formulas among its values, and its result."""
    home = tmp_path_factory.mktemp("ended") / "home"
    parameters = {
        "lr": {"min": 1e-4, "max": 1.0, "log": True},
        "width": {"values": [1, "auto"]},
        "note": "=1+1",
    }
    spec = make_spec(parameters=parameters, trials={"max": 4}, tracking=NOWHERE)
    sweeps = api.Sweeps.open(home)
    return home, api.drive(sweeps, api.create(sweeps, spec, "mixed"))


@pytest.fixture
def mixed(ended, hposvc, tmp_path):
    """The result of that sweep, which a copy of its home has too."""
    home, result = ended
    shutil.copytree(home, tmp_path / "home")
    return result


@pytest.mark.parametrize(
    ("form", "which"), [("csv", "trials"), ("json", "curves"), ("parquet", "trials")]
)
def test_tables_are_those_of_python(hposvc, mixed, tmp_path, form, which):
    file = tmp_path / f"table.{form}"
    code, out, err = hposvc("export", "mixed", "--out", file, *["--curves"] * (which == "curves"))
    assert (code, out) == (0, ""), err
    assert f"{file} is written" in err
    table = getattr(pd, f"read_{form}")(file)
    expected = getattr(load("mixed", tmp_path / "home"), which)()
    assert [*table.columns] == [*expected.columns]
    assert len(table) == len(expected) > 3
    name = "value" if which == "trials" else "loss"
    assert table[name].tolist() == pytest.approx(expected[name].tolist())
    if which == "trials":
        assert [str(value) for value in table["width"]] == [
            str(value) for value in expected["width"]
        ]
        assert {*table["note"]} == {"'=1+1" if form == "csv" else "=1+1"}


def test_what_goes_to_stdout(hposvc, mixed):
    code, out, _ = hposvc("export", "mixed")
    assert code == 0
    assert out.startswith("trial,state,reason,value,")
    rows = json.loads(hposvc("export", "mixed", "-o", "json").out)
    assert [row["trial"] for row in rows] == [*mixed.state.trials]


def test_a_format_that_is_not_there_is_refused(hposvc, mixed, tmp_path):
    code, _, err = hposvc("export", "mixed", "--out", tmp_path / "trials.parquett")
    assert code == 2
    assert "did you mean 'parquet'" in err
    code, _, err = hposvc("export", "mixed", "--schedule", "--curves")
    assert code == 2
    assert "leave out --format and --curves" in err
    assert [*tmp_path.glob("trials*")] == []


def test_a_sweep_without_trials_is_an_empty_table(hposvc, sweeps):
    api.create(sweeps, make_spec(), "empty")
    code, out, _ = hposvc("export", "empty")
    assert (code, out.count("\n")) == (0, 1)
    assert json.loads(hposvc("export", "empty", "--curves", "--format", "json").out) == []


def storage_in(file):
    """Return Optuna's storage in a file, opened as Optuna's own programs do."""
    if file.suffix == ".db":
        return f"sqlite:///{file}"
    return JournalStorage(JournalFileBackend(f"{file}"))


@pytest.mark.parametrize("name", ["studies.db", "studies.log"])
def test_a_study_is_one_of_optuna(hposvc, mixed, sweeps, tmp_path, name):
    file = tmp_path / name
    code, out, err = hposvc("export", "mixed", "--format", "optuna", "--out", file)
    assert (code, out) == (0, ""), err
    assert f"{file} is written" in err
    study = optuna.load_study(study_name="mixed", storage=storage_in(file))
    assert study.best_value == mixed.state.trials[mixed.state.best].value
    assert [trial.user_attrs["hposvc:trial"] for trial in study.trials] == [*mixed.state.trials]
    reports = sum(len(trial.intermediate_values) for trial in study.trials)
    assert reports == len(load("mixed", tmp_path / "home").curves())
    spec = make_spec(trials={"max": 2}, tracking=NOWHERE)
    api.drive(sweeps, api.create(sweeps, spec, "other"))
    assert hposvc("export", "other", "--out", file).code == 0  # the ending says it
    assert {*optuna.get_all_study_names(storage_in(file))} == {"mixed", "other"}


def test_a_study_that_is_there_is_left_as_it_is(hposvc, mixed, tmp_path):
    file = tmp_path / "study.db"
    assert hposvc("export", "mixed", "--out", file).code == 0
    study = optuna.load_study(study_name="mixed", storage=storage_in(file))
    study.add_trial(study.trials[0])
    code, _, err = hposvc("export", "mixed", "--out", file)
    assert code == 2
    assert f"{file} has a study mixed already" in err
    assert len(study.trials) == len(mixed.state.trials) + 1


def test_a_study_needs_a_file_of_its_kind(hposvc, mixed, tmp_path):
    code, _, err = hposvc("export", "mixed", "--format", "optuna")
    assert code == 2
    assert "give --out FILE.db or FILE.log" in err
    code, _, err = hposvc("export", "mixed", "--format", "optuna", "--out", tmp_path / "study.txt")
    assert code == 2
    assert "a study is written to FILE.db or FILE.log" in err
    code, _, err = hposvc("export", "mixed", "--curves", "--out", tmp_path / "study.db")
    assert code == 2
    assert "leave out --curves" in err
    assert [*tmp_path.glob("study*")] == []
