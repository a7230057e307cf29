"""The model's answer to a proposed configuration, in sentences."""

from collections.abc import Iterator, Mapping
from typing import Any

from hposvc.open_sweep import Record
from hposvc.state.trial import OVER
from hposvc.text import number
from hposvc.views.formatting import configuration, scalar


def describe(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of an answer (hposvc.verbs.propose) for people."""
    if answer["version"]:
        yield (
            f"{answer['version']} is a new version of the code"
            if answer["new_version"]
            else f"the sweep has this code as {answer['version']}"
        )
    filled = f"  (chosen by the model: {', '.join(answer['filled'])})" if answer["filled"] else ""
    yield f"{configuration(answer['params'], answer['params'])}{filled}"
    when = "at the end" if answer["step"] is None else f"at step {answer['step']}"
    for metric, expected in answer["predicted"].items():
        mean, deviation = number(expected["mean"]), number(expected["deviation"], 2)
        yield f"{metric} {when}, without noise: {mean} ± {deviation} (mean ± standard deviation)"
    if answer["unknown"]:
        yield f"no prediction: {answer['unknown']}"
    if answer["better"] is not None:
        best = f"{answer['best']}, {number(answer['best_value'])} as measured"
        best += f", {number(answer['best_mean'])} without noise"
        yield f"better than the best so far ({best}): probability {answer['better']:.0%}"
    if answer["nearest"] is not None:
        yield describe_nearest(answer["nearest"])
    yield describe_turn(answer)


def describe_nearest(nearest: Mapping[str, Any]) -> str:
    """Say how the nearest trial differs, and which value it has."""
    value = "it failed" if nearest["state"] == "FAILED" else "no value yet"
    if (known := nearest["value"]) is not None:
        value = f"value {'/'.join(map(number, known if isinstance(known, list) else [known]))}"
    differences = [
        f"{name} {scalar(ours)} instead of {scalar(theirs)}"
        for name, (theirs, ours) in nearest["differs"].items()
    ]
    how = "; ".join(differences) or "the same configuration"
    return f"nearest trial: {nearest['trial']}, {value}; {how} (distance {nearest['distance']:.2g})"


def describe_turn(answer: Mapping[str, Any]) -> str:
    """Say whether the configuration is queued, and when its trial begins."""
    sweep, turn, begun = answer["sweep"], answer["turn"], answer["begun"]
    if answer["refused"]:
        return f"not queued: {answer['refused']}"
    if not answer["queued"]:
        return "not queued: --run has the sweep train it"
    at = "in the next free slot" if turn <= begun else f"once {turn} trials have begun, now {begun}"
    room = begun if answer["state"] in OVER else answer["room"]
    if room is not None and turn >= room:
        more = turn + 1 - room
        at = f"after `hposvc extend {sweep} --trials {more}`, as no trial is left for it"
    elif answer["driver"] != "alive":
        at += f", when you resume the sweep: hposvc resume {sweep}"
    return f"queued: it begins {at}"


def describe_queue(record: Record) -> Iterator[str]:
    """Say how many configurations that people proposed wait for their trials, if there are any."""
    state, queue = record.state, record.state.proposals
    if waiting := len(queue.waiting) + len(record.proposed):
        share = state.spec.trials.proposed
        after = max(queue.begins_after(0, share), len(state.spec.first_points))
        yield (
            f"{waiting} proposed by hposvc propose wait, {len(queue.begun)} were begun; the next "
            f"begins after {after} trials, as proposals are {share:.0%} of them at most"
        )
