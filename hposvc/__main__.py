"""`python -m hposvc` is the command `hposvc`."""

from hposvc.cli.main import command

command()
