"""Requests by the keys of `watch`, and why some are refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hposvc.events import Verb
from hposvc.spec.extension import more_trials
from hposvc.state.sweep import SweepState

KEYS: Mapping[str, Verb] = {"p": "pause", "s": "stop", "k": "kill", "e": "extend", "r": "retry"}


@dataclass(frozen=True)
class SteeringChoice:
    """A request that a key sends."""

    key: str
    verb: Verb
    text: str  # for people: what happens
    trial: str | None = None
    changes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class SteeringQuestion:
    """Question before a request is sent; without choices it says why there is none."""

    title: str
    choices: tuple[SteeringChoice, ...] = ()
    number: str = ""  # what a number is asked for; empty: none is


def question(verb: Verb, sweep: str, state: SweepState, trial: str | None) -> SteeringQuestion:
    """Return what to ask about a verb.

    Args:
        trial: the selected trial; None: there is none.
    """
    if state.finished and verb not in ("extend", "retry"):
        return SteeringQuestion(f"{sweep} has ended: {state.state}; there is nothing to {verb}")
    match verb:
        case "pause":
            return _pause(sweep, state)
        case "extend":
            return SteeringQuestion(f"extend {sweep}", number="trials to add")
        case "retry":
            return _retry(state, trial)
    return _end(verb, sweep, state, trial)


def extension(trials: int) -> SteeringChoice:
    """Return the request for so many more trials.

    Raises:
        SpecError: there are none.
    """
    return SteeringChoice("", "extend", f"{trials} more trials", changes=more_trials({}, trials))


def _pause(sweep: str, state: SweepState) -> SteeringQuestion:
    if state.state == "PAUSED":
        return SteeringQuestion(f"{sweep} is paused; go on with: hposvc resume {sweep}")
    text = "trials keep their checkpoints, and hposvc resume goes on"
    return SteeringQuestion(f"pause {sweep}?", (SteeringChoice("y", "pause", text),))


def _end(verb: Verb, sweep: str, state: SweepState, trial: str | None) -> SteeringQuestion:
    choices = []
    soon = verb == "stop"
    if trial is not None and not (state.trials[trial].over and state.spec.finalists is None):
        text = f"trial {trial}, {'when it next reports' if soon else 'at once'}"
        choices.append(SteeringChoice("t", verb, text, trial))
    text = f"the whole sweep, {'when its trials next report' if soon else 'at once'}"
    choices.append(SteeringChoice("w", verb, text))
    if verb == "stop":
        choices.append(
            SteeringChoice("d", "drain", "the whole sweep, once its running trials are done")
        )
    ended = f" ({trial} is over)" if trial and len(choices) < 2 + (verb == "stop") else ""
    return SteeringQuestion(f"{verb} what?{ended}", tuple(choices))


def _retry(state: SweepState, trial: str | None) -> SteeringQuestion:
    failed = state.trials.counts.get("FAILED", 0) + len(state.replicates.failed())
    if not failed:
        return SteeringQuestion("no trial has failed; only failed trials are tried again")
    choices = []
    if trial is not None and state.trials[trial].state == "FAILED":
        choices.append(
            SteeringChoice("t", "retry", f"trial {trial}, from its last checkpoint", trial)
        )
    choices.append(SteeringChoice("w", "retry", f"all {failed} failed trials"))
    return SteeringQuestion("retry what?", tuple(choices))
