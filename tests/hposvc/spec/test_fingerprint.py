"""Fingerprints cover the files that trials load, and none that trials write."""

from hposvc import spec
from hposvc.spec import fingerprint

SWEEP = {
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"min": 0.1, "max": 1.0}},
    "trials": {"max": 2},
}


def test_programs_of_a_command_are_fingerprinted_and_their_outputs_are_not(tmp_path):
    (tmp_path / "pkg").mkdir()
    for name in ("a.py", "pkg/b.py", "c.sh", "out.csv"):
        (tmp_path / name).write_text(name)

    def given(*command):
        return spec.load({**SWEEP, "folder": tmp_path, "command": [*command, "${args}"]})

    assert {*fingerprint.fingerprint(given("python", "a.py", "out.csv"))} == {"a.py"}
    assert {*fingerprint.fingerprint(given("python", "-m", "pkg.b"))} == {"pkg/b.py"}
    assert {*fingerprint.fingerprint(given("sh", "-c", "sh c.sh > out.csv"))} == {"c.sh"}
    assert {*fingerprint.describe(given("python", "a.py", "out.csv"))["sha256"]} == {
        "a.py",
        "out.csv",
    }
