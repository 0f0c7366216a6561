"""Words to the user on standard error: one line each, whatever a value in it holds."""

import sys

LONGEST = 900
"""Characters of a line; of a longer one, the middle is left out."""


def say(message: str) -> None:
    """Tell a message on standard error."""
    sys.stderr.write(f"regard: {one_line(message)}\n")


def one_line(message: str) -> str:
    """Return a message in one line that a terminal shows as it is: control characters and half characters of a
    value escaped, a value of thousands of characters cut."""
    words = " ".join(message.split())
    line = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in words)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 3 :]}"
