"""Changes of a sweep's limits."""

from dataclasses import replace

import pytest
from simulated_sweeps import make_spec

from hposvc.errors import SpecError
from hposvc.spec.extension import accepted
from hposvc.spec.stopping import Budget


def open_spec(**changes):
    sections = {"engine": None, "trials": {"max": 3, "parallel": 2}, **changes}
    return make_spec(trainable="anywhere:train", fidelity=None, **sections)


def test_it_cannot_be_made_longer():
    with pytest.raises(SpecError, match=r"fidelity\.max: can't be given .* `hposvc fork`"):
        accepted(open_spec(), {"fidelity.max": 9})


def test_a_rule_can_be_taken_away_but_not_added():
    spec = open_spec(stop=["mine:rule", "mine:other"])
    assert accepted(spec, {"stop.rules": ["mine:other"]}) == {"stop.rules": ["mine:other"]}
    assert accepted(spec, {"stop.rules": None}) == {"stop.rules": []}
    for rules in (["mine:new"], "mine:new", ["mine:rule", 3]):
        with pytest.raises(SpecError, match=r"stop\.rules: .* is no rule of this sweep; give some"):
            accepted(spec, {"stop.rules": rules})


def test_a_problem_that_the_recorded_spec_has_already_does_not_forbid_more_trials():
    recorded = replace(open_spec(), budget=Budget(wall=60.0, reserve=0.1))  # no finalists
    assert recorded.problems()
    assert accepted(recorded, {"trials.max": 9}) == {"trials.max": 9}


def test_a_problem_that_the_changes_add_is_refused():
    with pytest.raises(SpecError, match=r"^trials\.max: is missing"):
        accepted(open_spec(), {"trials.max": None})


def test_money_can_be_raised_where_a_price_is_known():
    with pytest.raises(SpecError, match=r"budget.cost: .*price.worker_hour is missing"):
        accepted(open_spec(), {"budget.cost": 50})
    priced = open_spec(price={"worker_hour": 2.5})
    assert accepted(priced, {"budget.cost": 50}) == {"budget.cost": 50}
