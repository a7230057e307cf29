"""Protect the sessions of browsers: the cookie, its CSRF token, and headers that confine pages.

A browser sends cookies along with requests that other sites' pages begin. So a request that comes
with the cookie and changes something must prove in a header that a page of this server made it.
"""

import hashlib
import hmac

from fastapi import Request, Response

from hposvc.server.problems import forbidden

COOKIE = "hposvc_session"
CSRF_HEADER = "X-CSRF-Token"
SAFE = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def csrf_token(session: str) -> str:
    """Return the token that belongs to a session; a page can read it, another site's can't."""
    return hmac.new(session.encode(), b"csrf", hashlib.sha256).hexdigest()


def check_csrf(request: Request, session: str) -> None:
    """Check that a page of this server made a request that came with the cookie.

    Raises:
        ApiError: the request changes something and lacks the session's CSRF token.
    """
    if request.method in SAFE:
        return
    given = request.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), csrf_token(session).encode()):
        fix = f"send the `csrf` that POST /login or GET /me answered as {CSRF_HEADER}"
        raise forbidden(f"{CSRF_HEADER} is missing or not this session's", fix)


def check_origin(request: Request) -> None:
    """Check that no other site's page made the request.

    Raises:
        ApiError: the browser says that another site's page did.
    """
    origin = request.headers.get("Origin")
    host = request.headers.get("Host", "").lower()
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        raise forbidden(f"Origin is {origin}", "pages of other sites may not call this server")
    navigates = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    if request.headers.get("Sec-Fetch-Site") == "cross-site" and not navigates:
        raise forbidden("a page of another site made this request", "call the server from its own")


def set_cookie(response: Response, session: str, seconds: float, is_secure: bool) -> None:
    """Give the browser its session."""
    response.set_cookie(
        COOKIE, session, int(seconds), httponly=True, secure=is_secure, samesite="strict"
    )


def clear_cookie(response: Response, is_secure: bool) -> None:
    """Take the session from the browser."""
    response.delete_cookie(COOKIE, httponly=True, secure=is_secure, samesite="strict")
