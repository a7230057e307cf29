"""docs/how-to/coming-from.md: its specs are specs, and what it names is there."""

import re
from pathlib import Path

import click
import pytest

from hposvc import spec as specs
from hposvc.cli.main import commands

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "coming-from.md").read_text()
OURS = re.findall(r"^```yaml\n(# hposvc\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", OURS)
def test_its_specs_are_specs(text, tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "sweep.yaml").write_text(text)
    spec = specs.load(tmp_path / "sweep.yaml")
    assert spec.trials.max == 50
    assert spec.space["lr"].low == 1e-5
    assert spec.space["lr"].high == 0.1


def test_each_tool_with_a_spec_of_its_own_has_ours_beside_it():
    assert len(OURS) == PAGE.count("```yaml\n") / 2 == 3


def test_its_verbs_and_options_are_there():
    named = re.findall(r"`hposvc ([a-z]+)((?: [^`]*)?)`", PAGE)
    assert len(named) > 10
    for verb, rest in named:
        options = {
            option
            for each in commands.get_command(click.Context(commands), verb).params
            for option in each.opts
        }
        assert {*re.findall(r"--[a-z]+", rest)} <= options, (verb, rest)
