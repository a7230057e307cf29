"""What a scheduler chooses for a spec. If these fail, trials are stopped too soon, or for good."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hposvc.schedulers.asha import Asha
from hposvc.schedulers.scheduler import Plan
from hposvc.spec import check, dump, extension, load, thaw
from hposvc.spec.registry import SCHEDULERS, build

DIGITS = "trainables.zoo.digits:DigitsCNN"
SPEC = {
    "trainable": DIGITS,
    "metric": {"name": "val/accuracy", "goal": "maximize"},
    "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}},
    "fidelity": {"unit": "epoch", "max": 54},
    "scheduler": "asha",
    "trials": {"max": 60},
}
SIMULATED = {"trainable": None, "engine": {"type": "simulate", "curve": "simulated_curve:loss"}}
PROGRAM = {"trainable": None, "command": ["python", "-c", "pass", "${lr}"]}


def policy_of(spec):
    return build(SCHEDULERS, spec.scheduler)


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({}, "promote"),
        ({"scheduler.mode": "stop"}, "stop"),
        ({"trainable": "toys:steady"}, "stop"),
        ({"trainable": "toys:steady", "scheduler.mode": "promote"}, "promote"),
        (SIMULATED, "promote"),
        (PROGRAM, "stop"),
    ],
)
def test_trials_are_promoted_where_they_go_on_from_checkpoints(
    changes, mode, tmp_path, monkeypatch
):
    (tmp_path / "simulated_curve.py").write_text("def loss(params, step): ...")
    monkeypatch.syspath_prepend(tmp_path)
    spec = check(SPEC, changes)
    assert spec.scheduler.options["mode"] == mode
    assert check(dump(spec)) == thaw(dump(spec)) == spec


def test_a_spec_whose_code_is_not_imported_stops_and_asks_nothing_of_checkpoints():
    spec = load(SPEC)
    assert "mode" not in spec.scheduler.options
    assert "a trial ends" in policy_of(spec).describe(spec.plan, "epoch")


@pytest.mark.parametrize(("trials", "mode"), [(80, "stop"), (81, "promote"), (None, "promote")])
def test_trials_are_promoted_only_if_one_can_come_to_the_end(trials, mode):
    given = {**SPEC, "trials": {"max": trials}, "budget": {"wall": "1h"}}
    spec = check(given, {"fidelity.min": 1})
    assert spec.scheduler.options == {"mode": mode}
    asked = check(given, {"fidelity.min": 1, "scheduler.mode": "promote"})
    said = policy_of(asked).describe(asked.plan, "epoch")
    assert ("with 80 trials perhaps none" in said) == (trials == 80)


@given(
    trials=st.one_of(st.none(), st.integers(1, 2000)),
    last=st.integers(1, 10**6),
    eta=st.integers(2, 5),
)
def test_there_are_no_more_rungs_than_the_trials_can_pass(trials, last, eta):
    policy = Asha(eta)
    first = policy.first_rung(Plan(1, last, trials))
    plan = Plan(first, last, trials)
    *below, end = policy.rungs(plan)
    assert end == last
    assert first >= last / 20
    assert len(below) <= 1 or trials is None or eta ** len(below) <= trials
    enough = trials is None or eta ** len(below) <= trials
    assert policy.missing_options(plan, True)["mode"] == ("promote" if enough else "stop")


def test_what_was_chosen_stays_when_trials_become_longer():
    spec = load(SPEC)
    longer = extension.changed(spec, {"fidelity.max": 540, "trials.max": 1000})
    assert (spec.first_step, longer.first_step, longer.last_step) == (3, 3, 540)


@pytest.mark.parametrize(
    ("changes", "first", "mode"),
    [
        ({"fidelity.max": 2}, 1, "promote"),  # below what was chosen for 54
        ({"fidelity.max": 540}, 27, "promote"),
        ({"trials.max": 8}, 18, "promote"),
        ({"trainable": "toys:steady"}, 3, "stop"),
        ({"scheduler": "fifo"}, 1, None),
        ({"scheduler.mode": "stop"}, 3, "stop"),
        ({"fidelity.min": 2}, 2, "promote"),
        ({"fidelity.min": 2, "fidelity.max": 540}, 2, "stop"),
    ],
)
def test_a_spec_that_is_made_from_a_recorded_one_is_chosen_for_anew(changes, first, mode):
    """Also without the code, as a server and a forecast do; what the user gave is kept."""
    recorded = dump(check(SPEC))
    spec = check(recorded, changes)
    assert (spec.first_step, spec.scheduler.options.get("mode")) == (first, mode)
    assert load(recorded, changes).first_step == first
    kept = load(recorded, {key: changes[key] for key in changes if key != "trainable"})
    assert kept.scheduler.options.get("mode") in (mode, "promote")
    own = check(dump(spec), {"fidelity.max": 54, "trials.max": 60})
    assert ("fidelity.min" in changes) == (own.first_step == 2)


def test_a_first_rung_that_is_given_is_kept_and_other_schedulers_judge_from_the_first_step():
    assert load(SPEC, {"fidelity.min": 1}).first_step == 1
    for scheduler in ("fifo", "median", "hyperband"):
        assert load(SPEC, {"scheduler": scheduler}).first_step == 1


@pytest.mark.parametrize("trials", [2, 60])
@pytest.mark.parametrize("scheduler", ["fifo", "asha"])
def test_of_many_small_steps_a_20th_lies_between_reports(scheduler, trials):
    spec = check(
        SPEC,
        {
            "fidelity.unit": "update",
            "fidelity.max": 4000,
            "scheduler": scheduler,
            "trials.max": trials,
        },
    )
    assert spec.fidelity.interval == 200
    assert spec.first_step == (1334 if (scheduler, trials) == ("asha", 2) else 200)
    assert check(dump(spec), {"fidelity.min": 100}).fidelity.interval == 100
