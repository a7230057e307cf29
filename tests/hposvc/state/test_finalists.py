"""The best, stated with an interval: in numbers, for people, in MLflow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replicated import Lossy
from scipy import stats
from simulated_sweeps import make_spec

from hposvc import spec as specs
from hposvc.estimate import CONFIDENCE
from hposvc.journal.journal import SweepRow
from hposvc.state import summary
from hposvc.state.finalists import FinalistResult, chance
from hposvc.tracking.projection import PARENT, Projection

values = st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=2, max_size=8)


@given(values)
def test_the_interval_is_student_s(found):
    one = FinalistResult("t0001", tuple(found))
    data = one.data()
    if len(set(found)) == 1:
        assert data["low"] == pytest.approx(found[0]) == data["high"]
        return
    low, high = stats.t.interval(CONFIDENCE, len(found) - 1, one.mean, stats.sem(found))
    assert (data["low"], data["high"]) == pytest.approx((low, high))


@pytest.mark.filterwarnings("ignore:Precision loss")  # scipy's word on values that are all equal
@given(values, values)
def test_two_finalists_are_told_apart_as_welch_does(mine, others):
    one, other = FinalistResult("t0001", tuple(mine)), FinalistResult("t0002", tuple(others))
    if len(set(mine)) == len(set(others)) == 1:
        assert chance(one, other) == (1.0 if one.mean == other.mean else 0.0)
        return
    p = stats.ttest_ind(mine, others, equal_var=False).pvalue
    assert chance(one, other) == pytest.approx(p, abs=1e-9)


def test_mlflow_has_replicates_in_their_trial_s_run_and_the_interval_in_the_parent_s(lab):
    spec = make_spec(finalists={"top": 2, "seeds": 2})
    state = lab.run(spec, backend=Lossy)
    projection = Projection(SweepRow("s", "s", "p", 0.0, specs.dump(spec), {}), spec)
    for event in lab.events():
        projection.apply(event)
    told = projection.take_entries()
    for name, trial in state.trials.items():
        points = told[name].points
        assert [point.value for point in points if point.name == "loss"] == [
            value for _, value in trial.curve
        ]
        for number in (1, 2):
            mine = [(p.step, p.value) for p in points if p.name == f"final/{number}/loss"]
            replicates = state.replicates.finalists.get(name)
            assert mine == ([] if replicates is None else replicates[number - 1].curve)
    found = {p.name: p.value for p in told[PARENT].points if p.name.startswith("final/")}
    estimate = summary.best("s", state, {}).estimate
    assert found == {f"final/{name}": getattr(estimate, name) for name in ("mean", "low", "high")}
    assert told[state.best].tags["hposvc.best"] == "true"
