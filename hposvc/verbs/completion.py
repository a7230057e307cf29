"""Complete words when somebody presses tab: sweeps, their trials, examples, keys of a spec.

A shell learns it by `eval "$(_HPOSVC_COMPLETE=bash_source hposvc)"`, or zsh_source or fish_source.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

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
    items = [CompletionItem(row.id, help=row.project) for row in rows]
    if rows:
        items.append(CompletionItem("last", help="the newest sweep"))
    return [item for item in items if item.value.startswith(begun)]


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
    items = [CompletionItem(row.trial, help=row.state.lower()) for row in trials]
    return [item for item in items if item.value.startswith(begun)]


def complete_example(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the examples whose name begins like this."""
    from hposvc.drafts import examples

    items = [CompletionItem(example.name, help=example.shows) for example in examples.listed()]
    return [item for item in items if item.value.startswith(begun)]


def complete_key(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the keys of a spec that begin like this, each with the sign before its value."""
    from hposvc.spec import SweepSpec

    keys = (f"{key}=" for key in _keys(SweepSpec))
    return [CompletionItem(key) for key in keys if key.startswith(begun)]


def _keys(cls: Any) -> Iterator[str]:
    """Yield the keys of a section, with points; a section has none if it takes no plain value."""
    hints = get_type_hints(cls)
    for name in (field.name for field in fields(cls)):
        hint = hints[name]
        forms = [form for form in get_args(hint) or [hint] if form is not type(None)]
        is_section = len(forms) == 1 and hasattr(forms[0], "__pydantic_config__")
        if not is_section or name == "engine":  # `engine: local` is short for its type
            yield name
        if is_section:
            yield from (f"{name}.{key}" for key in _keys(forms[0]))


def _open_home(context: click.Context) -> "Sweeps | None":
    """Return the home that the command line names so far; None: it does not exist yet."""
    from hposvc.api import Sweeps
    from hposvc.journal.home import Home

    home = context.obj.home  # of verbs/options.py:Shared
    return Sweeps.open(home) if Home.of(home).path.is_dir() else None
