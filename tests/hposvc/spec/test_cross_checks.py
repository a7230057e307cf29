"""Sections of a spec that do not go together."""

import pytest
from simulated_sweeps import make_spec

from hposvc.errors import SpecError
from hposvc.schedulers.hyperband import Bohb, Hyperband
from hposvc.schedulers.scheduler import Plan
from searchers.methods import METHODS, load_method


def test_bohb_without_a_model_is_refused():
    model_free = [name for name in METHODS if not load_method(name).uses_results]
    assert {"random", "sobol", "grid"} <= {*model_free}
    for method in model_free:
        with pytest.raises(SpecError, match=f"{method}, but scheduler bohb is .* choose gp, tpe"):
            make_spec(scheduler="bohb", search=method)
    assert make_spec(scheduler="bohb", search="auto").scheduler.name == "bohb"
    assert (
        Bohb(eta=4).scheduler(Plan(1, 16)).shapes == Hyperband(eta=4).scheduler(Plan(1, 16)).shapes
    )
