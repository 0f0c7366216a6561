"""Access control by host, origin and token, security headers, and a handler for unexpected errors.

A server on this machine accepts only the host names of this machine. Otherwise a web page of another site could reach
the server through a domain name that resolves to this machine (DNS rebinding). A server for other machines requires a
token, as in Jupyter: first in the URL, then in a cookie. Requests from pages of other origins are rejected.
"""

import asyncio
import hashlib
import os
import re
import secrets
import traceback
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import InputError
from regard.server.messages import error_response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d{1,5})?", re.IGNORECASE)
"""Pattern of a Host header: a name or an address, and optionally a port."""
SHOWN = 80  # characters of a header or a path in an error
TOKEN_VARIABLE = "REGARD_TOKEN"
TOKEN = re.compile(r"[A-Za-z0-9_-]*")
MIN_TOKEN, MAX_TOKEN = 8, 200


def make_token() -> str:
    """Return the token in the environment variable REGARD_TOKEN, or a random token.

    Raises `InputError` if the variable has an unsuitable length or character.
    """
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        return secrets.token_urlsafe(24)
    if not MIN_TOKEN <= len(token) <= MAX_TOKEN:
        raise InputError(f"{TOKEN_VARIABLE} has {len(token)} characters: choose {MIN_TOKEN} to {MAX_TOKEN}")
    if not TOKEN.fullmatch(token):
        raise InputError(f"{TOKEN_VARIABLE} has characters not allowed in a URL: choose letters, digits, - and _")
    return token


class AccessControl:
    """Middleware that rejects requests without access, and sends an error response if the application fails."""

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str] | None, token: str | None = None) -> None:
        """`hosts`: accepted names of the server; None accepts any name.

        `token`: the required token; None requires no token.
        """
        self.app = app
        self._hosts = hosts
        self._token = token
        # Browsers share cookies between all ports of a host, so each token has its own cookie.
        self._cookie = f"regard-{hashlib.sha256((token or '').encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request, started = Request(scope, receive), False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = dict(HEADERS)
                if self._token_in_url(request) and not self._token_in_cookie(request):
                    headers["set-cookie"] = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
                of_page = message.get("headers", [])  # a page may set its own policy
                added = [(name.encode(), value.encode()) for name, value in headers.items()]
                message["headers"] = [*of_page, *(pair for pair in added if pair[0] not in dict(of_page))]
            await send(message)

        rejection = self._rejection(request)
        try:
            if rejection is None:
                await self.app(scope, receive, send_with_headers)
            else:
                await error_response(*rejection)(scope, receive, send_with_headers)
        except asyncio.CancelledError:  # the server shuts down
            if not started:
                await error_response(503, "the explorer has ended")(scope, receive, send_with_headers)
            raise
        except Exception as error:
            if os.environ.get("REGARD_DEBUG"):
                traceback.print_exc()
            if not started:
                advice = "please report it, with the output of REGARD_DEBUG=1 regard show"
                message = f"the explorer failed ({type(error).__name__}: {error}): {advice}"
                await error_response(500, message)(scope, receive, send_with_headers)

    def _rejection(self, request: Request) -> tuple[int, str] | None:
        """Return the status and the reason if a request is rejected; None if it is accepted."""
        host, origins = request.headers.get("host", ""), request.headers.getlist("origin")
        match = HOST.fullmatch(host)
        if match is None:
            return 400, f"host {host[:SHOWN]!r} is not valid: open the address that regard show printed"
        if self._hosts is not None and match[1].lower() not in self._hosts:
            return 400, f"host {host[:SHOWN]!r} is not this machine: choose {', '.join(self._hosts)}"
        if any(not _same_origin(origin, host) for origin in origins):
            return 403, f"origin {origins[0][:SHOWN]!r} is not this page: send requests from {host[:SHOWN]}"
        site = request.headers.get("sec-fetch-site", "none")
        if request.scope["path"].startswith("/api/") and site not in ("same-origin", "none"):
            return 403, f"a page of another site ({site[:SHOWN]}) has no access: use a page from {host[:SHOWN]}"
        if self._token is not None and not (self._token_in_url(request) or self._token_in_cookie(request)):
            return (401, "the token is missing or incorrect: open the address, with ?token=, that regard show printed")
        return None

    def _token_in_url(self, request: Request) -> bool:
        return self._token is not None and _equal(request.query_params.get("token"), self._token)

    def _token_in_cookie(self, request: Request) -> bool:
        return self._token is not None and _equal(request.cookies.get(self._cookie), self._token)


def _equal(candidate: str | None, token: str) -> bool:
    # Compare in constant time, so that the duration does not reveal the number of correct characters.
    return candidate is not None and secrets.compare_digest(candidate.encode(errors="replace"), token.encode())


def _same_origin(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
