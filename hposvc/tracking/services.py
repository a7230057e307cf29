"""Messages to services such as Slack, Telegram or e-mail, by apprise.

Why a service did not take a message stands in apprise's log, beside addresses that may be secrets,
so nothing of that log is passed on but the status of the service's answer.
"""

import logging
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from hposvc.spec.notify import scheme_of
from hposvc.tracking.addresses import ALLOWED, Allowed
from hposvc.tracking.messages import Message
from hposvc.tracking.webhook import LIMIT_S, TRY_AGAIN, NotSent

if TYPE_CHECKING:
    from apprise import NotifyBase

SERVICES = "HPOSVC_NOTIFY_SERVICES"  # the variable with the list of schemes; unset: all
# Services whose hosts a URL can't name.
FIXED = (
    *("discord", "gchat", "opsgenie", "pagerduty", "pbul", "pover", "slack", "tgram"),
    *("webex", "wxteams"),
)
FILES = frozenset({"template", "keyfile", "subfile", "pgpkey"})  # options that read files
STATUS = re.compile(r"error=([1-5][0-9]{2})\b")  # as apprise logs it


def send(url: str, message: Message, variables: Mapping[str, str]) -> str:
    """Send a message to the service of an apprise URL, and return what came of it, for people.

    Raises:
        NotSent: the URL is refused, or the service did not take the message.
    """
    from apprise import Apprise, AppriseAsset, AppriseResult  # half a second, for no other verb

    scheme = scheme_of(url)
    if SERVICES in variables:
        _check_service(scheme, url, variables[SERVICES].split(","))
    log = logging.getLogger("apprise")
    log.handlers, log.propagate = [logging.NullHandler()], False
    asset = AppriseAsset(http_redirects=False, storage_mode="memory")
    service = Apprise.instantiate(url, asset=asset)
    if service is None:
        raise NotSent(f"{scheme or 'this'} is no address of apprise", again=False)
    if SERVICES in variables and scheme not in FIXED:
        _check_hosts(service, Allowed.read(variables.get(ALLOWED, "")).hosts)
    service.socket_connect_timeout = service.socket_read_timeout = LIMIT_S
    results: list[AppriseResult] = []

    def notify() -> None:
        sender = Apprise(service, asset=asset)
        results.append(sender.notify(message.details, message.title, body_format="text"))

    # apprise's own time limit leaves a thread behind for which this process would wait at its end.
    worker = threading.Thread(target=notify, daemon=True)
    worker.start()
    worker.join(LIMIT_S)
    if not results:
        raise NotSent(f"{scheme}: no answer within {LIMIT_S:g} s", again=True)
    if results[0]:
        return f"taken by {scheme}"
    logged = (STATUS.search(entry.message) for entry in results[0].logs())
    statuses = [int(match[1]) for match in logged if match is not None]
    if not statuses:
        raise NotSent(f"{scheme} did not take it", again=True)
    again = statuses[-1] >= 500 or statuses[-1] in TRY_AGAIN
    raise NotSent(f"{scheme}: HTTP {statuses[-1]}", again)


def _check_service(scheme: str, url: str, services: list[str]) -> None:
    """Check that the operator of the server allows a service, and that no file is read."""
    if scheme not in services:
        reason = f"{scheme} is not among the `notify.services` of the server's file"
        raise NotSent(f"{reason}: {', '.join(services) or 'none'}", again=False)
    # However apprise splits the URL: it takes # and ; for other things than urllib does.
    named = [option for option in FILES if f"{option}=" in unquote(unquote(url)).lower()]
    if named:
        raise NotSent(f"{scheme} may not read files of the server: {min(named)}", again=False)


def _check_hosts(service: "NotifyBase", hosts: frozenset[str]) -> None:
    """Check that the operator of the server names each host that an address does."""
    for host in filter(None, (service.host, getattr(service, "smtp_host", ""))):
        if host.lower() not in hosts:
            reason = f"{host} is not among the `notify.hosts` of the server's file"
            raise NotSent(reason, again=False)
