"""What a shell asks when somebody presses tab, of the real command."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def tab(tmp_path):
    """Return a function that returns what is proposed at the end of a line."""

    def propose(line: str) -> list[str]:
        words = line.split(" ")
        answer = subprocess.run(
            [sys.executable, "-c", "from hposvc.cli.main import command; command()"],
            env={
                **os.environ,
                "HPOSVC_HOME": str(tmp_path / "home"),
                "_HPOSVC_COMPLETE": "bash_complete",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(words) - 1),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert answer.stderr == ""
        return [row.partition(",")[2] for row in answer.stdout.split()]

    return propose


@pytest.mark.full
def test_sweeps_and_trials_are_completed(tab, hposvc, spec):
    assert hposvc("run", spec(name="tabbed")).code == 0
    (row,) = hposvc("ls", "-o", "json").data
    sweep = row["sweep"]
    assert tab("hposvc status ") == [sweep, "last"]
    assert tab(f"hposvc report {sweep[:8]}") == [sweep]
    assert tab("hposvc status x") == []
    trials = [trial["trial"] for trial in hposvc("trials", "last", "-o", "json").data]
    assert trials
    assert tab(f"hposvc audit {sweep} ") == trials
    assert tab("hposvc logs last t") == trials
    assert tab("hposvc audit nowhere ") == []


def test_verbs_and_examples_are_completed(tab):
    assert "examples" in tab("hposvc ex")
    assert tab("hposvc examples quick") == ["quickstart.py"]


@pytest.mark.full
def test_keys_of_a_spec_are_completed(tab):
    assert tab("hposvc run spec.yaml --set tri") == [
        *("trials.max=", "trials.parallel=", "trials.proposed=")
    ]
    assert tab("hposvc plan spec.yaml --set stop.plateau.tr") == ["stop.plateau.trials="]
    assert tab("hposvc run spec.yaml --set engine") == [
        *("engine=", "engine.type=", "engine.curve=", "engine.lease=")
    ]
    assert tab("hposvc run spec.yaml --set searc") == ["search="]
    assert tab("hposvc run spec.yaml --set trails") == []
