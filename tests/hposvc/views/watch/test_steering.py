from simulated_sweeps import make_spec
from sweep_stories import begin
from watched_sweeps import failing, state_of

from hposvc.events import Attached
from hposvc.views.watch.steering import question

RUNNING = [Attached(0.0, "here:1"), *begin(1, 1.0)]


def ask(verb, events, trial="t0001"):
    return question(verb, "digits-1", state_of(make_spec(), events), trial)


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
