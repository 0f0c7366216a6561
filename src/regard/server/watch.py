"""The page of a training that runs, from the folder that `regard.watch` writes to."""

from functools import partial
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.interpret.health import read_watch
from regard.interpret.watch_page import render_watch
from regard.server.serve import check_server, serve
from regard.viz.report_page import render_page

EVERY = 10  # seconds between two readings of the files
POLICY = "frame-ancestors 'none'"  # the page names the rest
AGAIN = f"""const shown = location.hash; // after a reload, no head is shown
if (shown) {{ location.replace("#"); location.replace(shown); }}
setTimeout(() => location.reload(), {1000 * EVERY});"""


def show_watch(folder: Path, *, port: int | None, host: str, browser: bool) -> None:
    """Serve the page of a watch until interrupted; the browser loads it again every `EVERY` seconds.

    Raises `InputError` for a damaged file, and errors as `show`.
    """
    read_watch(folder)
    check_server("the page of a watch")
    serve(partial(make_app, folder), f"the watch {str(folder)!r}", host, port, browser=browser)


def make_app(folder: Path, *, hosts: Any, token: str | None) -> Any:
    """Return the application; `hosts` and `token` as in `AccessControl`."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    from regard.server.access import AccessControl

    def page(request: Any) -> HTMLResponse:
        try:
            text = render_watch(read_watch(folder), f"This page reads the files again every {EVERY} seconds.", AGAIN)
        except InputError as error:  # nothing is measured yet, or the folder was removed
            text = render_page("Attention during a training", [str(error)], AGAIN)
        return HTMLResponse(text, headers={"content-security-policy": POLICY})

    app = Starlette(routes=[Route("/", page)], middleware=[Middleware(AccessControl, hosts=hosts, token=token)])
    app.state.queues = []
    return app
