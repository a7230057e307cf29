"""Findings about sweeps, also odd ones, in plain sentences."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from simulated_sweeps import at_desk, fold, make_spec
from sweep_stories import begin, report, trial, trial_name, whole

from hposvc import spec as specs
from hposvc.analysis.findings import _noise_or_not, sureness, why, worth
from hposvc.analysis.judgement import Gain, Noise
from hposvc.events import Attached, Decided, Failed, Finished, from_json
from hposvc.state.finalists import SEEDLESS

RECORDED = Path(__file__).parents[1] / "contracts" / "recorded"
TOPICS = ("best", "sure", "gain", "cost", "mattered", "ruled out", "stopped", "wrong", "next")
TOPICS += ("reproduce",)


def played(spec, curves, rate=lambda trial: 10 ** (-4 + trial % 3), notes=None, **metrics):
    """Return the state of a sweep whose trials report these losses; None: the trial fails.

    Args:
        notes: of proposals, by the place of the trial.
    """
    trials = []
    for number, curve in enumerate(curves):
        order, values = number + 1, {"lr": rate(number), "width": 3}
        begun = {
            "time": float(order),
            "params": {name: value for name, value in values.items() if name in spec.parameters},
            "note": (notes or {}).get(number, {}),
        }
        if curve is None:
            failed = Failed(order + 0.5, order, trial_name(order), "user", "no luck")
            trials.append(trial(order, [], end=failed, **begun))
            continue
        said = {
            step: {"loss": loss, **{name: value(step) for name, value in metrics.items()}}
            for step, loss in enumerate(curve, 1)
        }
        trials.append(trial(order, said, **begun))
    return fold(spec, whole(*trials))


def bowl(number):
    return [(number % 7) / 7 + 1 / step for step in range(1, 10)]


def titles(state):
    return [finding.title for finding in why("s", state) if finding.topic == "warning"]


def check(state):
    """Check the form of the findings, and return them by topic."""
    found = why("s", state)
    assert tuple(finding.topic for finding in found[:10]) == TOPICS
    json.dumps([asdict(finding) for finding in found], allow_nan=False)
    for finding in found:
        assert finding.sentence.endswith((".", "them."))
        assert not any(word in finding.sentence for word in ("nan", "inf ", "None"))
    assert all(sureness(state) + worth(state)) or not state.front
    return {finding.topic: finding for finding in found}


@pytest.mark.parametrize("recorded", sorted(path.stem for path in RECORDED.glob("v1-*.jsonl")))
def test_every_recorded_sweep_has_findings(recorded):
    head, *lines = (RECORDED / f"{recorded}.jsonl").read_text().splitlines()
    events = [from_json(kind, at, json.dumps(body)) for kind, at, body in map(json.loads, lines)]
    check(fold(specs.restore(json.loads(head)["spec"]), events))


@pytest.mark.parametrize(
    ("curves", "says"),
    [
        ([], "No trial has begun yet"),
        ([None, None], "No trial has a value"),
        ([bowl(1)], "t0001"),
        ([[math.nan] * 3, [math.inf], [1e308] * 9, [-1e308] * 9], "The best is t0004"),
        ([[1.0] * 9] * 12, "The best is t0001"),
        ([bowl(number) for number in range(12)], "The best is t0001"),
    ],
)
def test_odd_sweeps_have_honest_words(curves, says):
    assert says in check(played(make_spec(), curves))["best"].sentence


def test_the_best_says_why_a_lower_value_does_not_count():
    stopped = trial(2, [0.2], 2.0, end=Decided(2.1, trial_name(2), 2, 1, "stop", "rung"))
    early = [*begin(3, 3.0), report(3, 3.1, 1, 0.1)]
    here = Attached(0.0, "here:1")
    best = check(fold(make_spec(), [here, *trial(1, [1.0] * 9), *stopped]))["best"]
    assert best.sentence.endswith("t0002 had 0.2 at step 1, but has not come to its end.")
    only = check(fold(make_spec(), [here, *early]))["best"]
    assert only.sentence.endswith("No trial has come to its end.")


def rate(number):
    return 10 ** (-5 + number / 4)


def around(number, luck=0.0):
    """Return a curve that is lower the nearer the rate is to 1e-3, and ends with this luck."""
    distance = (math.log10(rate(number)) + 3) ** 2
    return [distance + 1 / step for step in range(1, 9)] + [distance + luck]


def test_the_models_prefer_a_trial_among_good_ones_to_a_lucky_one_elsewhere():
    curves = [around(number, luck=0.1 * (-1) ** number) for number in range(16)]
    curves[4] = around(4, luck=-1.2)  # the best value, among trials that end at 0.5 and above
    spec = make_spec(parameters={"lr": {"min": 1e-6, "max": 1.0, "log": True}})
    found = check(played(spec, curves, rate))
    sure = found["sure"]
    assert found["best"].data["trial"] == "t0005"
    assert sure.data["preferred"]["trial"] in ("t0008", "t0009", "t0010")
    assert f"would rather choose {sure.data['preferred']['trial']}: " in sure.sentence
    plain = check(played(spec, [around(number) for number in range(16)], rate))["sure"]
    assert "preferred" not in plain.data
    assert "rather choose" not in plain.sentence


def test_trials_that_repeat_another_one_measure_the_noise_and_are_one_configuration():
    spec = make_spec(parameters={"lr": {"min": 1e-6, "max": 1.0, "log": True}})
    curves = [around(number) for number in range(16)]
    again = [around(8, luck=luck) for luck in (-0.3, 0.0, 0.3)]  # of t0009, the best
    rates = [*map(rate, range(16)), *[rate(8)] * 3]
    notes = {16 + index: {"repeat_of": "t0009"} for index in range(3)}
    state = played(spec, [*curves, *again], rates.__getitem__, notes)
    found = check(state)
    assert found["best"].data["trial"] == "t0017"  # the best value on record
    assert found["sure"].data["noise"]["source"] == "repeats"
    assert found["sure"].data["noise"]["deviation"] == pytest.approx(0.3)
    assert "preferred" not in found["sure"].data  # t0017 is t0009 again
    assert found["gain"].data["more_than_noise"] is not None


def test_a_lucky_trial_is_judged_by_the_trials_that_repeat_it():
    spec = make_spec(parameters={"lr": {"min": 1e-6, "max": 1.0, "log": True}})
    curves = [around(number) for number in range(16)]
    best = curves[8][-1]
    curves[8] = around(8, luck=-0.6)
    again = [around(8, luck=luck) for luck in (-0.1, 0.0, 0.1)]
    rates = [*map(rate, range(16)), *[rate(8)] * 3]
    notes = {16 + index: {"repeat_of": "t0009"} for index in range(3)}
    sure = check(played(spec, [*curves, *again], rates.__getitem__, notes))["sure"].data
    assert sure["expected"]["mean"] == pytest.approx(best - 0.15, abs=0.1)  # its four runs
    assert sure["runner_up"] not in ("t0017", "t0018", "t0019")  # they are no rivals of t0009


def test_without_repeats_no_gain_is_called_real():
    gain = check(played(make_spec(), [bowl(6 - number) for number in range(12)]))["gain"]
    assert gain.data["more_than_noise"] is None
    assert "can't be told" in gain.sentence


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (None, "the first trial failed"),
        ([1e200] * 9, "the value of the first trial is too large to compare with"),
        ([1.0, math.nan], "the first trial diverged"),
    ],
)
def test_it_says_why_the_first_trial_cannot_be_compared_with(first, says):
    curves = [first, *[bowl(number + 1) for number in range(12)]]
    assert says in check(played(make_spec(), curves))["gain"].sentence


@pytest.mark.parametrize(
    ("initial", "says"),
    [
        ([{"lr": 1e-4, "width": 3}], "the default (t0001)"),
        ([{"lr": 1e-4}], "the first trial (t0001)"),  # its width was drawn
        ([], "the first trial (t0001)"),
    ],
)
def test_only_a_first_trial_of_which_nothing_was_drawn_is_called_the_default(initial, says):
    parameters = {"lr": {"min": 1e-5, "max": 0.1, "log": True}, "width": {"min": 1, "max": 9}}
    spec = make_spec(parameters=parameters, initial=initial)
    curves = [bowl(6 - number) for number in range(12)]
    assert says in check(played(spec, curves))["gain"].sentence


def test_finalists_tell_whether_the_gain_is_noise():
    head, *lines = (RECORDED / "v1-finalists.jsonl").read_text().splitlines()
    events = [from_json(kind, at, json.dumps(body)) for kind, at, body in map(json.loads, lines)]
    gain = check(fold(specs.restore(json.loads(head)["spec"]), events))["gain"]
    assert gain.data["more_than_noise"]
    assert "equal runs gave equal values" in gain.sentence


def test_warnings_name_the_end_of_a_range_failures_and_waits():
    curves = [bowl(0), *[bowl(3)] * 10, None]
    state = played(
        make_spec(),
        curves,
        rate=lambda trial: 1e-5 if trial == 0 else 1e-3,
        **{"perf/data_wait_fraction": lambda step: 0.5},
    )
    found = titles(state)
    assert "lr is at the end of its range" in found
    assert "Ranks wait for data" in found
    assert "Trials failed" in found
    assert "Widen lr at its lower end" in check(state)["next"].sentence


def test_over_fitting_is_a_worse_metric_while_training_goes_on():
    rising = [1.0, 0.5, 0.3, 0.29, 0.3, 0.4, 0.5, 0.6, 0.9]
    falling = {"train/loss": lambda step: 1 / step}
    spec = make_spec(metric={"name": "loss", "goal": "minimize", "select": "best"})
    assert "The best trial over-fits" in titles(played(spec, [rising], **falling))
    assert "The best trial over-fits" not in titles(played(spec, [rising]))
    assert "The best trial over-fits" not in titles(played(spec, [bowl(1)], **falling))


def advice(desk):
    (found,) = [each for each in why("s", desk.state, ()) if each.topic == "next"]
    return found.sentence


def test_without_a_value_it_says_to_wait():
    desk = at_desk(scheduler="fifo")
    desk.start()
    assert advice(desk) == "Wait for the first value."
    desk.happen(Finished(1.0, "STOPPED", "user"))
    assert "No trial reported a value" in advice(desk)


def test_values_beyond_the_limits_are_told_from_failures():
    desk = at_desk(scheduler="fifo", limits=["loss <= 0.5"])
    order = desk.start()
    desk.report(order, 1, 0.9)
    assert "No trial is within the limits" in advice(desk)


@pytest.mark.parametrize(
    ("changes", "cost"),
    [
        ({}, "for about 20 worker-hours"),
        ({"price": {"worker_hour": 2.0, "currency": "EUR"}}, "worker-hours, or 40.00 EUR"),
        ({"resources": {"gpus_per_worker": 2}}, "for about 40 GPU-hours"),
    ],
)
def test_the_worth_of_more_trials_has_the_metric_and_what_they_cost(changes, cost):
    spec = make_spec(scheduler="fifo", **changes)
    hourly = [
        trial(
            number,
            [1 / number] * 9,
            3600.0 * number,
            step_s=3600 / 9.5,
            params={"lr": 10 ** (-4 + number / 6)},
        )
        for number in range(1, 13)
    ]
    state = fold(spec, whole(*hourly))
    (found,) = [each for each in why("s", state, ()) if each.topic == "next"]
    assert "20 more trials are expected to gain about" in found.sentence
    assert " in loss (90 % sure: " in found.sentence
    assert cost in found.sentence
    assert found.data["more"]["rank_s"] == pytest.approx(20 * 3600.0)


def test_a_loss_that_converges_over_decades_is_not_said_to_be_lucky_nor_negative():
    spec = make_spec(parameters={"lr": {"min": 1e-4, "max": 1.0, "log": True}}, fidelity={"max": 9})
    curves = [[25 * (1 - rate) ** (2 * step) for step in range(1, 10)] for rate in DECADES]
    found = check(played(spec, curves))
    assert "can't be told: no configuration was trained twice" in found["sure"].sentence
    rng = np.random.default_rng(0)
    noisy = [[float(value * np.exp(rng.normal(0, 0.3))) for value in curve] for curve in curves]
    expected = check(played(spec, noisy))["sure"].data["expected"]
    assert 0 < expected["low"] <= expected["mean"] <= expected["high"] < 25


def test_a_gain_of_many_deviations_is_not_taken_for_a_training_without_noise():
    judged = SimpleNamespace(
        noise=Noise(0.025, 9, "repeats"), gain=Gain(0.366, 0.0), measured=True, default=None
    )
    assert _noise_or_not(judged, None) == "that is more than noise"
    assert (
        _noise_or_not(SimpleNamespace(**{**vars(judged), "noise": Noise(0.0, 9, "repeats")}), 1.0)
        == SEEDLESS
    )


DECADES = (0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.15, 0.02, 0.12, 0.08)


@pytest.mark.parametrize(
    ("value", "said"),
    [(1.0, "limit (c <= 0)"), (math.nan, "limit (c <= 0, of which it has no value)")],
)
def test_no_gain_is_given_over_a_first_trial_that_breaks_a_limit(value, said):
    spec = make_spec(limits=["c <= 0"])
    reported = iter([*[value] * 9, *[0.0] * 18])
    curves = [[-10.0] * 9, [5.0] * 9, [6.0] * 9]
    state = played(spec, curves, c=lambda step: next(reported))
    assert state.best == "t0002"
    found = {finding.topic: finding for finding in why("s", state)}
    assert f"the first trial breaks a {said}" in found["gain"].sentence


@pytest.mark.parametrize("trials", range(1, 14))
def test_what_more_trials_gain_is_told_or_cannot_be_told_never_both(trials):
    state = played(make_spec(), [bowl(number) for number in range(trials)])
    sentences = " ".join(finding.sentence for finding in why("s", state))
    assert ("can't be told from" in sentences) != ("more trials are" in sentences)
