"""The command line: data goes to stdout, all else to stderr.

A verb returns its exit code; docs/CONTRACT.md#exit-codes explains the codes.
"""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hposvc.cli import exit_codes
from hposvc.cli.app import commands
from hposvc.verbs import relaunch
from hposvc.verbs.options import Shared
from hposvc.views.console import PlainFormatter


def command() -> NoReturn:
    """Run the command line of this process; a sweep goes on if its driver is killed."""
    main(relaunch.guard(sys.argv[1:]))


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the command `hposvc`; trainables import from the current folder, as by `python -m`."""
    sys.path.insert(0, str(Path.cwd()))
    if logging.lastResort is not None:  # it prints the warnings of loggers without a handler
        logging.lastResort.setFormatter(PlainFormatter())
    shared = Shared()
    try:
        code = commands.main(arguments, "hposvc", obj=shared, standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - reported, then exit
        code = exit_codes.report(error, shared.home)
    sys.exit(code)
