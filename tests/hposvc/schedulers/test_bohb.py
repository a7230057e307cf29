"""BOHB: the brackets of Hyperband, filled by a model."""

import math

import pytest
from simulated_sweeps import Lab, make_spec

from hposvc.journal import Journal
from hposvc.schedulers.hyperband import Bohb, Hyperband
from hposvc.schedulers.scheduler import Plan
from hposvc.spec import SpecError
from hposvc.spec.rules import BLIND
from hposvc.store import Store
from searchers.methods import METHODS, load


@pytest.fixture
def lab(tmp_path):
    return Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)


@pytest.mark.parametrize("search", ["gp", "tpe"])
def test_bracket_two_is_proposed_from_what_bracket_one_found(lab, search):
    """The same sweep on two slopes: the model goes where the losses were low in bracket one."""
    lows = []
    for curve in ("falling", "rising"):
        spec = make_spec(
            scheduler="bohb",
            search={"method": search},
            trials={"max": 14, "parallel": 1},
            engine={"type": "simulate", "curve": f"hyperband_reference:{curve}"},
        )
        trials = list(lab.run(spec, curve).trials.values())
        second = sorted(math.log10(trial.params["lr"]) for trial in trials[9:])
        lows.append(second[2])
    assert lows[1] < -3.5 < -2.5 < lows[0]


def test_bohb_without_a_model_is_refused():
    for method in BLIND:
        with pytest.raises(SpecError, match=f"{method}, but scheduler bohb is .* choose gp, tpe"):
            make_spec(scheduler="bohb", search=method)
    assert {name for name in METHODS if not load(name).uses_results} == set(BLIND)
    assert make_spec(scheduler="bohb", search="auto").scheduler.name == "bohb"
    assert Bohb(eta=4).scheduler(Plan(1, 16)).kinds == Hyperband(eta=4).scheduler(Plan(1, 16)).kinds
