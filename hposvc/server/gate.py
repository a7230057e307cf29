"""The gate: what every request passes before a route sees it, and before its body is read.

In order: the address may ask, the Host is ours (an attacker's name that resolves to this address,
DNS rebinding, is not), no other site's page asks, sizes are within limits, and the caller is known.
"""

import ipaddress
import re
import socket
import time

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hposvc.journal.tokens import Token, Tokens
from hposvc.server import browser
from hposvc.server.pages import assets
from hposvc.server.pages.errors import respond
from hposvc.server.principal import NOBODY, Principal, local_principal, principal_of
from hposvc.server.problems import ApiError, answer, forbidden, unauthorized
from hposvc.server.rates import Rates
from hposvc.server.service import Service

# For everybody.
OPEN = ("/healthz", "/readyz", "/openapi.json", "/docs", "/api/v1/login", "/login")
# What a read-only server does nevertheless: a session changes no sweep.
SESSIONS = ("/api/v1/login", "/api/v1/logout", "/login")
ARCHIVES = "/api/v1/archives/"  # whose bodies may be larger
MAX_URL, MAX_HEADERS = 8 * 1024, 32 * 1024  # in bytes
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(\[(?P<address>[^\[\]]*)\]|(?P<name>[^\[\]:]*))(:[0-9]*)?")
FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto")


class Gate:
    """Middleware that refuses requests, answers errors, and confines what browsers do."""

    def __init__(self, app: ASGIApp, service: Service, rates: Rates) -> None:
        self.app = app
        self.service = service
        self.rates = rates
        self.tokens = Tokens(service.sweeps.journal.store)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        confined = _confined(send, is_https(self.service, request))
        begun = False

        async def begin(message: Message) -> None:
            nonlocal begun
            begun = True
            await confined(message)

        try:
            self._check(request)
            path = request.scope["path"]
            is_open = path in OPEN or path.startswith(assets.URL)
            request.state.principal = NOBODY if is_open else await self._authenticate(request)
            await self.app(scope, _limited(receive, self._max_body(request)), begin)
        except ClientDisconnect:  # in the middle of its body
            return
        except Exception as error:
            if begun:
                raise
            answered = await run_in_threadpool(answer, error, self.service.sweeps.home.path)
            await respond(request, answered)(scope, receive, confined)
            if answered.status == 500:
                raise  # into the server's log

    def _check(self, request: Request) -> None:
        """Check all that needs no look at the caller's token.

        Raises:
            ApiError: the request is too large, too frequent, or comes from elsewhere.
        """
        if len(request.scope["path"]) + len(request.scope["query_string"]) > MAX_URL:
            raise ApiError(414, "too_large", f"the URL is longer than {MAX_URL} bytes")
        if sum(len(name) + len(value) for name, value in request.scope["headers"]) > MAX_HEADERS:
            raise ApiError(431, "too_large", f"the headers are longer than {MAX_HEADERS} bytes")
        if not is_local(self.service, request):
            self.rates.count_address(address(request))
        if self.service.listening is not None:
            self._check_host(request)
        browser.check_origin(request)
        changes = request.method not in browser.SAFE and request.scope["path"] not in SESSIONS
        if self.service.read_only and changes:
            fix = "ask a server that was started without --read-only"
            raise forbidden("this server is read-only: it changes no sweep and no token", fix)
        length = request.headers.get("Content-Length", "0")
        if not length.isdecimal():
            raise ApiError(400, "bad_request", "Content-Length is not a number")
        if int(length) > self._max_body(request):
            raise _too_large(self._max_body(request))

    def _check_host(self, request: Request) -> None:
        host = request.headers.get("Host", "")
        if match := HOST.fullmatch(host.strip().lower()):  # without the port
            host = (match["address"] or match["name"] or "").removesuffix(".")
        if host not in self._hosts(request):
            fix = "the operator can add the name to `hosts` in the file of HPOSVC_CONFIG"
            raise forbidden(f"Host is {host!r}, which is no name of this server", fix)

    def _hosts(self, request: Request) -> set[str]:
        """Return the names and addresses by which this connection may call the server."""
        listening = self.service.listening
        assert listening is not None
        arrived_at = (request.scope.get("server") or ("", 0))[0]
        hosts = {*self.service.config.hosts, arrived_at, listening.host.lower()}
        if _is_loopback(arrived_at):
            hosts.update(LOOPBACK_NAMES)
        if listening.is_wildcard:
            hosts.add(socket.gethostname().lower())
        return hosts

    async def _authenticate(self, request: Request) -> Principal:
        """Return who calls.

        Raises:
            ApiError: the caller is not known, asks too often, or may not come with a cookie.
        """
        authorization = request.headers.get("Authorization")
        cookie = request.cookies.get(browser.COOKIE)
        if authorization is None and cookie is None:
            if is_local(self.service, request):
                return local_principal()
            raise unauthorized("no token: this server answers only known callers")
        if authorization is not None:
            scheme, _, secret = authorization.partition(" ")
            token = None
            if scheme.lower() == "bearer":
                token = await run_in_threadpool(self.tokens.find, secret.strip(), time.time())
            cookie = ""
        else:
            assert cookie is not None
            token = await run_in_threadpool(self.tokens.find_session, cookie, time.time())
        if token is None:
            self.rates.count_wrong_token(address(request))
            raise unauthorized("the token or session is unknown, has ended or was revoked")
        self.rates.count_owner(token.owner)
        if cookie:
            browser.check_csrf(request, cookie)
        return await self._principal(token, cookie)

    async def _principal(self, token: Token, cookie: str) -> Principal:
        config, store = self.service.config, self.tokens.store
        if config.projects is None:
            return principal_of(token, config, store, cookie)
        return await run_in_threadpool(principal_of, token, config, store, cookie)

    def _max_body(self, request: Request) -> int:
        limits = self.service.config.requests
        return limits.archive if request.scope["path"].startswith(ARCHIVES) else limits.body


def is_local(service: Service, request: Request) -> bool:
    """Return whether the caller is on this machine and needs no token.

    A header that only proxies send means that the caller may be anywhere.
    """
    if service.listening is None:  # called inside this process
        return True
    if service.config.loopback == "token" or service.listening.behind_proxy:
        return False
    proxied = any(name in request.headers for name in FORWARDED)
    return _is_loopback(address(request)) and not proxied


def is_https(service: Service, request: Request) -> bool:
    """Return whether the browser speaks TLS, to this server or to the proxy in front of it."""
    proxied = service.listening is not None and service.listening.behind_proxy
    return proxied or request.scope["scheme"] == "https"


def address(request: Request) -> str:
    """Return the address of the caller; empty: it has none."""
    return request.client.host if request.client else ""


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _too_large(limit: int) -> ApiError:
    fix = "send files as an archive, or ask the operator for larger `requests.body` or `archive`"
    return ApiError(413, "too_large", f"the body is larger than {limit} bytes", fix=fix)


def _limited(receive: Receive, limit: int) -> Receive:
    """Return a receiver that ends a body without a length at the limit, too."""
    received = 0

    async def receive_limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise _too_large(limit)
        return message

    return receive_limited


def _confined(send: Send, is_https: bool) -> Send:
    """Return a sender that adds headers which confine what browsers do with the response."""
    added = dict(browser.HEADERS)
    if is_https:
        added["Strict-Transport-Security"] = "max-age=31536000"

    async def send_confined(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in added.items():
                headers.setdefault(name, value)
        await send(message)

    return send_confined
