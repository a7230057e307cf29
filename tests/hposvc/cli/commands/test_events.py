"""`hposvc events` prints what the journal has, once, and follows a sweep to its end."""

import json
import threading

import pytest
import recorded_home

from hposvc import api
from hposvc.cli.main import main
from hposvc.events import Finished, RetryDue


def printed(capsys, home, *arguments):
    with pytest.raises(SystemExit) as end:
        main(["events", *arguments, "--home", str(home)])
    assert not end.value.code
    return capsys.readouterr().out


def test_it_prints_a_line_for_each_event_or_a_document(tmp_path, capsys):
    sweeps = api.Sweeps.open(tmp_path)
    recorded_home.cut_off(sweeps, "cut-off")
    lines = printed(capsys, tmp_path, "last", "--since", "2").splitlines()
    assert [line.split()[0] for line in lines] == ["3", "4", "5"]
    assert [line.split()[2] for line in lines] == ["ordered", "reported", "reported"]
    page = json.loads(printed(capsys, tmp_path, "cut-off", "-o", "json"))
    assert (page["next"], page["over"]) == (5, False)
    assert page["events"][4]["data"]["metrics"] == {"loss": 0.4, "norm": "Infinity"}


def test_it_follows_a_sweep_to_its_end_and_prints_each_event_once(tmp_path, capsys):
    sweeps = api.Sweeps.open(tmp_path)
    recorded_home.cut_off(sweeps, "cut-off")

    def go_on():
        for seq in range(5, 9):
            sweeps.journal.append("cut-off", seq, [RetryDue(6.0, "t0001")])
        sweeps.journal.append("cut-off", 9, [Finished(9.0, "STOPPED", "user")])

    writer = threading.Thread(target=go_on)
    writer.start()
    text = printed(capsys, tmp_path, "cut-off", "-f", "-o", "json")
    writer.join()
    events = [json.loads(line) for line in text.splitlines()]
    assert [event["seq"] for event in events] == [*range(1, 11)]
    assert events[-1]["kind"] == "finished"
