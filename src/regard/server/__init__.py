"""Serving: the explorer, a page on which one types an input and sees what a subject makes of it."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.server.explorer import Explorer
    from regard.server.serve import check_port, show, teach

late(__name__)

__all__ = ["Explorer", "check_port", "show", "teach"]
