"""`hposvc events`: what a program and a person read of a sweep."""

import json
import threading

import command_line
import pytest
import recorded_home

from hposvc import api
from hposvc.events import Failed, Finished, Ordered, Proposed, Reported, RetryDue, to_json
from hposvc.verbs.events import line
from trainables.order import Order


def printed(capfd, home, *arguments):
    code, out, _ = command_line.run(capfd, "events", *arguments, "--home", home)
    assert code == 0
    return out


def test_it_prints_a_line_for_each_event_or_a_document(tmp_path, capfd):
    sweeps = api.Sweeps.open(tmp_path)
    recorded_home.cut_off(sweeps, "cut-off")
    lines = printed(capfd, tmp_path, "last", "--since", "2").splitlines()
    assert [line.split()[0] for line in lines] == ["3", "4", "5"]
    assert [line.split()[2] for line in lines] == ["ordered", "reported", "reported"]
    page = json.loads(printed(capfd, tmp_path, "cut-off", "-o", "json"))
    assert (page["next"], page["over"]) == (5, False)
    assert page["events"][4]["data"]["metrics"] == {"loss": 0.4, "norm": "Infinity"}


def test_it_follows_a_sweep_to_its_end_and_prints_each_event_once(tmp_path, capfd):
    sweeps = api.Sweeps.open(tmp_path)
    recorded_home.cut_off(sweeps, "cut-off")

    def go_on():
        for seq in range(5, 9):
            sweeps.journal.append("cut-off", seq, [RetryDue(6.0, "t0001")])
        sweeps.journal.append("cut-off", 9, [Finished(9.0, "STOPPED", "user")])

    writer = threading.Thread(target=go_on)
    writer.start()
    text = printed(capfd, tmp_path, "cut-off", "-f", "-o", "json")
    writer.join()
    events = [json.loads(line) for line in text.splitlines()]
    assert [event["seq"] for event in events] == [*range(1, 11)]
    assert events[-1]["kind"] == "finished"


def of(event, seq=7):
    return {"seq": seq, "kind": event.kind, "time": event.time, "data": json.loads(to_json(event))}


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            Reported(1.0, 3, "t0001", 2, {"loss": 0.123456789}),
            "t0001   order=3 step=2 loss=0.12346",
        ),
        (Proposed(1.0, "t0002", {"lr": 0.01}, {}, 9), "t0002   lr=0.01 until=9"),
        (
            Ordered(1.0, Order(4, "t0003", {"lr": 0.5}, None, 1, 9)),
            "t0003   id=4 lr=0.5 first=1 until=9",
        ),
        (
            Failed(
                1.0,
                4,
                "t0003",
                "user",
                "its last lines:\nTraceback (most recent call last):\n  x\nOSError: y",
            ),
            "t0003   order=4 cause=user message=OSError: y",
        ),
    ],
)
def test_a_line_has_number_kind_trial_and_what_happened(event, text):
    shown = line(of(event))
    assert shown.startswith("     7  ")
    assert shown.split()[2] == event.kind
    assert shown.endswith(text)


def test_a_line_is_one_line_of_some_length_without_control_characters():
    event = Reported(1.0, 3, "t0001", 2, {"a\x1b[31m\nb": 1.0, **{f"m{n}": 0.5 for n in range(99)}})
    shown = line(of(event))
    assert shown.isprintable()
    assert len(shown) < 220
