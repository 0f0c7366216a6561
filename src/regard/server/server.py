"""The server under the explorer: uvicorn, which ends when it is told to and says nothing on the way."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator, Sequence

import uvicorn
from starlette.applications import Starlette

from regard.server.http_server import Protocol

IDLE_SECONDS = 30
"""Time for which a connection without a request is kept."""


class Server(uvicorn.Server):
    """Serves until there is a signal in `stopped`; long requests do not hold it up.

    What clients do wrong they are told, and nobody else; with REGARD_DEBUG=1 also standard error.
    """

    def __init__(self, app: Starlette, stopped: Sequence[int]) -> None:
        self._quiet = not os.environ.get("REGARD_DEBUG")
        config = uvicorn.Config(
            app,
            http=Protocol,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical" if self._quiet else "debug",
            access_log=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=0,  # beyond the moment in which what was cancelled says so
        )
        super().__init__(config)
        self._stopped = stopped

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        if self._quiet:
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Say whether it is time to end."""
        return bool(self._stopped) or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, without waiting for answers that take long."""
        for task in list(self.server_state.tasks):
            task.cancel()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever gave `stopped`."""
        yield
