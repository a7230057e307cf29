"""Verbs about machines, and about what MLflow holds."""

from dataclasses import asdict

import click

from hposvc.commands.group import opened, verb
from hposvc.views.console import show
from hposvc.views.errors import OUT_OF_REACH
from hposvc.views.options import Shared, ray_address


@verb
@click.argument("sweep", metavar="[ID]", required=False)
@click.option("--deep", is_flag=True, help="Start a Ray if none runs, and probe every node.")
@click.option("--fix", is_flag=True, help="Make MLflow hold what the journal says of ID.")
@ray_address
def doctor(shared: Shared, sweep: str | None, deep: bool, fix: bool, address: str | None) -> int:
    """Check this machine, and its cluster; with an ID, what MLflow holds of that sweep."""
    if sweep is not None and deep:
        raise click.UsageError("--deep is about machines; leave it out, or the ID")
    if sweep is None and fix:
        raise click.UsageError("--fix is about a sweep; give its ID")
    if sweep is not None:
        return _of_sweep(shared, sweep, fix)
    return _of_machine(shared, deep, address)


def _of_machine(shared: Shared, deep: bool, address: str | None) -> int:
    from hposvc import doctor as doctors
    from hposvc.views.checks import checks

    found = list(doctors.examine(shared.home, deep, address))
    if not shared.json([asdict(check) for check in found]):
        show(checks(found))
    return OUT_OF_REACH if any(check.state == "fail" for check in found) else 0


def _of_sweep(shared: Shared, sweep: str, fix: bool) -> int:
    from hposvc.home import find
    from hposvc.tracking.recorder import quieten

    quieten()
    from hposvc.tracking.reconcile import Reconciler
    from hposvc.views.comparison import differences, verdict

    sweeps = opened(shared)
    row = find(sweeps.journal, sweep)
    reconciler = Reconciler(sweeps.home, sweeps.journal, row)
    found = reconciler.mend() if fix else reconciler.compare()
    if not shared.json({**asdict(found), "agrees": found.agrees}):
        if found.differences:
            show(differences(found))
        show(verdict(found))
    return 0 if found.agrees else OUT_OF_REACH
