"""`python -m hposvc` is the command `hposvc`."""

from hposvc.cli import main

main()
