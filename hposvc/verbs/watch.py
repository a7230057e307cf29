"""`watch`: show a sweep live, on the whole screen or in lines; hposvc/views/watch/ does it."""

import sys
from functools import partial

import click

from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views.watch.lines import print_lines


@verb
@sweep_id
def watch_command(shared: Shared, sweep: str) -> None:
    """Show a sweep live, with its trials, and steer it.

    `?` lists the keys, `q` leaves; the sweep goes on. Without a terminal it prints plain lines, as
    `run` does, until the sweep ends.
    """
    if shared.output == "json":
        raise click.UsageError("watch shows a screen; `hposvc status ID -o json` prints JSON")
    place, follow = shared.open_place(), shared.open_sweep(sweep).follow()
    starts_drivers = shared.find_server() is not None
    # Textual draws on stderr.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        print_lines(place, follow, starts_drivers)
        return
    from hposvc.views.watch.screen import show

    follow.look()
    show(place, follow, partial(place.steer, follow.row.id), starts_drivers)
