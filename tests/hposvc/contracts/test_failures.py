"""Failures that are a trial's own fault: too little memory, divergence, or wrong code.

If these tests fail, a sweep ends trials that would fit in smaller micro-batches, retries trials
that can't work, or lets a diverged trial win.
"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from simulated_sweeps import SCHEDULERS, at_desk, fold, make_spec, smooth

from hposvc.events import Attached, Failed, Ordered, from_json, to_json
from hposvc.journal.journal import SweepRow
from hposvc.schedulers.scheduler import SearchDone
from hposvc.spec.sections import MOST_HALVINGS
from hposvc.state import summary
from hposvc.tracking.projection import Projection
from hposvc.verbs.trials import table
from trainables.worker import Diverged, TooLarge

BAD = 4  # one trial in so many


def spoiled(params, step):
    """Report NaN at step 3, in some trials."""
    if int(params["lr"] * 1e9) % BAD == 0 and step == 3:
        return {"loss": math.nan}, 1.0
    return smooth(params, step)


def given_up(params, step):
    """Raise Diverged at step 3, in the trials in which `spoiled` reports NaN."""
    if int(params["lr"] * 1e9) % BAD == 0 and step == 3:
        raise Diverged("the loss was not finite")
    return smooth(params, step)


def insatiable(params, step):
    """Ask for half of the micro-batch, however small it is."""
    raise TooLarge("half of it may fit")


def reread(events):
    """Return the events as a journal returns them."""
    return [from_json(event.kind, event.time, to_json(event)) for event in events]


def test_a_trial_that_is_too_large_goes_on_from_its_checkpoint_with_half_of_it():
    desk = at_desk(failure={"user_retries": 0, "infra_retries": 0})
    order = desk.start()
    assert order.shrink == 0
    desk.report(order, 1, 0.5)
    desk.report(order, 2, 0.4)
    for times in (1, 2, 3):
        desk.fail(order, "oversize")
        order = desk.start()
        assert (order.trial, order.first, order.shrink) == ("t0001", 3, times)
        assert order.start.step == 2
    trial = desk.state.trials["t0001"]
    assert (trial.state, trial.attempts, trial.shrink) == ("RUNNING", 4, 3)
    assert desk.fail(order, "infra") == []
    assert (trial.state, trial.reason) == ("FAILED", "infra"), "no retry was used up, or given"


def test_what_was_shrunk_stays_so_over_lost_ranks_and_drivers():
    desk = at_desk()
    desk.fail(desk.start(), "oversize")
    desk.fail(desk.start(), "infra")
    assert desk.start().shrink == 1
    desk.happen(Attached(5.0, "here:2"))
    order = desk.start()
    assert (order.trial, order.shrink) == ("t0001", 1)
    other = desk.start()
    assert (other.trial, other.shrink) == ("t0002", 0)
    again = fold(desk.controller.spec, reread(desk.log))
    assert again.trials["t0001"].order == desk.state.trials["t0001"].order
    assert (again.trials["t0001"].shrink, again.trials["t0002"].shrink) == (1, 0)


def test_a_trial_that_copies_another_keeps_its_own_shrink():
    pbt = {"type": "pbt", "interval": 1, "mutate": {"lr": {}}, "quantile": 0.5}
    desk = at_desk(scheduler=pbt, trials={"max": 2, "parallel": 2})
    first, second = desk.start(), desk.start()
    desk.fail(first, "oversize")
    desk.fail(desk.start(), "oversize")
    first = desk.start()
    desk.report(second, 1, 0.1)
    desk.report(first, 1, 0.9)
    desk.end(first)
    copy = desk.start()
    assert (copy.trial, copy.parent, copy.shrink) == ("t0001", "t0002", 2)


def test_without_shrink_a_trial_that_is_too_large_has_run_out_of_memory():
    desk = at_desk(failure={"oom": "fail", "user_retries": 9})
    desk.fail(desk.start(), "oversize")
    trial = desk.state.trials["t0001"]
    assert (trial.state, trial.reason, trial.shrink) == ("FAILED", "oom", 0)


def test_a_trial_that_never_fits_ends_all_the_same(lab):
    engine = {"type": "simulate", "curve": f"{__name__}:insatiable"}
    spec = make_spec(engine=engine, trials={"max": 2, "parallel": 2})
    lab.run(spec)
    for trial in check(spec, lab.events()).trials.values():
        assert (trial.state, trial.reason) == ("FAILED", "oom")
        assert trial.shrink == MOST_HALVINGS


def test_a_trial_that_says_that_it_diverged_is_stopped_and_never_the_best():
    desk = at_desk(failure={"user_retries": 9, "infra_retries": 9})
    good, bad = desk.start(), desk.start()
    desk.report(good, 1, 0.5)
    desk.report(bad, 1, 0.1)
    assert desk.state.best == bad.trial
    desk.fail(bad, "diverged")
    trial = desk.state.trials[bad.trial]
    assert (trial.state, trial.reason, trial.value) == ("STOPPED", "diverged", None)
    assert trial.message == "diverged it was"
    assert desk.state.best == good.trial
    seen = trial.observation()
    assert (seen.state, seen.reason, seen.loss) == ("failed", "diverged", None)
    assert desk.start().trial not in (good.trial, bad.trial), "it is not tried again"


def test_a_trial_that_diverges_beyond_a_pause_that_it_has_not_heard_of_is_paused():
    """Its steps beyond the pause were not asked for, and will be done again."""
    pbt = {"type": "pbt", "interval": 1, "mutate": {"lr": {}}}
    desk = at_desk(scheduler=pbt, trials={"max": 4, "parallel": 4})
    order = desk.start()
    desk.report(order, 1, 0.5)
    trial = desk.state.trials[order.trial]
    assert trial.intends("yield")
    desk.fail(order, "diverged")
    assert (trial.state, trial.diverged) == ("PAUSED", False)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_to_say_that_it_diverged_is_as_good_as_to_report_nan(lab, name):
    ends = []
    for curve in ("spoiled", "given_up"):
        spec = make_spec(
            engine={"type": "simulate", "curve": f"{__name__}:{curve}"},
            scheduler=SCHEDULERS[name],
            trials={"max": 16, "parallel": 1},
        )
        lab.run(spec, curve)
        state = check(spec, lab.events(curve))
        assert "diverged" in {trial.reason for trial in state.trials.values()}
        ends.append(
            [
                (trial.state, trial.reason, trial.values, trial.reported_params, trial.attempts)
                for trial in state.trials.values()
            ]
        )
    assert ends[0] == ends[1]


def test_what_was_shrunk_is_in_the_lists_and_in_mlflow():
    desk = at_desk()
    desk.happen(Attached(0.0, "here:1"))
    desk.fail(desk.start(), "oversize")
    desk.start()
    desk.start()
    assert [trial.shrink for trial in summary.trials(desk.state, {})] == [1, 0]
    projection = Projection(SweepRow("s", "s", "p", 0.0, {}, {}), desk.controller.spec)
    for event in desk.log:
        projection.apply(event)
    runs = projection.take_entries()
    assert runs["t0001"].tags["hposvc.shrink"] == "1"
    assert "hposvc.shrink" not in runs["t0002"].tags


FAILURES = ["infra", "preempt", "user", "oom", "oversize", "diverged"]
DEEDS = ["report", "report", "report", "nan", "end", "attach", *FAILURES]


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(sorted(SCHEDULERS)),
    st.sampled_from(["shrink", "fail"]),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(DEEDS), st.booleans()), max_size=40),
)
def test_whatever_fails_the_sweep_ends_and_its_journal_says_the_same(scheduler, oom, deeds):
    desk = at_desk(
        scheduler=SCHEDULERS[scheduler],
        trials={"max": 5, "parallel": 3},
        failure={"infra_retries": 2, "preempt_retries": 2, "user_retries": 1, "oom": oom},
    )
    for number, (slot, deed, save) in enumerate(deeds):
        fill(desk)
        live = list(desk.state.trials.running())
        if live:
            act(desk, live[slot % len(live)], deed, save, 1.0 / (number + 2))
    for _ in range(2000):
        fill(desk)
        live = list(desk.state.trials.running())
        if not live:
            break
        act(desk, live[0], "report", True, 0.5)
    assert type(desk.controller.next()).__name__ == "SearchDone"
    assert all(trial.over or trial.state == "PAUSED" for trial in desk.state.trials.values())
    desk.happen(desk.controller.finish(desk.time))
    assert repr(fold(desk.controller.spec, reread(desk.log)).trials) == repr(desk.state.trials)
    for trial in desk.state.trials.values():
        orders = [event.order for event in desk.log if isinstance(event, Ordered)]
        shrinks = [order.shrink for order in orders if order.trial == trial.id]
        assert shrinks == sorted(shrinks)
        assert trial.shrink - shrinks[-1] in (0, 1)
        assert oom == "shrink" or trial.shrink == 0
        assert trial.reason != "oversize"
        if trial.diverged:
            assert (trial.state, trial.reason, trial.loss) == ("STOPPED", "diverged", math.inf)


def fill(desk):
    """Give orders to up to three slots."""
    for event in desk.controller.stop_hopeless(0.0):
        desk.happen(event)
    desk.cool()
    while len(desk.state.trials.orders) < 3 and wants(desk.controller.next()):
        desk.start()


def wants(move):
    return type(move).__name__ in ("Order", "NewTrial")


def act(desk, trial, deed, save, loss):
    """Let something happen to a trial that has a slot; the trial obeys a milestone's decision."""
    order = trial.order
    if deed == "attach":
        desk.happen(Attached(0.0, "here:2"))
    elif deed in FAILURES:
        desk.fail(order, deed)
    elif (
        deed == "end"
        or trial.intends("stop")
        or trial.intends("yield")
        or trial.step >= order.until
    ):
        desk.end(order)
    else:
        desk.report(order, trial.step + 1, math.nan if deed == "nan" else loss, save)
        if trial.step >= order.until and trial.order is not None:
            desk.end(order)


SAME = """Traceback (most recent call last):
  File "train.py", line 9, in train
    rows.reshape(3)
ValueError: trial {trial}: bad shape
  in the second batch of {trial}
"""


def fail_alike(desk, message=SAME, cause="user", whole=False):
    """Let a new trial fail, and return the events that follow."""
    order = desk.start()
    text = message.format(trial=order.trial)
    return desk.happen(Failed(desk.time, order.id, order.trial, cause, text, whole=whole))


def test_three_trials_that_fail_alike_before_any_reports_end_the_sweep():
    desk = at_desk()
    assert [fail_alike(desk), fail_alike(desk)] == [[], []]
    running = desk.start()
    closed, *stops = fail_alike(desk)
    assert (closed.kind, closed.reason) == ("closed", "failures")
    assert [stop.order for stop in stops] == [running.id]
    desk.end(running)
    assert isinstance(desk.controller.next(), SearchDone)
    finished = desk.controller.finish(desk.time)
    assert finished.state == "FAILED"
    assert finished.reason == (
        "3 of 4 trials failed before any reported; "
        "the first was t0001: ValueError: trial t0001: bad shape"
    )
    again = fold(desk.controller.spec, desk.log)
    assert (again.closed, again.trials.most_same_error) == ("failures", 3)


def test_trials_fail_alike_whatever_values_their_errors_name():
    desk = at_desk()
    for rate in (0.55, 1e-3, 0.25):
        assert desk.state.closed is None
        fail_alike(desk, f"train.py: error: unrecognized arguments: --learning_rate={rate}")
    assert desk.state.closed == "failures"


@pytest.mark.parametrize("cause", ["oom", "infra", "diverged"])
def test_what_is_not_the_codes_fault_ends_no_sweep(cause):
    desk = at_desk(failure={"infra_retries": 0})
    for _ in range(5):
        fail_alike(desk, cause=cause)
    assert desk.state.closed is None


def test_three_trials_whose_processes_crash_before_any_reports_end_the_sweep():
    desk = at_desk(failure={"infra_retries": 3})
    orders = [desk.start() for _ in range(3)]
    for number, order in enumerate(orders):
        assert desk.state.closed is None
        text = f"[hposvc] killed by SIGSEGV in load (net.py:{number})"
        desk.happen(Failed(desk.time, order.id, order.trial, "infra", text, crashed=True))
    assert desk.state.closed == "failures"
    assert desk.controller.finish(desk.time).reason == (
        "3 of 3 trials crashed before any reported; "
        "the first was t0001: killed by SIGSEGV in load (net.py:0)"
    )


def test_failures_that_differ_or_come_after_a_report_end_no_sweep():
    desk = at_desk()
    for name in ("lr", "momentum", "dropout", "width", "depth"):
        fail_alike(desk, message=f"ValueError: {name} is too high")
    desk.report(desk.start(), 1, 0.5)
    for _ in range(4):
        fail_alike(desk)
    assert desk.state.closed is None


def test_a_report_without_the_sweeps_metric_ends_it_at_once():
    desk = at_desk(failure={"user_retries": 3})
    message = "ReportError: trial {trial}: the sweep's metric 'los' is missing"
    closed, *_ = fail_alike(desk, message, whole=True)
    assert (closed.kind, closed.reason) == ("closed", "failures")
    assert "'los' is missing" in desk.controller.finish(desk.time).reason


def test_once_a_trial_has_reported_a_missing_metric_is_that_trials_fault():
    desk = at_desk()
    desk.report(desk.start(), 1, 0.5)
    assert fail_alike(desk, whole=True) == []
    assert desk.state.closed is None


@pytest.mark.parametrize(
    ("value", "words"), [(math.nan, "loss is NaN at step 2"), (math.inf, "loss is +inf at step 2")]
)
def test_a_value_that_is_not_finite_is_named(value, words):
    desk = at_desk(trials={"max": 1})
    order = desk.start()
    desk.report(order, 1, 0.5)
    desk.report(order, 2, value)
    desk.end(order)
    assert summary.trials(desk.state, {})[0].detail == words
    shown = table(summary.trials(desk.state, {}), desk.state.spec, ())
    assert f"diverged: {words}" in next(iter(shown.columns[-2].cells))
    why = f"no trial has a value; 1 of 1 diverged, the first was t0001: {words}"
    assert desk.controller.finish(desk.time).reason == why
