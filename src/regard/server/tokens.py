"""The token that an explorer asks for where others than this machine can reach it, as Jupyter does."""

import os
import re
import secrets

from regard.errors import InputError

VARIABLE = "REGARD_TOKEN"
"""Where one may give a token of one's own, so that the address stays the same."""
SHORTEST, LONGEST = 8, 200
ALLOWED = re.compile(r"[A-Za-z0-9_-]*")


def make_token() -> str:
    """Return the token of one's own, or one that is drawn; raises `InputError` for one that cannot be used."""
    given = os.environ.get(VARIABLE)
    if not given:
        return secrets.token_urlsafe(24)
    if not SHORTEST <= len(given) <= LONGEST:
        raise InputError(f"{VARIABLE} has {len(given)} characters: choose {SHORTEST} to {LONGEST}")
    if not ALLOWED.fullmatch(given):
        raise InputError(f"{VARIABLE} has characters that no address takes: choose letters, digits, - and _")
    return given
