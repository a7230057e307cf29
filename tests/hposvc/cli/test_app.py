import re

from hposvc.cli.main import commands


def test_help_has_every_verb_in_a_group_with_an_example(hposvc):
    text = hposvc("--help").out
    for title in ("Run", "Look", "Steer", "Cluster", "Cost"):
        assert re.search(rf"^{title}, as in `hposvc .*`:$", text, re.MULTILINE)
    for name, command in commands.commands.items():
        assert command.hidden or re.search(rf"^  {name}  ", text, re.MULTILINE)


def test_every_option_has_a_help_that_begins_with_a_verb():
    for name, command in commands.commands.items():
        for option in command.params:
            if option.param_type_name == "option" and not command.hidden:
                words = (option.help or "").split()
                assert words, f"{name} {option.name}"
                assert words[0] not in ("Of", "Else", "The", "What", "Even", "For"), option.help


def test_the_version_is_printed(hposvc):
    assert re.fullmatch(r"hposvc \d+\.\d+.*\n", hposvc("--version").out)
