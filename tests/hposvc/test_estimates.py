"""The best, stated with an interval: in numbers, for people, in MLflow."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repeated import FINALISTS, Lossy, Seeded, half_way, text_of
from scipy import stats
from simulated_sweeps import CALLS, Lab, fold, make_spec

from hposvc import spec as specs
from hposvc import summary
from hposvc.estimates import Estimate, chance, estimates
from hposvc.journal import Journal, SweepRow
from hposvc.store import Store
from hposvc.tracking.projection import PARENT, Projection
from hposvc.views import finals as view
from hposvc.views.panel import Panels


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


def test_the_best_is_stated_with_its_interval(lab):
    spec = make_spec(finalists=FINALISTS)
    state = lab.run(spec, backend=Seeded)
    found = summary.best("s", state, {})
    trial, [first, second, _] = state.trials[found["trial"]], estimates(state)
    assert found["value"] == trial.value  # its own, as ever
    assert found["estimate"] == first.data()
    assert found["estimate"]["values"] == state.finals.values(trial.id)
    text = text_of(view.result(state))
    assert re.search(rf"{first.trial} +{first.mean:.5g} ± {first.half:.2g} +4 ", text)
    assert f"{first.trial} and {second.trial} can't be told apart" in text


def test_the_panel_tells_how_far_the_finals_are(lab):
    spec = make_spec(finalists=FINALISTS)
    state = fold(spec, half_way(lab, spec))
    assert f"{state.finals.done} of 12 trainings" in text_of(Panels("s").draw(state, 1.0))
    assert "estimate" not in summary.best("s", state, {})  # before all are done
    plain = lab.run(make_spec(), "plain")
    assert "trainings" not in text_of(Panels("plain").draw(plain, 1.0))


def test_mlflow_has_repeats_in_their_trial_s_run_and_the_interval_in_the_parent_s(lab):
    spec = make_spec(finalists={"top": 2, "seeds": 2})
    state = lab.run(spec, backend=Lossy)
    projection = Projection(SweepRow("s", "s", "p", 0.0, specs.dump(spec), {}), spec)
    for event in lab.events():
        projection.apply(event)
    told = projection.take()
    for name, trial in state.trials.items():
        points = told[name].points
        assert [point.value for point in points if point.name == "loss"] == [
            value for _, value in trial.curve
        ]
        for number in (1, 2):
            mine = [(p.step, p.value) for p in points if p.name == f"final/{number}/loss"]
            repeats = state.finals.repeats.get(name)
            assert mine == ([] if repeats is None else repeats[number - 1].curve)
    found = {p.name: p.value for p in told[PARENT].points if p.name.startswith("final/")}
    estimate = summary.best("s", state, {})["estimate"]
    assert found == {f"final/{name}": estimate[name] for name in ("mean", "low", "high")}
    assert told[state.best].tags["hposvc.best"] == "true"


def test_one_value_has_no_interval():
    one = Estimate("t0001", (0.5,), ("budget",))
    assert one.data() | {"values": []} == {
        **{"mean": 0.5, "low": None, "high": None, "confidence": 0.95, "runs": 1, "values": []}
    }
    assert chance(one, Estimate("t0002", (0.1, 0.2))) is None
    assert "one value" in view.sentence([one])
