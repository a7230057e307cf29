"""Journals of earlier versions say what they said when they were written.

`recorded/` holds sweeps that earlier versions ran: a line with the spec and what the sweep came to,
then a line for each event. If this fails, an old sweep comes back with other results.
"""

import json
from pathlib import Path

import pytest

from hposvc import spec as specs
from hposvc.errors import Problem, SpecError
from hposvc.events import VERSION, Event, from_json, to_json
from hposvc.spec import cross_checks, extension
from hposvc.state.sweep import SweepState

RECORDED = sorted((Path(__file__).parent / "recorded").glob("v*.jsonl"))


def read(path: Path) -> tuple[dict, dict, list[Event]]:
    """Return the spec, what the sweep came to, and its events."""
    first, *rest = path.read_text().splitlines()
    head = json.loads(first)
    events = (json.loads(line) for line in rest)
    return (
        head["spec"],
        head["expected"],
        [from_json(kind, time, json.dumps(body)) for kind, time, body in events],
    )


def facts(state: SweepState) -> dict:
    """Return what a sweep came to, in the form in which it was recorded."""
    return {
        "state": state.state,
        "reason": state.reason,
        "best": state.best,
        "front": state.front,
        "elapsed_s": state.elapsed_s,
        "rank_s": state.rank_s,
        "next_order": state.next_order,
        "trials": {
            trial.id: {
                "state": trial.state,
                "reason": trial.reason,
                "step": trial.step,
                "values": list(trial.values),
                "params": dict(trial.params),
                "attempts": trial.attempts,
                "failures": trial.failures,
                "seconds": trial.seconds,
                "checkpoints": [saved.path for saved in trial.checkpoints],
            }
            for trial in state.trials.values()
        },
    }


def replayed(frozen: dict, events: list[Event]) -> dict:
    state = SweepState(specs.thaw(frozen))
    for event in events:
        state.apply(event)
    return json.loads(json.dumps(facts(state)))


def test_every_version_up_to_this_one_has_journals():
    versions = {int(path.name.partition("-")[0].removeprefix("v")) for path in RECORDED}
    assert versions == set(range(2, VERSION + 1))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_journal_says_what_it_said(path):
    frozen, expected, events = read(path)
    assert replayed(frozen, events) == expected


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_stricter_rules_change_nothing_that_happened(path, monkeypatch):
    def refuse(*_):
        return [Problem(("trials", "max"), "is refused by a rule of tomorrow")]

    for name in dir(cross_checks):
        if name.endswith("_problems"):
            monkeypatch.setattr(cross_checks, name, refuse)
    monkeypatch.setattr(extension, "LIMITS", ())
    frozen, expected, events = read(path)
    with pytest.raises(SpecError, match="rule of tomorrow"):
        specs.load(specs.dump(specs.thaw(frozen)))
    assert replayed(frozen, events) == expected


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_events_are_written_as_they_were_read(path):
    for event in read(path)[2]:
        again = from_json(event.kind, event.time, to_json(event))
        assert to_json(again) == to_json(event)
