"""Reproductions: a trial is trained again, and the verdict compares its values."""

from dataclasses import replace

import pytest
from simulated_sweeps import CALLS, Lab, make_several, make_spec

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis import reproduction
from hposvc.backends.local import LocalBackend
from hposvc.backends.simulate import Simulation
from hposvc.errors import NotFound, SpecError
from hposvc.spec.stopping import Budget, Stop

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
    """Return a loss that grows by `lr` each time that a step is run again."""
    CALLS[params["lr"], step] += 1
    return {"loss": 1 + 1 / step + params["lr"] * (CALLS[params["lr"], step] - 1)}, 1.0


@pytest.fixture
def sweeps(tmp_path, monkeypatch):
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    CALLS.clear()
    return api.Sweeps.open(tmp_path / "home")


def run(sweeps, spec, name="s"):
    """Run a sweep as a driver does, but without MLflow."""
    row = api.create(sweeps, spec, name)
    backend = Simulation if spec.engine.type == "simulate" else LocalBackend
    lab = Lab(sweeps.journal, sweeps.home.path / name)
    return lab.run(specs.restore(row.spec), name, backend)


def again(sweeps, trial, name="s"):
    before = reproduction.original(sweeps, name, trial, accept_code=False)
    state = run(sweeps, before.spec, before.again)
    return reproduction.compare(before, state), state


def jittered(by, **sections):
    engine = {"type": "simulate", "curve": "test_reproduction:jittery"}
    sections = {"trials": {"max": 1}, **sections}
    return make_spec(engine=engine, parameters={"lr": by}, **sections)


@pytest.fixture
def importable(monkeypatch, request):
    monkeypatch.syspath_prepend(str(request.path.parent))


def test_a_stopped_trial_of_a_real_model_comes_out_equal_and_no_longer(sweeps):
    state = run(sweeps, specs.load(DIGITS))
    short = next(candidate for candidate in state.trials.values() if candidate.reason == "rung")
    result, once_more = again(sweeps, short.id)
    (trial,) = once_more.trials.values()
    assert (result.verdict, result.steps) == ("equal", len(short.steps))
    assert trial.steps == short.steps
    assert trial.step == short.step < 4
    assert (trial.state, trial.reason) == ("STOPPED", "until")
    assert once_more.state == "COMPLETED"
    assert once_more.spec.last_step == 4, "schedules follow the whole length"
    assert (result.difference, result.share_of_spread, result.doubts) == (0.0, None, ())


def test_a_member_of_a_population_is_trained_again_with_the_weights_that_it_copied(sweeps):
    state = run(sweeps, make_spec(scheduler=PBT, trials={"max": 4, "parallel": 2}))
    copied = next(candidate for candidate in state.trials.values() if candidate.parent is not None)
    result, once_more = again(sweeps, copied.id)
    (trial,) = once_more.trials.values()
    assert result.verdict == "equal"
    assert trial.steps[trial.step] == copied.steps[copied.step]


def test_of_several_metrics_the_one_that_differs_most_decides(sweeps):
    state = run(sweeps, make_several(scheduler="asha", trials={"max": 4, "parallel": 2}))
    again(sweeps, state.front[0])
    before = reproduction.original(sweeps, "s", state.front[0], accept_code=False)
    last = max(before.curve)
    first, second = before.curve[last]
    shifted = {**before.curve, last: (first * (1 + 1e-6), second - before.spreads[1])}
    state = api.load(sweeps, f"s-repro-{state.front[0]}").state
    result = reproduction.compare(replace(before, curve=shifted), state)
    assert (result.verdict, result.metric) == ("different", before.spec.objectives[1].name)
    assert result.now == pytest.approx(second)
    assert result.share_of_spread == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("by", "verdict"), [(1e-5, "within noise"), (1e-3, "within noise"), (0.1, "different")]
)
def test_the_verdict_follows_the_size_of_the_difference(sweeps, importable, by, verdict):
    run(sweeps, jittered(by))
    result, _ = again(sweeps, "t0001")
    assert result.verdict == verdict
    assert result.difference == pytest.approx(by)
    assert (result.first_difference, result.step, result.steps) == (1, 9, 9)
    sense = "at most" if verdict == "within noise" else "more than"
    assert f"the last value differs by {sense} 0.001 of itself" in result.rule


def test_where_finalists_were_trained_again_their_deviation_is_the_noise(sweeps):
    state = run(sweeps, make_spec(trials={"max": 1}))
    before = reproduction.original(sweeps, "s", "t0001", accept_code=False)
    last = max(before.curve)
    off = replace(before, curve={**before.curve, last: (before.curve[last][0] + 0.3,)})
    assert reproduction.compare(off, state).verdict == "different"
    result = reproduction.compare(replace(off, deviation=0.2), state)
    assert result.verdict == "within noise"
    assert "at most two standard deviations of the finalists' replicates (0.4)" in result.rule


def test_nothing_ends_it_before_its_time(sweeps):
    spec = make_spec(
        metric={"name": "loss", "goal": "minimize", "target": 100.0},
        budget={"wall": "1h"},
        stop={"plateau": {"trials": 3}},
        initial=[{"lr": 0.01}],
    )
    run(sweeps, spec)
    alone = reproduction.original(sweeps, "s", "t0001", accept_code=False).spec
    assert alone.metric.target is None
    assert (alone.budget, alone.stop, alone.initial) == (Budget(), Stop(), ())


def test_a_trial_without_a_value_is_refused(sweeps):
    engine = {"type": "simulate", "curve": "simulated_sweeps:troubled"}
    state = run(sweeps, make_spec(engine=engine))
    lost = next(trial for trial in state.trials.values() if trial.diverged)
    with pytest.raises(NotFound, match=f"{lost.id} of s has no value .diverged.*hposvc trials s"):
        reproduction.original(sweeps, "s", lost.id, accept_code=False)
    with pytest.raises(NotFound, match="s has no trial t0099"):
        reproduction.original(sweeps, "s", "t0099", accept_code=False)


def test_changed_code_must_be_accepted(sweeps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    text = "def train(params, worker):\n    for step in worker.steps():\n"
    file.write_text(f"{text}        worker.report(step, {{'loss': 1.0}})\n")
    local = {"engine": "local", "trainable": "mine.py:train", "fidelity": {"max": 2}}
    run(sweeps, make_spec(**local, trials={"max": 1}))
    file.write_text(f"{text}        worker.report(step, {{'loss': 2.0}})\n")
    with pytest.raises(SpecError, match=r"mine\.py:train changed since s began"):
        reproduction.original(sweeps, "s", "t0001", accept_code=False)
    reproduction.original(sweeps, "s", "t0001", accept_code=True)
