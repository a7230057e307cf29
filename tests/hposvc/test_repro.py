"""A trial that is trained again: what is the same, and what the verdict says."""

import math
from dataclasses import replace

import pytest
from simulated_sweeps import CALLS, Lab, make_several, make_spec

from hposvc import api, repro
from hposvc import spec as specs
from hposvc.backends.local import Local
from hposvc.backends.simulate import Simulation
from hposvc.home import NotFound
from hposvc.reading.problems import SpecError
from hposvc.spec.ending import Budget, Stop

PBT = {"type": "pbt", "interval": 1, "quantile": 0.5, "mutate": {"lr": {}}}
DIGITS = {
    "trainable": "trainables.zoo.digits:DigitsCNN",
    "engine": "local",
    "metric": {"name": "val/loss", "goal": "minimize", "target": 1e-9},
    "fidelity": {"max": 4},
    "parameters": {
        "lr": {"min": 1e-4, "max": 1e-1, "log": True},
        **{"dropout": 0.3, "width": 8, "batch": 256},
    },
    "search": "random",
    "scheduler": {"type": "asha", "eta": 2},
    "trials": {"max": 3},
}


def jittery(params, step):
    """Its second trial to run at a step is off by what `lr` says."""
    CALLS[params["lr"], step] += 1
    return {"loss": 1 + 1 / step + params["lr"] * (CALLS[params["lr"], step] - 1)}, 1.0


@pytest.fixture
def sweeps(tmp_path, monkeypatch):
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    CALLS.clear()
    return api.Sweeps.open(tmp_path / "home")


def run(sweeps, spec, name="s"):
    """As a driver does, but MLflow is not told."""
    row = api.create(sweeps, spec, name)
    backend = Simulation if spec.engine.type == "simulate" else Local
    lab = Lab(sweeps.journal, sweeps.home.path / name)
    return lab.run(specs.restore(row.spec), name, backend)


def again(sweeps, trial, name="s"):
    before = repro.original(sweeps, name, trial, accept_code=False)
    state = run(sweeps, before.spec, before.again)
    return repro.compare(before, state), state


def jittered(by):
    engine = {"type": "simulate", "curve": "test_repro:jittery"}
    return make_spec(engine=engine, parameters={"lr": by}, trials={"max": 1})


@pytest.fixture
def importable(monkeypatch, request):
    monkeypatch.syspath_prepend(str(request.path.parent))


def test_a_stopped_trial_of_a_real_model_comes_out_equal_and_no_longer(sweeps):
    state = run(sweeps, specs.load(DIGITS))
    short = next(one for one in state.trials.values() if one.reason == "rung")
    found, once_more = again(sweeps, short.id)
    (trial,) = once_more.trials.values()
    assert (found.verdict, found.steps) == ("equal", len(short.steps))
    assert trial.steps == short.steps
    assert trial.step == short.step < 4
    assert (trial.state, trial.reason) == ("STOPPED", "until")
    assert once_more.state == "COMPLETED"
    assert once_more.spec.last_step == 4, "schedules follow the whole length"
    assert (found.difference, found.share_of_spread, found.doubts) == (0.0, None, ())


def test_a_member_of_a_population_is_trained_again_with_the_weights_that_it_copied(sweeps):
    state = run(sweeps, make_spec(scheduler=PBT, trials={"max": 4, "parallel": 2}))
    copied = next(one for one in state.trials.values() if one.parent is not None)
    found, once_more = again(sweeps, copied.id)
    (trial,) = once_more.trials.values()
    assert found.verdict == "equal"
    assert trial.steps[trial.step] == copied.steps[copied.step]


def test_several_metrics_are_all_compared(sweeps):
    state = run(sweeps, make_several(scheduler="asha", trials={"max": 4, "parallel": 2}))
    found, _ = again(sweeps, state.front[0])
    assert found.verdict == "equal"
    before = repro.original(sweeps, "s", state.front[0], accept_code=False)
    last = max(before.curve)
    first, second = before.curve[last]
    other = replace(before, curve={**before.curve, last: (first, second + 1e-12)})
    state = api.load(sweeps, f"s-repro-{state.front[0]}").state
    assert repro.compare(other, state).verdict == "within noise"


@pytest.mark.parametrize(
    ("by", "verdict"), [(1e-5, "within noise"), (1e-3, "within noise"), (0.1, "different")]
)
def test_a_trainable_that_never_does_the_same_twice(sweeps, importable, by, verdict):
    run(sweeps, jittered(by))
    found, _ = again(sweeps, "t0001")
    assert found.verdict == verdict
    assert found.difference == pytest.approx(by)
    assert (found.first_difference, found.step, found.steps) == (1, 9, 9)
    sense = "at most" if verdict == "within noise" else "more than"
    assert f"the last value differs by {sense} 0.001 of itself" in found.rule


def test_where_finalists_were_trained_again_their_deviation_is_the_noise(sweeps):
    state = run(sweeps, make_spec(trials={"max": 1}))
    before = repro.original(sweeps, "s", "t0001", accept_code=False)
    last = max(before.curve)
    off = replace(before, curve={**before.curve, last: (before.curve[last][0] + 0.3,)})
    assert repro.compare(off, state).verdict == "different"
    found = repro.compare(replace(off, deviation=0.2), state)
    assert found.verdict == "within noise"
    assert "at most two standard deviations of the finalists' repeats (0.4)" in found.rule


def test_the_difference_is_told_as_a_share_of_what_lies_between_the_trials(sweeps):
    state = run(sweeps, make_spec())
    before = repro.original(sweeps, "s", "t0001", accept_code=False)
    values = [one.value for one in state.trials.values()]
    assert before.spread == max(values) - min(values)
    shifted = {step: (value + before.spread,) for step, (value,) in before.curve.items()}
    found = repro.compare(replace(before, curve=shifted), state)
    assert found.verdict == "different"
    assert found.share_of_spread == pytest.approx(1.0)


def test_a_trial_that_ends_early_this_time_is_not_equal(sweeps):
    state = run(sweeps, make_spec(trials={"max": 1}))
    before = repro.original(sweeps, "s", "t0001", accept_code=False)
    longer = replace(before, curve={**before.curve, 10: (0.1,)})
    assert repro.compare(before, state).verdict == "equal"
    assert repro.compare(longer, state).verdict == "within noise"
    empty = repro.compare(replace(before, curve={20: (0.1,)}), state)
    assert (empty.verdict, empty.step, empty.difference) == ("different", None, None)


def test_names_that_are_taken_get_a_number(sweeps):
    run(sweeps, make_spec(trials={"max": 2, "parallel": 1}))
    names = [again(sweeps, "t0002")[0].again for _ in range(3)]
    assert names == ["s-repro-t0002", "s-repro-t0002-2", "s-repro-t0002-3"]


def test_nothing_ends_it_before_its_time(sweeps):
    spec = make_spec(
        metric={"name": "loss", "goal": "minimize", "target": 100.0},
        budget={"wall": "1h"},
        stop={"plateau": {"trials": 3}},
        initial=[{"lr": 0.01}],
    )
    run(sweeps, spec)
    alone = repro.original(sweeps, "s", "t0001", accept_code=False).spec
    assert alone.metric.target is None
    assert (alone.budget, alone.stop, alone.initial) == (Budget(), Stop(), ())


def test_a_trial_without_a_value_is_refused(sweeps):
    engine = {"type": "simulate", "curve": "simulated_sweeps:troubled"}
    state = run(sweeps, make_spec(engine=engine))
    lost = next(one for one in state.trials.values() if one.diverged)
    with pytest.raises(NotFound, match=f"{lost.id} of s has no value .diverged.*hposvc trials s"):
        repro.original(sweeps, "s", lost.id, accept_code=False)
    with pytest.raises(NotFound, match="s has no trial t0099"):
        repro.original(sweeps, "s", "t0099", accept_code=False)


def test_changed_code_must_be_accepted(sweeps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    text = "def train(params, worker):\n    for step in worker.steps():\n"
    file.write_text(f"{text}        worker.report(step, {{'loss': 1.0}})\n")
    given = {
        "trainable": "mine.py:train",
        "engine": "local",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"lr": {"min": 0.1, "max": 1.0}},
        "trials": {"max": 1},
    }
    run(sweeps, specs.load(given))
    file.write_text(f"{text}        worker.report(step, {{'loss': 2.0}})\n")
    with pytest.raises(SpecError, match=r"mine\.py:train changed since s began"):
        repro.original(sweeps, "s", "t0001", accept_code=False)
    repro.original(sweeps, "s", "t0001", accept_code=True)


def test_values_that_are_no_numbers_are_equal_to_each_other(sweeps):
    state = run(sweeps, make_spec(trials={"max": 1}))
    before = repro.original(sweeps, "s", "t0001", accept_code=False)
    state.trials["t0001"].steps[1] = math.nan
    state.trials["t0001"].curve[0] = (1, math.nan)
    both = replace(before, curve={**before.curve, 1: (math.nan,)})
    assert repro.compare(both, state).verdict == "equal"
