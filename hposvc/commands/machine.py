"""Verbs about machines."""

from dataclasses import asdict

import click

from hposvc.commands.group import verb
from hposvc.views.console import show
from hposvc.views.errors import OUT_OF_REACH
from hposvc.views.options import Shared


@verb
@click.option("--deep", is_flag=True, help="Start a Ray to see whether it can be.")
def doctor(shared: Shared, deep: bool) -> int:
    """Check this machine: what was found, and what to do about it."""
    from hposvc import doctor as doctors
    from hposvc.views.checks import checks

    found = list(doctors.examine(shared.home, deep))
    if not shared.json([asdict(check) for check in found]):
        show(checks(found))
    return OUT_OF_REACH if any(check.state == "fail" for check in found) else 0
