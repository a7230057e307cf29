"""Complete words when somebody presses tab: sweeps, their trials, and examples.

A shell learns it by `eval "$(_HPOSVC_COMPLETE=bash_source hposvc)"`, or zsh_source or fish_source.
"""

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from hposvc.errors import NotFound, SpecError, StoreError

if TYPE_CHECKING:
    from hposvc.api import Sweeps

NEWEST = 50  # sweeps that are proposed


def complete_sweep(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the newest sweeps of the home whose id begins like this, with their projects."""
    try:
        sweeps = _open_home(context)
        rows = sweeps.journal.sweeps(limit=NEWEST) if sweeps else []
    except StoreError:
        return []  # a prompt is no place for errors; the verb itself will tell
    found = [CompletionItem(row.id, help=row.project) for row in rows]
    if rows:
        found.append(CompletionItem("last", help="the newest sweep"))
    return [item for item in found if item.value.startswith(begun)]


def complete_trial(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the trials of the sweep on the command line whose name begins like this."""
    from hposvc import api

    try:
        sweeps = _open_home(context)
        trials = api.load(sweeps, context.params["sweep"]).trials() if sweeps else []
    except (NotFound, SpecError, StoreError):
        return []
    found = [CompletionItem(row["trial"], help=row["state"].lower()) for row in trials]
    return [item for item in found if item.value.startswith(begun)]


def complete_example(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the examples whose name begins like this."""
    from hposvc.drafts import examples

    found = [CompletionItem(each.name, help=each.shows) for each in examples.listed()]
    return [item for item in found if item.value.startswith(begun)]


def _open_home(context: click.Context) -> "Sweeps | None":
    """Return the home that the command line names so far; None: it does not exist yet."""
    from hposvc.api import Sweeps
    from hposvc.journal.home import Home

    home = context.obj.home  # of cli/options.py:Shared
    return Sweeps.open(home) if Home.of(home).path.is_dir() else None
