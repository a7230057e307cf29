"""The command line: data goes to stdout, all else to stderr.

A verb returns its exit code; the page `command` explains the codes.
"""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hposvc.cli import exit_codes
from hposvc.cli.app import GROUPS, commands
from hposvc.verbs import relaunch
from hposvc.verbs.options import Shared
from hposvc.views.console import PlainFormatter


def command() -> NoReturn:
    """Run the command line of this process; a sweep goes on if its driver is killed."""
    verbs = {name for _, group in GROUPS.values() for name in group}
    arguments = sys.argv[1:]
    main(relaunch.guard(arguments, next((word for word in arguments if word in verbs), "")))


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
