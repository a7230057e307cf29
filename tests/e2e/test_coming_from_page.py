"""docs/how-to/coming-from.md: the verbs and options that it names are there."""

import re

import click
import pages

from hposvc.cli.main import commands

PAGE = pages.read("how-to/coming-from.md")


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
