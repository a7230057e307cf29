"""docs/how-to/scripts.md: its script is swept by its spec, and its tables are those of the code."""

import re
import shlex
from pathlib import Path

import pages
import pytest
from command_line import run
from ruamel.yaml import YAML

from trainables.programs.arguments import PARAMETER_LISTS, render

EXAMPLES = Path(__file__).parents[3] / "examples"
PAGE = pages.read("how-to/scripts.md")
SCRIPT, REPORT = pages.blocks("how-to/scripts.md")
SPEC, CHECKPOINTS = pages.blocks("how-to/scripts.md", "yaml")


@pytest.mark.long
def test_the_script_of_the_page_is_swept(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    changes = {"trials": {"max": 2}, "engine": "local", "tracking": {"send_to": []}}
    with (tmp_path / "sweep.yaml").open("w") as file:
        YAML(typ="safe").dump({**YAML(typ="safe").load(SPEC), **changes}, file)
    ended = run(capfd, "run", "sweep.yaml", "-o", "json")
    assert ended.code == 0, ended.err
    status = ended.data
    assert status["trials"]["failed"] == 0, ended.err
    assert status["trials"]["total"] == 2
    assert status["best"]["value"] < 25.0  # what the first step starts from


def test_without_hposvc_around_it_the_report_of_the_page_prints(capsys):
    exec(compile(REPORT, "docs/how-to/scripts.md", "exec"), {})
    assert "0.5" in capsys.readouterr().err


def test_the_checkpoints_of_the_page_are_those_of_an_example():
    """The example is run by tests/e2e/test_examples_of_programs.py."""
    shown = YAML(typ="safe").load(CHECKPOINTS.replace("train.py", "train_absl.py"))
    assert shown.items() <= YAML(typ="safe").load(EXAMPLES / "script_absl.yaml").items()


def test_the_examples_that_it_names_are_there():
    line = next(line for line in PAGE.splitlines() if "`hposvc examples script`" in line)
    named = re.findall(r"`(?:hposvc examples )?(\w+)`", line)
    assert {"script", "torchrun_shards"} <= {*named}
    assert all((EXAMPLES / f"{name}.yaml").exists() for name in named)


def test_what_the_table_says_is_what_a_script_gets():
    values = {
        "lr": 0.1,
        "optimizer.lr": 0.1,
        "config.lr": 0.1,
        "ema": True,
        "use_ema": False,
        "optimizer.use_ema": False,
    }
    rows = re.findall(r"^\| [^|]+ \| `(\$\{args\w*\})` \|([^|]+)\|$", PAGE, re.MULTILINE)
    assert {item[2:-1] for item, _ in rows} == PARAMETER_LISTS.keys()
    for item, cell in rows:
        words = [word for code in re.findall(r"`([^`]+)`", cell) for word in shlex.split(code)]
        possible = {
            *render([item], values, {}),
            *render([item], {**values, "use_ema": True}, {}),
        }
        assert set(words) <= possible, item
