"""What a scheduler chooses for a spec. If these fail, trials are stopped too soon, or for good."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    assert "mode" not in load(SPEC).scheduler.options
    assert "a trial ends" in policy_of(load(SPEC)).describe(load(SPEC).plan, "epoch")


@given(
    trials=st.one_of(st.none(), st.integers(1, 2000)),
    last=st.integers(1, 10**6),
    eta=st.integers(2, 5),
)
def test_there_are_no_more_rungs_than_the_trials_can_pass(trials, last, eta):
    fidelity, scheduler = {"unit": "epoch", "max": last}, {"type": "asha", "eta": eta}
    spec = load({**SPEC, "fidelity": fidelity, "scheduler": scheduler}, {"trials.max": trials or 9})
    policy = policy_of(spec)
    first = policy.first_rung(Plan(1, last, trials))
    *below, end = policy.rungs(Plan(first, last, trials))
    assert end == last
    assert first >= last / 20
    assert trials is None or eta ** len(below) <= trials
    assert spec.first_step == policy.first_rung(Plan(1, last, trials or 9))


def test_what_was_chosen_stays_when_trials_become_longer():
    spec = load(SPEC)
    longer = extension.changed(spec, {"fidelity.max": 540, "trials.max": 1000})
    assert (spec.first_step, longer.first_step, longer.last_step) == (3, 3, 540)


def test_a_first_rung_that_is_given_is_kept_and_other_schedulers_judge_from_the_first_step():
    assert load(SPEC, {"fidelity.min": 1}).first_step == 1
    for scheduler in ("fifo", "median", "hyperband"):
        assert load(SPEC, {"scheduler": scheduler}).first_step == 1


def test_of_many_small_steps_a_20th_lies_between_reports():
    spec = check(SPEC, {"fidelity.unit": "update", "fidelity.max": 4000, "scheduler": "fifo"})
    assert spec.fidelity.interval == spec.first_step == 200
