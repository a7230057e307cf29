"""Steer a server's sweeps: stop, extend, retry and resume them."""

from collections.abc import Mapping
from typing import Any

from hposvc import api
from hposvc.analysis.reproduction import Trained
from hposvc.errors import NotFound
from hposvc.events import NOTHING, RENEWALS, Attached, Event, Requested, Verb
from hposvc.open_sweep import Record
from hposvc.operations.requests import RequestReceipt, more_trials
from hposvc.remote.server import following, reading, submission
from hposvc.remote.server.connection import ServedSweeps, place
from hposvc.spec import SweepSpec
from hposvc.state.trial import OVER


def steer(
    server: ServedSweeps,
    sweep: str,
    verb: Verb,
    trial: str | None = None,
    changes: Mapping[str, object] = NOTHING,
    by: str | None = None,
) -> RequestReceipt:
    """Request a verb of a sweep, or of one of its trials, like `requests.steer`.

    The server knows by whom.
    """
    body: dict[str, object] = {}
    action: str = verb
    if verb == "drain":
        action, body = "stop", {"drain": True}
    if verb == "extend":
        body = {"set": dict(changes)}
    if verb in RENEWALS:
        body |= _secrets(server, server.status(sweep))
    where = place(sweep, action, trial)
    answer = server.http.post(where, body, repeatable=verb not in RENEWALS)
    return _receipt(server, answer)


def extend(
    server: ServedSweeps,
    sweep: str,
    trials: int | None = None,
    set: Mapping[str, object] = NOTHING,
    address: str | None = None,
    watching: api.Watching = api.unwatched,
) -> Record | RequestReceipt:
    """Raise a sweep's limits, and show it if it had ended, like `requests.extend`."""
    changes = dict(set) if trials is None else more_trials(set, trials)
    return _renew(server, sweep, "extend", None, changes, watching)


def retry(
    server: ServedSweeps,
    sweep: str,
    trial: str | None = None,
    address: str | None = None,
    watching: api.Watching = api.unwatched,
) -> Record | RequestReceipt:
    """Try failed trials again, and show the sweep if it had ended, like `requests.retry`."""
    return _renew(server, sweep, "retry", trial, NOTHING, watching)


def resume(
    server: ServedSweeps,
    sweep: str,
    accept_code: bool = False,
    address: str | None = None,
    watching: api.Watching = api.unwatched,
) -> Trained:
    """Have the server go on with a sweep, and show it, like `reproduction.resume`."""
    before = server.status(sweep)
    name, ended = before["sweep"], before["state"] in OVER
    body = {"accept_code": accept_code, **_secrets(server, before)}
    answer = server.http.post(place(name, "resume"), body)
    with watching(name) as watchers:
        if ended:
            server.result(answer)
            record = server.record_of(server.follow(name))
            return Trained(record, reading.compare_again(server, record), had_ended=True)
        record = following.show(
            server, name, watchers, answer["operation"], before["seq"], _resumes
        )
    comparison = reading.compare_again(server, record) if record.state.finished else None
    return Trained(record, comparison)


def run_or_resume(
    server: ServedSweeps,
    spec: SweepSpec,
    identifier: str,
    address: str | None = None,
    watching: api.Watching = api.unwatched,
) -> Trained:
    """Submit a sweep of this id, or continue the one that has it, like `client.run_or_resume`."""
    try:
        exists = server.status(identifier)["sweep"] == identifier
    except NotFound:
        exists = False
    if not exists:
        return Trained(submission.run(server, spec, identifier, address, watching), None)
    # The server refuses it, unless it is the same sweep.
    submission.submit(server, spec, identifier)
    if server.status(identifier)["state"] in ("PAUSED", "INTERRUPTED", *OVER):
        return resume(server, identifier, False, address, watching)
    with watching(identifier) as watchers:
        return Trained(following.show(server, identifier, watchers), None)


def _renew(
    server: ServedSweeps,
    sweep: str,
    verb: Verb,
    trial: str | None,
    changes: Mapping[str, object],
    watching: api.Watching,
) -> Record | RequestReceipt:
    before = server.status(sweep)
    receipt = steer(server, before["sweep"], verb, trial, changes)
    if receipt.state not in OVER:
        return receipt
    with watching(receipt.sweep) as watchers:
        return following.show(server, receipt.sweep, watchers, None, before["seq"], _renews)


def _secrets(server: ServedSweeps, status: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return this machine's values of a sweep's secrets, as a body has them.

    A sweep of others, whose code would get them, gets none.
    """
    if status["owner"] not in (None, server.http.get("me")["name"]):
        return {}
    variables = submission.find_variables(server.facts(status["sweep"])["row"]["spec"])
    return {"secrets": variables} if variables else {}


def _receipt(server: ServedSweeps, answer: Mapping[str, Any]) -> RequestReceipt:
    return RequestReceipt(**(answer.get("receipt") or server.result(answer)))


def _resumes(event: Event) -> bool:
    """Whether a driver took over a sweep to go on with it."""
    return isinstance(event, Attached) and event.resumes


def _renews(event: Event) -> bool:
    """Whether an ended sweep goes on with the event."""
    return isinstance(event, Requested) and event.verb in RENEWALS
