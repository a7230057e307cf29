"""The verb that checks machines, and compares MLflow with the journal."""

from dataclasses import asdict

import click

from hposvc.errors import OUT_OF_REACH
from hposvc.verbs.completion import complete_sweep
from hposvc.verbs.options import Shared, find_server, open_place, ray_address, verb
from hposvc.views.console import show


@verb
@click.argument("sweep", metavar="[ID]", required=False, shell_complete=complete_sweep)
@click.option("--deep", is_flag=True, help="Start Ray if none runs, and run a probe on every node.")
@click.option("--fix", is_flag=True, help="Write data of sweep ID that MLflow lacks.")
@ray_address
def doctor(shared: Shared, sweep: str | None, deep: bool, fix: bool, address: str | None) -> int:
    """Check this machine and its cluster.

    With ID: compare what MLflow holds of that sweep with the journal.
    """
    if sweep is not None and deep:
        raise click.UsageError("--deep is about machines; leave it out, or the ID")
    if sweep is None and fix:
        raise click.UsageError("--fix is about a sweep; give its ID")
    if sweep is not None:
        return _check_mlflow(shared, sweep, fix)
    return _check_machine(shared, deep, address)


def _check_machine(shared: Shared, deep: bool, address: str | None) -> int:
    from hposvc.remote import client
    from hposvc.views.cluster import checks

    results = list(client.examine(find_server(shared) or shared.home, deep, address))
    if not shared.json([asdict(check) for check in results]):
        show(checks(results))
    return OUT_OF_REACH if any(check.state == "fail" for check in results) else 0


def _check_mlflow(shared: Shared, sweep: str, fix: bool) -> int:
    from hposvc.remote import client
    from hposvc.views.mlflow_diff import differences, verdict

    comparison = client.check(open_place(shared), sweep, fix)
    if not shared.json(comparison.data()):
        if comparison.differences:
            show(differences(comparison))
        show(verdict(comparison))
    return 0 if comparison.agrees else OUT_OF_REACH
