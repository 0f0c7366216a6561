"""The explorer and the course as local web applications."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.server.explorer import Explorer as Explorer
    from regard.server.live_page import write_live_page as write_live_page
    from regard.server.serve import check_port as check_port, show as show, teach as teach, write as write

late(__name__)
