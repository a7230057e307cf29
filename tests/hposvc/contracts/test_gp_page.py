"""explanation/gp.md: its specs run as they stand there, and its tables are those of the code."""

import re
from dataclasses import fields

import pages
import pytest
from ruamel.yaml import YAML
from simulated_sweeps import make_spec

from hposvc import api
from searchers.gp.searcher import GaussianProcess

PAGE = pages.read("explanation/gp.md")
BLOCKS = pages.blocks("explanation/gp.md", "yaml")
SPECS = [YAML(typ="safe", pure=True).load(block) for block in BLOCKS]
CURVE = """
import math

def bowl(params, step):
    rate = params.get("lr", params.get("a1"))
    loss = (math.log10(rate) + 3) ** 2 + params.get("dropout", 0.1)
    return {"loss": loss + 1 / step, "speed": -rate, "latency_ms": 30 * rate**0.1}, 1.0 + rate
"""
SPACE = {
    "lr": {"min": 1e-5, "max": 1e-1, "log": True},
    "batch": {"values": [32, 64, 128], "ordered": True},
    "layers": {"min": 1, "max": 4, "type": "int"},
    "dropout": {"min": 0.0, "max": 0.6},
    "optimizer": {"values": ["sgd", "adamw"]},
}
TREES = {  # trials of this family begin with what was good on other data
    "lr": {"min": 1e-5, "max": 1.0, "log": True},
    "max_depth": {"min": 1, "max": 12},
    "subsample": {"min": 0.2, "max": 1.0},
    "n_estimators": {"min": 10, "max": 200},
    "optimizer": {"values": ["exact", "approx"]},
}
SEVERAL = {
    "metric": None,
    "metrics": [{"name": "loss", "goal": "minimize"}, {"name": "speed", "goal": "maximize"}],
}
LIMITS = {"limits": ["latency_ms <= 20"]}
ASHA = {"scheduler": {"type": "asha", "eta": 3}}
OPTIONS = {"method": "gp", "per_second": True, "priors": {"lr": {"value": 1e-4, "width": 0.1}}}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a sweep and returns its state; sweeps share a home."""
    (tmp_path / "gp_page.py").write_text(CURVE)
    monkeypatch.syspath_prepend(tmp_path)
    sweeps = api.Sweeps.open(tmp_path)

    def to_the_end(**sections):
        spec = make_spec(
            **{
                "parameters": SPACE,
                "engine": {"type": "simulate", "curve": "gp_page:bowl"},
                "trials": {"max": 15, "parallel": 1},
                "search": {"method": "gp"},
                "warm_start": None,
                "tracking": {"send_to": ["json_lines"]},  # MLflow takes seconds to begin
                **sections,
            }
        )
        return api.drive(sweeps, api.create(sweeps, spec)).state

    return to_the_end


def sources(state):
    return [seen.note["source"] for seen in state.history()]


def noted(state):
    """Return the names of everything that the proposals' notes and fits hold."""
    notes = [seen.note for seen in state.history()]
    return {name for note in notes for name in (*note, *note.get("fits", {}))}


@pytest.mark.full
@pytest.mark.parametrize("spec", SPECS, ids=map(str, range(len(SPECS))))
def test_a_spec_of_the_page_runs_to_its_end(spec, run):
    if "warm_start" in spec:
        run()
    state = run(**spec)
    assert state.state == "COMPLETED"
    assert state.front
    assert bool(state.earlier) == ("warm_start" in spec)
    if "roles" in spec["search"]:
        assert "learned_prior" in noted(state)
        assert "learned_prior" not in noted(run(**spec | {"search": {"method": "gp"}}))


def test_the_table_of_options_is_that_of_the_code():
    table = PAGE.partition("| option (default) |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)`(?: \(`(\w+)`\))? \| ", table, re.MULTILINE))
    assert {*rows} == {option.name for option in fields(GaussianProcess)}
    for option in fields(GaussianProcess):
        has_none = option.name in ("roles", "priors")
        default = "" if has_none else str(option.default).lower()
        assert rows[option.name] == default


def test_with_one_metric_every_option_acts(run):
    """What works together: the columns of one metric."""
    search = {**OPTIONS, "repeats": True}
    plain = run(search=search, parameters=TREES)
    early = run(search=search, parameters=TREES, **ASHA)
    for state in (plain, early):
        assert sources(state)[:4] == ["start", *["learned prior"] * 3]
        assert {"cost", "repeat_of", "loss", "learned_prior"} <= noted(state)
        assert any("tried least" in str(seen.note.get("reason")) for seen in state.history())


@pytest.mark.full
def test_with_several_metrics_the_first_trials_are_more_and_mostly_without_the_prior(run):
    state = run(search=OPTIONS, **SEVERAL)
    assert sources(state)[:11] == [*["start"] * 10, "model"]
    assert "cost" in noted(state)
    assert "learned_prior" not in noted(state)
    parallel = run(**SEVERAL, parameters=TREES, trials={"max": 8, "parallel": 4})
    assert sources(parallel)[:5] == ["start", *["learned prior"] * 3, "start"]


@pytest.mark.full
def test_earlier_sweeps_come_first_with_one_metric_and_are_rows_with_limits(run):
    run()
    # Trials of another length: what was trained in the same way would not be tried again.
    short = {"trials": {"max": 8, "parallel": 1}, "warm_start": "auto", "fidelity": {"max": 8}}
    for sections in ({}, ASHA):
        state = run(**short, **sections)
        assert sources(state)[:2] == ["earlier sweeps", "start"]
    assert sources(run(**short, **LIMITS))[0] == "model"
