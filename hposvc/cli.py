"""The command line. A verb parses, calls the api and prints; the rest is loaded when it runs.

Data goes to stdout, all else to stderr. A verb returns its exit code; docs/CONTRACT.md section 3
says what they mean.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hposvc.commands import (  # noqa: F401 - their verbs
    cleaning,
    cluster,
    costing,
    explaining,
    exporting,
    looking,
    machine,
    promoting,
    steering,
    submitting,
    sweeping,
)
from hposvc.commands.group import commands
from hposvc.commands.later import LATER, later
from hposvc.views.errors import report
from hposvc.views.options import Shared

for name in LATER:
    commands.add_command(later(name))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The command `hposvc`; modules of the present folder can be imported, as by `python -m`."""
    sys.path.insert(0, str(Path.cwd()))
    shared = Shared()
    try:
        code = commands.main(arguments, "hposvc", obj=shared, standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - it ends here, with a word
        code = report(error, shared.home)
    sys.exit(code)
