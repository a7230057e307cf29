"""The table of the finalists."""

import re

import pytest
from replicated import FINALISTS, Seeded, text_of
from simulated_sweeps import CALLS, Lab, make_spec

from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.state import summary
from hposvc.state.estimates import estimates
from hposvc.views import replicates as view


@pytest.fixture
def lab(tmp_path):
    CALLS.clear()
    return Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)


def test_the_best_is_stated_with_its_interval(lab):
    spec = make_spec(finalists=FINALISTS)
    state = lab.run(spec, backend=Seeded)
    found = summary.best("s", state, {})
    trial, [first, second, _] = state.trials[found["trial"]], estimates(state)
    assert found["value"] == trial.value  # its own, as ever
    assert found["estimate"] == first.data()
    assert found["estimate"]["values"] == state.replicates.values(trial.id)
    text = text_of(view.result(state))
    assert re.search(rf"{first.trial} +{first.mean:.5g} ± {first.half:.2g} +4 ", text)
    assert f"{first.trial} and {second.trial} can't be told apart" in text
