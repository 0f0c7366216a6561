"""Showing a file to a person, where there is one."""

import os
import sys
import webbrowser
from pathlib import Path


def open_on_screen(path: Path) -> None:
    """Open a picture or page for a person: not in a pipe, and on Linux only where a display is."""
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    has_display = sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in displays)
    if sys.stdout.isatty() and has_display:
        webbrowser.open(path.resolve().as_uri())
