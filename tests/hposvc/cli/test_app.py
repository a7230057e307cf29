import re
from importlib import import_module
from pathlib import Path

import click
import pytest

import hposvc.verbs
from hposvc.cli.app import commands

CONTEXT = click.Context(commands)
VERBS = commands.list_commands(CONTEXT)


def test_help_has_every_verb_in_a_group_with_an_example(hposvc):
    text = hposvc("--help").out
    for title in ("Run", "Look", "Steer", "Cluster", "Cost"):
        assert re.search(rf"^{title}, as in `hposvc .*`:$", text, re.MULTILINE)
    for name in VERBS:
        assert re.search(rf"^  {name}  +[A-Z]", text, re.MULTILINE), name


def test_every_file_that_defines_a_command_is_a_verb_of_the_help():
    files = [path.stem for path in Path(hposvc.verbs.__file__).parent.glob("*.py")]
    modules = {name: import_module(f"hposvc.verbs.{name}") for name in files}
    assert {name for name, module in modules.items() if hasattr(module, f"{name}_command")} <= {
        *VERBS
    }


@pytest.mark.parametrize("name", VERBS)
def test_every_option_has_a_help_that_begins_with_a_verb(name):
    for option in commands.get_command(CONTEXT, name).params:
        if option.param_type_name == "option":
            words = (option.help or "").split()
            assert words, option.name
            assert words[0] not in ("Of", "Else", "The", "What", "Even", "For"), option.help


def test_the_version_is_printed(hposvc):
    assert re.fullmatch(r"hposvc \d+\.\d+.*\n", hposvc("--version").out)
