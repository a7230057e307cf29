"""Notifications on request, and what people are told of those that were not delivered."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner
from receivers import receiver
from ruamel.yaml import YAML
from simulated_sweeps import Lab, make_spec

from hposvc import api
from hposvc import spec as specs
from hposvc.cli.main import commands
from hposvc.journal.journal import SweepRow
from hposvc.spec.notify import MOMENTS
from hposvc.tracking.addresses import ALLOWED
from hposvc.tracking.messages import Message
from hposvc.verbs.notify import send_again, try_out
from hposvc.verbs.options import Shared
from hposvc.views.result import describe_undelivered

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "notifications.md").read_text()
HERE = {ALLOWED: "127.0.0.1"}


@pytest.fixture
def sweeps(tmp_path):
    return api.Sweeps.open(tmp_path / "home")


def run(sweeps, tmp_path, *channels):
    spec = make_spec(notify=list(channels))
    sweeps.journal.create(SweepRow("s", "s", "p", 0.0, specs.dump(spec), {}))
    Lab(sweeps.journal, tmp_path).run(spec)


def test_what_was_not_delivered_is_said_with_its_reason_and_sent_again(sweeps, tmp_path):
    with receiver(statuses=[404], text="no such hook") as room:
        run(sweeps, tmp_path, {"webhook": room.url})
        (result,) = send_again(sweeps, "s", HERE)
        assert (result.sent, result.answer) == (False, "HTTP 404: no such hook")
        record = api.load(sweeps, "s")
        assert describe_undelivered(record).splitlines() == [
            "webhook 127.0.0.1 was not told of done: HTTP 404: no such hook (1 attempts, given up)",
            "when that is mended: hposvc notify s",
        ]
        (undelivered,) = record.status().undelivered
        assert (undelivered.channel, undelivered.what) == ("webhook 127.0.0.1", "done")
        assert "secret-path" not in f"{record.status()}"
        room.statuses[:] = [200]
        (result,) = send_again(sweeps, "s", HERE)
        assert (result.channel, result.what, result.sent) == ("webhook 127.0.0.1", "done", True)
        assert send_again(sweeps, "s", HERE) == []
    assert describe_undelivered(api.load(sweeps, "s")) == ""


def test_a_spec_is_tried_out_channel_by_channel():
    with receiver(text="thanks") as room:
        spec = make_spec(notify=[{"webhook": room.url}, {"apprise": "${NOT_THERE}"}])
        first, second = try_out(spec, HERE)
        assert [body["what"] for body in room.bodies] == ["test"]
    assert (first.sent, first.answer) == (True, "HTTP 200: thanks")
    assert (second.sent, second.channel) == (False, "apprise ${NOT_THERE}")
    assert second.answer.startswith("NOT_THERE is not set")


def test_the_verb_prints_what_the_receivers_said(tmp_path, monkeypatch):
    monkeypatch.setenv(ALLOWED, "127.0.0.1")
    with receiver(statuses=[200, 500], text="thanks") as room:
        file = tmp_path / "sweep.yaml"
        spec = specs.dump(make_spec(notify=[{"webhook": room.url}]))
        YAML(typ="safe").dump(spec, file)
        for code, said in ((0, "sent: HTTP 200: thanks"), (5, "not sent: HTTP 500: thanks")):
            options = {"obj": Shared(), "standalone_mode": False}
            result = CliRunner().invoke(commands, ["notify", f"{file}", "--test"], **options)
            assert result.return_value == code, result.exception
            assert result.output == f"webhook 127.0.0.1: test: {said}\n"


def test_the_page_has_a_spec_that_loads_the_fields_of_a_message_and_every_moment():
    notify = YAML(typ="safe").load(re.search(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)[1])
    assert len(make_spec(**notify, budget={"wall": "1h"}).notify) == 3
    body = json.loads(re.search(r"^```json\n(.*?)^```$", PAGE, re.M | re.S)[1])
    assert body.keys() == {"version"} | {field.name for field in fields(Message)}
    rows = re.findall(r"^\| `(\w+)` \| `", PAGE, re.M)
    assert set(rows) == set(MOMENTS)
