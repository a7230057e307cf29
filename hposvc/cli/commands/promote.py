"""The verb that registers a sweep's best model in MLflow."""

from dataclasses import asdict

import click

from hposvc.cli.app import open_place, verb
from hposvc.cli.options import Shared, sweep_id
from hposvc.views.console import emit, plain


@verb
@sweep_id
@click.option("--model", required=True, metavar="NAME", help="Register it as this model in MLflow.")
@click.option(
    "--alias",
    default="champion",
    show_default=True,
    help="Move this alias to the new version if it is better.",
)
@click.option(
    "--gate", type=float, default=0.0, help="Require this improvement, in the metric's unit."
)
def promote(shared: Shared, sweep: str, model: str, alias: str, gate: float) -> None:
    """Register the best trial's checkpoint in MLflow."""
    from hposvc.remote import client

    promotion = client.promote(open_place(shared), sweep, model, alias, gate)
    if not shared.json(asdict(promotion)):
        emit(plain(f"{promotion}\n"))
