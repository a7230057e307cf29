"""docs/advanced/plug-ins.md: its plug-ins work in a sweep, from their files beside the spec."""

import json
import re
from functools import partial

import command_line
import pages
import pytest
from ruamel.yaml import YAML

FILES = {
    re.match(r'"""(\w+\.py): ', block)[1]: block for block in pages.blocks("advanced/plug-ins.md")
}
SECTIONS = [YAML(typ="safe").load(block) for block in pages.blocks("advanced/plug-ins.md", "yaml")]
CURVE = """
def curve(params, step):
    return {"loss": (params["x"] - 1.0) ** 2 + 1 / step}, 1.0
"""
SPEC = {
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"x": {"min": 0.0, "max": 6.0}},
    "trials": {"max": 60, "parallel": 2},
    "engine": {"type": "simulate", "curve": "curves.py:curve"},
    "search": "random",
}


@pytest.fixture
def hposvc(tmp_path, monkeypatch, capfd):
    """Return a function that calls the command line, in a folder with the files of the page."""
    for name, text in {**FILES, "curves.py": CURVE}.items():
        (tmp_path / name).write_text(text)
    spec = dict(SPEC)
    for section in SECTIONS:
        spec |= section
    own = [sink for sink in spec["tracking"]["send_to"] if sink != "mlflow"]  # it takes seconds
    (tmp_path / "sweep.yaml").write_text(json.dumps({**spec, "tracking": {"send_to": own}}))
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HPOSVC_REPORT", "off")
    monkeypatch.delenv("HPOSVC_DB", raising=False)

    return partial(command_line.run, capfd)


def test_the_plug_ins_of_the_page_decide_and_record_a_sweep(hposvc, tmp_path):
    assert set(FILES) == {"my_scheduler.py", "my_rules.py", "my_sink.py"}
    code, _, err = hposvc("run", tmp_path / "sweep.yaml", "--id", "a")
    assert code == 0, err
    assert "the best three are within" in err
    code, out, _ = hposvc("trials", "a", "-o", "json")
    trials = {trial["trial"]: trial for trial in json.loads(out)}
    assert 8 <= len(trials) < 60
    assert "bound" in {trial["reason"] for trial in trials.values()}
    states = {file.stem: file.read_text() for file in tmp_path.glob("home/sweeps/a/states/*")}
    assert states.keys() == trials.keys()
    assert all(text.startswith(trials[name]["state"]) for name, text in states.items())


def test_a_secret_that_a_sink_prints_or_raises_is_not_in_its_log(hposvc, tmp_path, monkeypatch):
    secret = "a-token-of-a-tracker"
    monkeypatch.setenv("TRACKER_TOKEN", secret)
    (tmp_path / "talks.py").write_text("""
import os
from hposvc.tracking.sink import Sink

class Talking(Sink):
    def __init__(self, setting):
        pass
    def send(self, batches):
        print("sent with", os.environ["TRACKER_TOKEN"], flush=True)
        raise ConnectionError("refused " + os.environ["TRACKER_TOKEN"])
""")
    spec = {**SPEC, "trials": {"max": 2}, "environment": {"secrets": ["TRACKER_TOKEN"]}}
    spec["tracking"] = {"send_to": ["talks.py:Talking"]}
    (tmp_path / "talks.yaml").write_text(json.dumps(spec))
    code, _, err = hposvc("run", tmp_path / "talks.yaml", "--id", "a")
    assert code == 0, err
    log = (tmp_path / "home/sweeps/a/logs/recorder.log").read_text()
    assert "sent with [secret]" in log
    assert "ConnectionError: refused [secret]" in log
    assert secret not in log


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("search", "my_rules.py:settled", "search.method: .*settled is not a dataclass"),
        ("scheduler.type", "my_schedule.py:Bound", "scheduler.type: there is no file /"),
        ("stop", ["my_rules.py:setled"], r"stop.rules\[0\]: .*my_rules.py has no such name; did"),
        ("stop", ["curves.py:curve"], r"stop.rules\[0\]: .*curve takes \(params, step\); a rule"),
        ("stop", ["my_sink.py:States"], r"stop.rules\[0\]: .*States is a class; name a function"),
        ("tracking.send_to", ["my_sink.py:Sink"], r"send_to\[0\]: .*Sink is no sink: it has no se"),
        ("tracking.send_to", ["my_rules.py:settled"], r"send_to\[0\]: .* is .*; name a class"),
        ("tracking.send_to", ["mlfow"], r"send_to\[0\]: no such sink; did you mean 'mlflow'\?$"),
    ],
)
def test_a_wrong_plug_in_is_refused_with_its_place(hposvc, tmp_path, key, value, message):
    code, _, err = hposvc(
        "validate", tmp_path / "sweep.yaml", "--set", f"{key}={json.dumps(value)}"
    )
    assert code == 2
    assert re.search(message, err.strip()), err
