"""The answer to a proposed configuration agrees with the truth, and says what it rests on."""

import math

import numpy as np
import pytest
from simulated_sweeps import make_several, make_spec

from hposvc.analysis.proposal import assess, complete, distances
from hposvc.errors import SpecError
from hposvc.events import Requested
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import Record
from searchers.explain.explanation import Explanation
from searchers.searcher import Observation
from searchers.space import Space

MIXED = {
    "lr": {"min": 1e-5, "max": 1e-1, "log": True},
    "opt": {"values": ["sgd", "adam"]},
    "momentum": {"min": 0.0, "max": 1.0, "when": {"opt": "sgd"}},
}


def ask(state, given, ahead=()):
    row = SweepRow("s", "s", "p", 0.0, {}, {})
    return assess(Record(row, state, {}, "alive", 0, proposed=ahead), given)


def truth(params):
    return math.sin(5 * params["x"]) + (params["y"] - 0.6) ** 2 + 0.3 * (params["kind"] == "b")


def test_the_stated_probability_to_be_better_agrees_with_the_truth():
    """Of 720 random proposals to 12 noisy sweeps: the mean, and that of the most promising."""
    space = Space.from_dict(
        {
            "x": {"min": 0.0, "max": 1.0},
            "y": {"min": 0.0, "max": 1.0},
            "kind": {"values": ["a", "b"]},
        }
    )
    stated, better = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        tried = [space.sample(rng) for _ in range(10)]
        losses = [truth(params) + rng.normal(0.0, 0.1) for params in tried]
        history = [
            Observation(f"t{n}", params, loss=loss, state="done")
            for n, (params, loss) in enumerate(zip(tried, losses, strict=True))
        ]
        model = Explanation.of(space, history)
        best = tried[int(np.argmin(losses))]
        for _ in range(60):
            params = space.sample(rng)
            stated.append(model.chance_better(params, best))
            better.append(truth(params) < truth(best))
    stated, better = np.array(stated), np.array(better, dtype=float)
    assert stated.mean() == pytest.approx(better.mean(), abs=0.04)
    first, last = np.split(np.argsort(-stated), [120])
    assert stated[first].mean() == pytest.approx(better[first].mean(), abs=0.2)
    assert stated[last].mean() == pytest.approx(better[last].mean(), abs=0.02)
    assert better[first].mean() > 10 * better[last].mean()


def test_a_sweep_without_enough_results_says_so(lab):
    spec = make_spec(parameters=MIXED, trials={"max": 1})
    state = lab.run(spec)
    answer = ask(state, {"lr": 1e-3})
    assert (answer.predicted, answer.better) == ({}, None)
    assert "a model needs 2 results" in answer.unknown
    assert answer.params["lr"] == 1e-3
    spec.space.validate(answer.params)
    assert "lr" not in answer.filled


def test_the_answer_is_in_the_metrics_own_sign_and_names_the_best_and_the_nearest(lab):
    gain = {"name": "gain", "goal": "maximize"}
    engine = {"type": "simulate", "curve": "simulated_sweeps:worsening"}
    state = lab.run(make_spec(metric=gain, engine=engine, trials={"max": 20}))
    best = state.trials[state.best]
    answer = ask(state, {"lr": 1e-3})
    assert answer.predicted["gain"].mean == pytest.approx(-18.0, abs=0.5)  # the truth, at step 9
    assert (answer.best, answer.best_value, answer.step) == (best.id, best.values[0], 9)
    assert answer.best_mean == pytest.approx(best.values[0], abs=0.5)
    assert ask(state, {"lr": 1e-5}).better < 0.1
    assert answer.nearest.differs.keys() == {"lr"}
    units = [abs(math.log10(trial.params["lr"]) + 3) for trial in state.trials.values()]
    assert answer.nearest.distance == pytest.approx(min(units) / 4)
    near = state.trials[answer.nearest.trial]
    assert answer.nearest.value == near.values[0]
    again = ask(state, near.params)
    assert again.refused == f"it was tried as {near.id}"
    assert (again.nearest.trial, again.nearest.distance) == (near.id, 0.0)


def test_a_nearest_trial_that_failed_is_named_as_such(lab):
    engine = {"type": "simulate", "curve": "simulated_sweeps:troubled"}
    state = lab.run(make_spec(engine=engine, trials={"max": 16}))
    failed = next(trial for trial in state.trials.values() if trial.state == "FAILED")
    answer = ask(state, failed.params)
    assert (answer.nearest.trial, answer.nearest.state) == (failed.id, "FAILED")


def test_with_several_metrics_each_is_predicted_and_there_is_no_probability(lab):
    state = lab.run(make_several(trials={"max": 12}))
    answer = ask(state, {"lr": 1e-3})
    assert answer.predicted.keys() == {"loss", "speed"}
    assert (answer.better, answer.best) == (None, None)
    near = state.trials[answer.nearest.trial]
    assert answer.nearest.value == (list(near.values) or None)


def test_what_is_not_given_is_filled_in_as_conditions_demand(lab):
    spec = make_spec(parameters=MIXED, trials={"max": 8})
    state = lab.run(spec)
    for given in ({"momentum": 0.5}, {"opt": "adam"}, {"opt": "sgd"}, {}):
        params = complete(state, given)
        spec.space.validate(params)
        assert given.items() <= params.items()
        assert complete(state, given) == params
    assert complete(state, {"momentum": 0.5})["opt"] == "sgd"
    whole = {"lr": 1e-3, "opt": "adam"}
    assert complete(state, whole) == whole


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lrr": 1e-3}, "lrr: is no parameter: did you mean 'lr'"),
        ({"lr": 3.0}, "lr: .*outside"),
        ({"opt": "adam", "momentum": 0.5}, "momentum: .*active only"),
    ],
)
def test_wrong_names_and_values_are_refused_as_in_a_spec(lab, given, words):
    state = lab.run(make_spec(parameters=MIXED, trials={"max": 2}))
    with pytest.raises(SpecError, match=words):
        ask(state, given)


def test_distances_count_in_shares_of_the_range_and_one_for_another_category():
    space = Space.from_dict(MIXED)
    one = {"lr": 1e-3, "opt": "sgd", "momentum": 0.5}
    assert distances(space, one, one) == {}
    assert distances(space, one, {**one, "lr": 1e-2}) == {"lr": pytest.approx(0.25)}
    assert distances(space, one, {"lr": 1e-3, "opt": "adam"}) == {"opt": 1.0, "momentum": 1.0}


def test_the_turn_counts_those_ahead_also_what_no_driver_has_taken(lab):
    spec = make_spec(parameters=MIXED, trials={"max": 10, "proposed": 0.2})
    state = lab.run(spec)
    answer = ask(state, {"lr": 1e-3, "opt": "adam"})
    assert (answer.turn, answer.begun, answer.room) == (10, 10, 10)
    state.apply(Requested(state.now, "propose", changes={"lr": 2e-3, "opt": "adam"}))
    ahead = ({"lr": 3e-3, "opt": "adam"}, {"lr": 4e-3, "opt": "adam"})
    assert ask(state, {"lr": 1e-3, "opt": "adam"}, ahead).turn == 15
    assert "queue" in ask(state, ahead[0], ahead).refused
