import shlex

import pytest

from hposvc.cli.main import commands
from hposvc.remote import submit


@pytest.mark.parametrize("words", [("drive", "name", "s"), ("answer", "name", "record", "s")])
def test_the_command_of_a_cluster_s_job_is_one_that_the_command_line_takes(words):
    verb, *arguments = shlex.split(submit.command(*words).partition(" -m hposvc ")[2])
    context = commands.commands[verb].make_context(verb, arguments)
    assert (context.params["sweep"], context.params["payload"]) == ("s", "name")
