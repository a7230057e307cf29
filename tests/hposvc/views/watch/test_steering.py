from simulated_sweeps import make_spec
from watched_sweeps import begin, failing, watched

from hposvc.events import Attached, Finished, Suspended
from hposvc.operations.requests import more_trials
from hposvc.views.watch.steering import extension, question

RUNNING = [Attached(0.0, "here:1"), *begin("t0001", 1, 1.0)]


def ask(verb, events, trial="t0001"):
    return question(verb, "digits-1", watched(make_spec(), events).state, trial)


def test_a_running_trial_or_the_sweep_can_be_stopped_and_killed():
    stop = {choice.key: (choice.verb, choice.trial) for choice in ask("stop", RUNNING).choices}
    assert stop == {"t": ("stop", "t0001"), "w": ("stop", None), "d": ("drain", None)}
    kill = {choice.key: (choice.verb, choice.trial) for choice in ask("kill", RUNNING).choices}
    assert kill == {"t": ("kill", "t0001"), "w": ("kill", None)}


def test_a_trial_that_is_over_is_not_offered_for_a_stop_but_for_a_retry():
    asked = ask("stop", failing(1))
    assert [choice.key for choice in asked.choices] == ["w", "d"]
    assert "t0001 is over" in asked.title
    retry = {choice.key: (choice.verb, choice.trial) for choice in ask("retry", failing(1)).choices}
    assert retry == {"t": ("retry", "t0001"), "w": ("retry", None)}


def test_what_is_refused_says_why():
    ended = [*RUNNING, Finished(2.0, "STOPPED", "user")]
    for verb in ("pause", "stop", "kill"):
        assert ask(verb, ended).title == f"digits-1 has ended: STOPPED; there is nothing to {verb}"
        assert not ask(verb, ended).choices
    assert "no trial has failed" in ask("retry", RUNNING).title
    assert "hposvc resume digits-1" in ask("pause", [*RUNNING, Suspended(2.0)]).title
    assert ask("extend", ended).number


def test_a_sweep_without_trials_can_still_be_stopped():
    assert [choice.key for choice in ask("stop", [], None).choices] == ["w", "d"]


def test_an_extension_adds_trials():
    assert extension(8).changes == more_trials({}, 8)
