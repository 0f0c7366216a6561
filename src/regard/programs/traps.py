"""Models that are made to fool one family of explanation methods."""

from typing import Any

TRAPS: dict[str, Any] = {}
