"""A request that is not answered, and how that is said: in JSON, in one line."""

import json
from typing import Any

from starlette.responses import Response

LONGEST = 1000
"""Characters of an error, at most."""


class RequestError(Exception):
    """A request that is not answered; `status` says why to programs, the message to people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def error_body(message: str) -> bytes:
    """Return the JSON of an error; what no Unicode can say is escaped, as are line ends."""
    return json.dumps({"error": " ".join(message.split())[:LONGEST]}).encode()


def error_response(status: int, message: str, headers: dict[str, Any] | None = None) -> Response:
    """Return an error as an answer."""
    return Response(error_body(message), status, headers, "application/json")
