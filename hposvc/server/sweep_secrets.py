"""The secrets that come with requests: checked at once, and kept until the sweep is over."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from hposvc import api
from hposvc.errors import Problem, SpecError
from hposvc.events import RENEWALS
from hposvc.journal import submissions, submitted_secrets
from hposvc.journal.home import Home
from hposvc.journal.lease import holder
from hposvc.open_sweep import Record
from hposvc.spec import SweepSpec

KEY = ("environment", "secrets")
OTHERWISE = "send it in `secrets`, or set it where the server runs"
FORGOTTEN = "the server kept what came with the sweep until it was over"


def wrong(spec: SweepSpec, sent: Mapping[str, str]) -> list[Problem]:
    """Return what is wrong with secrets that came in a request."""
    unknown = [
        Problem(KEY, f"does not name {name}, which came in `secrets`", "name it here")
        for name in sent
        if spec.environment.secrets.get(name) != name
    ]
    unusable = [
        Problem(KEY, f"the value of {name} is no text that a variable can hold")
        for name, value in sent.items()
        if "\0" in value or value != value.encode(errors="replace").decode()
    ]
    return [*unknown, *unusable]


def lacking(spec: SweepSpec, values: Mapping[str, str]) -> list[str]:
    """Return the secrets of a spec for which neither the values nor the server have one."""
    return [
        name
        for name, source in spec.environment.secrets.items()
        if source == name and not (values.get(name) or os.environ.get(name))
    ]


def renewed(
    sweeps: api.Sweeps, by: str, record: Record, sent: Mapping[str, str], renews: bool
) -> dict[str, str]:
    """Return the secrets with which a sweep goes on: those that were kept, and those that came.

    Only who submitted the sweep replaces values that were kept.

    Args:
        by: who asks.
        renews: whether an ended sweep is to go on.

    Raises:
        SpecError: no driver is at work, and the next one would lack a secret.
    """
    name, spec, journal = record.row.id, record.state.spec, sweeps.journal
    if problems := wrong(spec, sent):
        raise SpecError(problems)
    kept, origin = submitted_secrets.read(sweeps.home, name), submissions.find(journal.store, name)
    values = {**kept, **sent} if origin is None or origin.by == by else {**sent, **kept}
    pending = any(request.verb in RENEWALS for _, request in journal.requests(name))
    trains = renews or pending or not record.state.finished
    if trains and holder(journal.store, name).state != "alive":
        how = f"export it and ask again, which sends it if the sweep is yours; or {OTHERWISE}"
        if missing := lacking(spec, values):
            raise SpecError(
                Problem(KEY, f"{secret} has no value: {FORGOTTEN}", how) for secret in missing
            )
    return values


@contextmanager
def kept(home: Home, sweep: str, values: Mapping[str, str]) -> Iterator[Callable[[], None]]:
    """Give a function that makes the values the secrets of the sweep, for its transaction."""
    if not values:
        yield lambda: None
        return
    draft = submitted_secrets.write_draft(home, values)
    try:
        yield lambda: submitted_secrets.adopt(home, sweep, draft)
    finally:
        draft.unlink(missing_ok=True)
