"""The table of the finalists."""

import re
from dataclasses import asdict

from printed import text_of
from replicated import FINALISTS, Seeded
from simulated_sweeps import make_spec

from hposvc.state import summary
from hposvc.state.finalists import finalist_results
from hposvc.views import replicates as view


def test_the_best_is_stated_with_its_interval(lab):
    spec = make_spec(finalists=FINALISTS)
    state = lab.run(spec, backend=Seeded)
    found = summary.best("s", state, {})
    trial, [first, second, _] = state.trials[found.trial], finalist_results(state)
    assert found.value == trial.value  # its own, as ever
    assert asdict(found.estimate) == first.data()
    assert found.estimate.values == state.replicates.values(trial.id)
    text = text_of(view.result(state))
    assert re.search(rf"{first.trial} +{first.mean:.5g} ± {first.estimate.half:.2g} +4 ", text)
    assert f"{first.trial} and {second.trial} can't be told apart" in text


def test_equal_values_of_all_runs_prove_nothing(lab):
    """A seed that never reaches the training would pass for one without noise."""
    state = lab.run(make_spec(finalists=FINALISTS))
    assert {len({*finalist.values}) for finalist in finalist_results(state)} == {1}
    text = " ".join(text_of(view.result(state)).split())
    assert "equal runs gave equal values" in text
    assert "Welch" not in text
