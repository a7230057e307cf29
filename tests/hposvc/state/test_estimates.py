"""The best, stated with an interval: in numbers, for people, in MLflow."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replicated import FINALISTS, Lossy, Seeded, half_way, text_of
from scipy import stats
from simulated_sweeps import CALLS, Lab, fold, make_spec

from hposvc import spec as specs
from hposvc.cli.options import Shared
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal, SweepRow
from hposvc.state import summary
from hposvc.state.estimates import Estimate, chance, estimates
from hposvc.tracking.projection import PARENT, Projection
from hposvc.views import replicates as view
from hposvc.views.dashboard import Panels


@pytest.fixture
def lab(tmp_path):
    CALLS.clear()
    return Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)


values = st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=2, max_size=8)


@given(values)
def test_the_interval_is_student_s(found):
    one = Estimate("t0001", tuple(found))
    data = one.data()
    if len(set(found)) == 1:
        assert data["low"] == pytest.approx(found[0]) == data["high"]
        return
    low, high = stats.t.interval(0.95, len(found) - 1, one.mean, stats.sem(found))
    assert (data["low"], data["high"]) == pytest.approx((low, high))


@pytest.mark.filterwarnings("ignore:Precision loss")  # scipy's word on values that are all equal
@given(values, values)
def test_two_finalists_are_told_apart_as_welch_does(mine, others):
    one, other = Estimate("t0001", tuple(mine)), Estimate("t0002", tuple(others))
    if len(set(mine)) == len(set(others)) == 1:
        assert chance(one, other) == (1.0 if one.mean == other.mean else 0.0)
        return
    p = stats.ttest_ind(mine, others, equal_var=False).pvalue
    assert chance(one, other) == pytest.approx(p, abs=1e-9)


def test_the_panel_tells_how_far_the_replicates_are(lab):
    spec = make_spec(finalists=FINALISTS)
    state = fold(spec, half_way(lab, spec))
    assert f"{state.replicates.done} of 12 trainings" in text_of(Panels("s").draw(state, 1.0))
    assert "estimate" not in summary.best("s", state, {})  # before all are done
    plain = lab.run(make_spec(), "plain")
    assert "trainings" not in text_of(Panels("plain").draw(plain, 1.0))


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
    estimate = summary.best("s", state, {})["estimate"]
    assert found == {f"final/{name}": estimate[name] for name in ("mean", "low", "high")}
    assert told[state.best].tags["hposvc.best"] == "true"


LARGEST = 1.7e308  # the sum of two such values is no float, nor is a square


def test_values_whose_sum_is_no_float_have_a_mean_an_interval_and_an_order():
    same, apart = Estimate("t0001", (LARGEST,) * 3), Estimate("t0002", (LARGEST, LARGEST / 2))
    assert same.data() | {"values": []} == {
        **{"mean": LARGEST, "low": LARGEST, "high": LARGEST},
        **{"confidence": 0.95, "runs": 3, "values": []},
    }
    assert apart.mean == pytest.approx(0.75 * LARGEST)
    small = [Estimate(one.trial, tuple(v / LARGEST for v in one.values)) for one in (same, apart)]
    assert chance(same, apart) == pytest.approx(chance(*small))
    assert "can't be told apart" in view.sentence([same, apart])


def test_an_interval_wider_than_floats_is_null_in_json(capsys):
    one = Estimate("t0001", (LARGEST, -LARGEST))
    assert one.mean == 0.0
    assert Shared("json").json([{"estimate": one.data()}])
    told = json.loads(capsys.readouterr().out)[0]["estimate"]
    assert (told["mean"], told["low"], told["high"]) == (0.0, None, None)


def test_the_smallest_differences_count_too():
    """A square of a value may be less than any float."""
    one, other = Estimate("t0001", (1e-200, 2e-200)), Estimate("t0002", (1.5e-200, 2.5e-200))
    again = Estimate("t0001", (1.0, 2.0)), Estimate("t0002", (1.5, 2.5))
    assert chance(one, other) == pytest.approx(chance(*again))


def test_finalists_with_the_largest_values_have_a_champion(lab):
    class Huge(Seeded):
        def _call(self, params, step):
            (metrics, left_out), seconds = super()._call(params, step)
            huge = {"loss": LARGEST * (1 - 1e-3 * abs(metrics["loss"]))}
            return (huge, left_out), seconds

    state = lab.run(make_spec(finalists=FINALISTS), backend=Huge)
    assert state.replicates.champion == estimates(state)[0].trial
