"""The command itself, and what makes a function one of its verbs."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from hposvc.views.options import Shared, share

if TYPE_CHECKING:
    from hposvc.api import Sweeps


@click.group("hposvc", context_settings={"max_content_width": 100})
@share
@click.pass_context
def commands(context: click.Context) -> None:
    """Hyperparameter sweeps on Ray: run them, look at them, steer them.

    An ID is a sweep's id, a unique beginning of it, or `last`.
    """
    context.ensure_object(Shared)


def verb(function: Callable[..., int | None]) -> click.Command:
    """A command of that name."""
    return commands.command()(share(click.pass_obj(function)))


def opened(shared: Shared) -> "Sweeps":
    """The home that is meant."""
    from hposvc.api import Sweeps

    return Sweeps.open(shared.home)
