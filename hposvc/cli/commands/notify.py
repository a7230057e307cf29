"""The verb that sends notifications on request."""

from dataclasses import asdict
from pathlib import Path

import click

from hposvc.cli.app import open_place, read_spec, verb
from hposvc.cli.completion import complete_sweep
from hposvc.cli.options import Shared
from hposvc.errors import OUT_OF_REACH
from hposvc.views.console import show


@verb
@click.argument("sweep", metavar="ID", shell_complete=complete_sweep)
@click.option("--test", is_flag=True, help="ID is a SPEC: send a message to each of its channels.")
def notify(shared: Shared, sweep: str, test: bool) -> int:
    """Send the notifications of a sweep that were not delivered, or try out a spec's."""
    from hposvc.operations import notify
    from hposvc.remote import client

    if test:
        results = notify.try_out(read_spec(Path(sweep), ()))
    else:
        results = client.send_again(open_place(shared), sweep)
    if not shared.json([asdict(result) for result in results]):
        for result in results:
            said = "sent" if result.sent else "not sent"
            show(f"{result.channel}: {result.what}: {said}: {result.answer}")
        if not results:
            show("everything was delivered")
    return 0 if all(result.sent for result in results) else OUT_OF_REACH
