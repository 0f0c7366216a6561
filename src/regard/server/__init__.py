"""The explorer and the course as local web applications."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.server.explorer import Explorer
    from regard.server.live_page import write_live_page
    from regard.server.serve import check_port, show, teach

late(__name__)

__all__ = ["Explorer", "check_port", "show", "teach", "write_live_page"]
