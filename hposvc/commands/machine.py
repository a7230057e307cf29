"""Verbs about machines."""

from dataclasses import asdict

import click

from hposvc.commands.group import verb
from hposvc.views.console import show
from hposvc.views.errors import OUT_OF_REACH
from hposvc.views.options import Shared, ray_address


@verb
@click.option("--deep", is_flag=True, help="Start a Ray if none runs, and probe every node.")
@ray_address
def doctor(shared: Shared, deep: bool, address: str | None) -> int:
    """Check this machine, and its cluster: what was found, and what to do about it."""
    from hposvc import doctor as doctors
    from hposvc.views.checks import checks

    found = list(doctors.examine(shared.home, deep, address))
    if not shared.json([asdict(check) for check in found]):
        show(checks(found))
    return OUT_OF_REACH if any(check.state == "fail" for check in found) else 0
