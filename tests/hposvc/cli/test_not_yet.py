"""Verbs that a later release will have are refused, in words."""

import pytest
from click.testing import CliRunner

from hposvc.cli.main import commands
from hposvc.cli.not_yet import LATER


@pytest.mark.parametrize("name", LATER)
def test_a_verb_to_come_is_refused_whatever_stands_behind_it(name):
    ended = CliRunner().invoke(commands, [name, "spec.yaml", "--anything"])
    assert ended.exit_code != 0
    assert f"hposvc {name} is not there yet; " in ended.output
    assert f"\n  {name} " not in CliRunner().invoke(commands, ["--help"]).output
