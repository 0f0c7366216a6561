"""The guard before every route: whom the explorer answers, and what no answer lacks.

On this machine it answers to this machine's names only, or a page elsewhere could reach in by a name of its own
that leads here (DNS rebinding). Beyond, whoever comes shows a token: in the address the first time, then in a
cookie. To a page of another origin it never answers.
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

from regard.server.refusing import error_response

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
"""A Host header: a name or an address, and a port."""
SHOWN = 80
"""Characters of a header or a path in an error, at most."""


class Guard:
    """Lets through to `app` whoever may ask; what fails in there is answered too, and said to nobody else."""

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str] | None, token: str | None = None) -> None:
        """`hosts`: names under which it answers, None for any. `token`: what is to be shown; None for nothing."""
        self.app = app
        self._hosts = hosts
        self._token = token
        # One for each explorer, for a browser keeps the cookies of all ports of a machine together.
        self._cookie = f"regard-{hashlib.sha256((token or '').encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, whatever comes of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request, started = Request(scope, receive), False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                added = {**HEADERS, **self._remembering(request)}
                message["headers"] = [
                    *message.get("headers", []),
                    *((name.encode(), value.encode()) for name, value in added.items()),
                ]
            await send(message)

        refused = self._refused(request)
        try:
            if refused is None:
                await self.app(scope, receive, sending)
            else:
                await error_response(*refused)(scope, receive, sending)
        except asyncio.CancelledError:  # the explorer ends
            if not started:
                await error_response(503, "the explorer has been ended")(scope, receive, sending)
            raise
        except Exception as error:
            if os.environ.get("REGARD_DEBUG"):
                traceback.print_exc()
            if not started:
                what = f"{type(error).__name__}: {error}"
                more = "please report it, with what REGARD_DEBUG=1 regard show prints"
                await error_response(500, f"the explorer failed ({what}): {more}")(scope, receive, sending)

    def _refused(self, request: Request) -> tuple[int, str] | None:
        """Return the status and the reason why a request is not answered; None where it is."""
        host, origins = request.headers.get("host", ""), request.headers.getlist("origin")
        named = HOST.fullmatch(host)
        if named is None:
            return 400, f"host {host[:SHOWN]!r} is no name: open the address that regard show printed"
        if self._hosts is not None and named[1].lower() not in self._hosts:
            return 400, f"host {host[:SHOWN]!r} is not this machine: choose {', '.join(self._hosts)}"
        if any(not _same(origin, host) for origin in origins):
            return 403, f"origin {origins[0][:SHOWN]!r} is not this page: ask from {host[:SHOWN]}"
        site = request.headers.get("sec-fetch-site", "none")
        if request.scope["path"].startswith("/api/") and site not in ("same-origin", "none"):
            return 403, f"a page elsewhere ({site[:SHOWN]}) is not answered: ask from {host[:SHOWN]}"
        if self._token is not None and not (self._shown(request) or self._remembered(request)):
            return 401, "the token is missing or wrong: open the address, with ?token=, that regard show printed"
        return None

    def _shown(self, request: Request) -> bool:
        """Whether the token is in the address."""
        return self._token is not None and _equal(request.query_params.get("token"), self._token)

    def _remembered(self, request: Request) -> bool:
        """Whether the token is in the cookie."""
        return self._token is not None and _equal(request.cookies.get(self._cookie), self._token)

    def _remembering(self, request: Request) -> dict[str, str]:
        """Return the header that has a browser show the token from now on, once it has been shown."""
        if not self._shown(request) or self._remembered(request):
            return {}
        return {"set-cookie": f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"}


def _equal(given: str | None, token: str) -> bool:
    """Compare in a time that tells nothing of the token."""
    return given is not None and secrets.compare_digest(given.encode(errors="replace"), token.encode())


def _same(origin: str, host: str) -> bool:
    """Whether a page of this origin was served under this host."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
