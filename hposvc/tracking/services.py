"""Messages to services such as Slack, Telegram or e-mail, by apprise.

Why a service did not take a message stands in apprise's log, beside addresses that may be secrets,
so nothing of that log is passed on but the status of the service's answer.
"""

import logging
import re
from collections.abc import Mapping
from functools import cache
from urllib.parse import unquote

from hposvc.spec.notify import scheme_of
from hposvc.tracking.messages import Message
from hposvc.tracking.webhook import LIMIT_S, NotSent, check_host, may_pass

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
    from apprise import Apprise, AppriseAsset  # half a second, for no other verb

    scheme = scheme_of(url)
    if SERVICES in variables:
        _check_service(scheme, url, variables[SERVICES].split(","))
    _keep_log_back()
    asset = AppriseAsset(http_redirects=False, storage_mode="memory")
    service = Apprise.instantiate(url, asset=asset)
    if service is None:
        raise NotSent(f"{scheme or 'this'} is no address of apprise", again=False)
    if scheme not in FIXED:
        for host in filter(None, (service.host, getattr(service, "smtp_host", ""))):
            check_host(host, variables)
    service.socket_connect_timeout = service.socket_read_timeout = LIMIT_S
    sender = Apprise(service, asset=asset)
    result = sender.notify(message.details, message.title, body_format="text")
    if result:
        return f"taken by {scheme}"
    logged = (STATUS.search(entry.message) for entry in result.logs())
    statuses = [int(match[1]) for match in logged if match is not None]
    if not statuses:
        raise NotSent(f"{scheme} did not take it", again=True)
    raise NotSent(f"{scheme}: HTTP {statuses[-1]}", may_pass(statuses[-1]))


@cache  # once: apprise's own handlers come and go while other threads send
def _keep_log_back() -> None:
    log = logging.getLogger("apprise")
    log.handlers, log.propagate = [logging.NullHandler()], False


def _check_service(scheme: str, url: str, services: list[str]) -> None:
    """Check that the operator of the server allows a service, and that no file is read."""
    if scheme not in services:
        reason = f"{scheme} is not among the `notify.services` of the server's file"
        raise NotSent(f"{reason}: {', '.join(services) or 'none'}", again=False)
    # However apprise splits the URL: it takes # and ; for other things than urllib does.
    named = [option for option in FILES if f"{option}=" in unquote(unquote(url)).lower()]
    if named:
        raise NotSent(f"{scheme} may not read files of the server: {min(named)}", again=False)
