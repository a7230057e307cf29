"""The operator's file."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from hposvc.errors import SpecError
from hposvc.server.config import Config, read
from hposvc.spec.parsing.coercion import fill
from hposvc.tracking.services import FIXED, SERVICES
from hposvc.tracking.webhook import HOSTS

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "server.md").read_text()


def read_text(tmp_path, text):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return read({"HPOSVC_CONFIG": f"{file}"})


def test_the_file_of_the_page_is_read(tmp_path):
    text = PAGE[PAGE.index("## The operator's file") :]
    config = read_text(tmp_path, re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    assert config.projects["vision"].members["ann"] == ("steer", "submit")
    assert config.drivers.max == 8
    assert config.requests.body == 4 * 2**20


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("project:\n", r"config.yaml:1:1: project: no such key; did you mean 'projects'\?"),
        ("drivers: {max: 0}", r":1:16: drivers.max: is 0; give 1 or more"),
        ("requests:\n  body: big", r":2:9: requests.body: is 'big'; give a size"),
        ("hosts: ['https://a.example']", r"is 'https://a.example'; give a name or an address"),
        ("projects: {a: {members: {ann: [write]}}}", r"members.ann\[0\]: is 'write'; choose read"),
        ("limits:\n  trials.mx: {max: 3}", r":2:3: limits.trials.mx: no such .*did you mean 'max'"),
        ("limits: {trials.max: {}}", r"allows everything; give max, min, one_of or under"),
        ("limits: {engine.type: {max: ray}}", r"is no number; use one_of"),
        ("defaults: {trails.max: 3}", r"defaults.trails.max: no such .*did you mean 'trials'"),
        ("limits: {trials.max.more: {max: 3}}", r"limits.trials.max.more: .*no such key"),
    ],
)
def test_a_mistake_has_its_place_and_what_is_allowed(tmp_path, text, problem):
    with pytest.raises(SpecError, match=problem):
        read_text(tmp_path, text)


def test_the_page_has_every_key_with_its_default():
    table = PAGE[PAGE.index("| key | default | meaning |") :]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| ([^|]*) \|", table, re.MULTILINE))
    config, keys = Config(), set()
    for section in ("drivers", "requests", "notify"):
        keys |= {f"{section}.{each.name}" for each in fields(getattr(config, section))}
    keys |= {"hosts", "proxies", "loopback", "queue", "projects.NAME.members.OWNER"}
    assert rows.keys() == keys | {"defaults.KEY", "limits.KEY"}
    requests = {name.partition(".")[2]: text for name, text in rows.items() if "requests." in name}
    written = {name: text.strip("`") for name, text in requests.items()}
    data = {name: int(text) if text.isdigit() else text for name, text in written.items()}
    assert fill(Config, {"requests": data}).requests == config.requests


def test_drivers_are_told_what_notifications_may_reach():
    services = ",".join(FIXED)
    assert Config().notify.environment == {HOSTS: "", SERVICES: services}
    data = {"hosts": ["hooks.slack.com", "10.1.0.1"], "services": ["slack", "mailtos"]}
    written = {HOSTS: "hooks.slack.com,10.1.0.1", SERVICES: "slack,mailtos"}
    assert fill(Config, {"notify": data}).notify.environment == written
