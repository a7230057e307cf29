"""Notifications tried out, and the page about them."""

import json
import re
from dataclasses import fields
from pathlib import Path

from click.testing import CliRunner
from receivers import receiver
from ruamel.yaml import YAML
from simulated_sweeps import make_spec

from hposvc import spec as specs
from hposvc.cli.main import commands
from hposvc.spec.notify import MOMENTS
from hposvc.tracking.messages import Message
from hposvc.verbs.notify import try_out
from hposvc.verbs.options import Shared

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "notifications.md").read_text()


def test_a_spec_is_tried_out_channel_by_channel():
    with receiver(text="thanks") as room:
        spec = make_spec(notify=[{"webhook": room.url}, {"apprise": "${NOT_THERE}"}])
        first, second = try_out(spec, {})
        assert [body["what"] for body in room.bodies] == ["test"]
    assert (first.sent, first.answer) == (True, "HTTP 200: thanks")
    assert (second.sent, second.channel) == (False, "apprise ${NOT_THERE}")
    assert second.answer.startswith("NOT_THERE is not set")


def test_the_verb_prints_what_the_receivers_said(tmp_path):
    with receiver(statuses=[200, 500], text="thanks") as room:
        file = tmp_path / "sweep.yaml"
        spec = specs.dump(make_spec(notify=[{"webhook": room.url}]))
        YAML(typ="safe").dump(spec, file)
        for code, said in ((0, "sent: HTTP 200: thanks"), (5, "not sent: HTTP 500: thanks")):
            options = {"obj": Shared(), "standalone_mode": False}
            result = CliRunner().invoke(commands, ["notify", f"{file}"], **options)
            assert result.return_value == code, result.exception
            assert result.output == f"webhook 127.0.0.1: {said}\n"


def test_the_page_has_a_spec_that_loads_the_fields_of_a_message_and_every_moment():
    notify = YAML(typ="safe").load(re.search(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)[1])
    assert len(make_spec(**notify, budget={"wall": "1h"}).notify) == 3
    body = json.loads(re.search(r"^```json\n(.*?)^```$", PAGE, re.M | re.S)[1])
    assert body.keys() == {"version"} | {field.name for field in fields(Message)}
    rows = re.findall(r"^\| `(\w+)` \| `", PAGE, re.M)
    assert set(rows) == set(MOMENTS)
