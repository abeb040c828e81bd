"""Who may talk to the exporter: whoever knows the token, or without one, this machine only.

Without a token the exporter listens on loopback. A web page open in a browser on this machine
could still reach it there, under a name of its own (DNS rebinding) or by posting across sites;
so requests then must name a loopback host and must not come from another site.

A browser cannot send a bearer token, but alerts link to pages: it may give the token as the
password of any name. It then does so for other sites' forms as well, hence only to read.
"""

import base64
import binascii
import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = ("/-/healthy", "/-/ready")
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


class Access:
    """ASGI middleware; health endpoints stay open, so that probes need no secret."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer why not."""
        refusal = None
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            refusal = self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> JSONResponse | None:
        if self._token is not None:
            reading = method in ("GET", "HEAD")
            known = _has_token(headers, self._token) or (
                reading and _has_password(headers, self._token)
            )
            return None if known else _needs_token()
        if not _is_loopback_name(headers.get("host", "")):
            return _refuse("without a token the exporter answers only to localhost names")
        origin = headers.get("origin")
        if origin and not _is_loopback_name(origin.partition("://")[2]):
            return _refuse("requests from other sites are refused")
        return None


def _has_token(headers: Headers, token: str) -> bool:
    """Compared in constant time, so that the time of an answer tells nothing."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return hmac.compare_digest(
        (scheme.lower() + " " + given.strip()).encode("utf-8", "surrogateescape"),
        ("bearer " + token).encode(),
    )


def _has_password(headers: Headers, token: str) -> bool:
    """Is the token given as a password (RFC 7617)? The name before it does not matter."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    try:
        pair = base64.b64decode(given.strip(), validate=True)
    except (binascii.Error, ValueError):
        return False
    _, colon, password = pair.partition(b":")
    is_token = hmac.compare_digest(password, token.encode())
    return is_token and colon == b":" and scheme.lower() == "basic"


def _is_loopback_name(netloc: str) -> bool:
    """Is the host part of `host:port` a name of this machine's loopback?"""
    try:
        return urlsplit(f"//{netloc}").hostname in LOOPBACK_HOSTS
    except ValueError:
        return False


def _needs_token() -> JSONResponse:
    return JSONResponse(
        {"error": "this exporter needs its token: send Authorization: Bearer TOKEN"},
        status_code=401,
        headers={"WWW-Authenticate": 'Basic realm="the password is the token", Bearer'},
    )


def _refuse(message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=403)
