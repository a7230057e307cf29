"""Journals of earlier versions say what they said when they were written.

`recorded/` holds sweeps that earlier versions ran: a line with the spec and what the sweep came to,
then a line for each event. If this fails, an old sweep comes back with other results.
"""

import json
from pathlib import Path

import pytest

from hposvc import spec as specs
from hposvc.errors import Problem, SpecError
from hposvc.events import VERSION, Conversion, Event, from_json, to_json
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
    assert versions == set(range(1, VERSION + 1))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_journal_says_what_it_said(path):
    frozen, expected, events = read(path)
    assert replayed(frozen, events) == expected


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_stricter_rules_change_nothing_that_happened(path, monkeypatch):
    def refuse(*_):
        return [Problem(("trials", "max"), "is refused by a rule of tomorrow")]

    monkeypatch.setattr(cross_checks, "CHECKS", (refuse,))
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


def renamed(params: dict) -> dict:
    """Return values by parameter after a renaming as a later version may make it."""
    return {"rate" if name == "lr" else name: value for name, value in params.items()}


def convert_event(kind: str, data: dict) -> dict:
    if kind == "ordered":
        return {"order": convert_event("", data["order"])}
    return {**data, "params": renamed(data["params"])} if "params" in data else data


def convert_spec(spec: dict) -> dict:
    return {**spec, "parameters": renamed(spec["parameters"])}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_later_version_converts_what_this_one_wrote(monkeypatch, share):
    monkeypatch.setattr("hposvc.events.CONVERSIONS", (Conversion(convert_event, convert_spec),))
    frozen, expected, events = read(RECORDED[0])
    later = [from_json(event.kind, event.time, to_json(event)) for event in events]
    change = round(share * len(events))  # from there on, the later version wrote
    for trial in expected["trials"].values():
        trial["params"] = renamed(trial["params"])
    assert replayed(frozen, [*events[:change], *later[change:]]) == expected
