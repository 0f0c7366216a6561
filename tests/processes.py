"""Commands in processes that are forked from a server, because a new interpreter imports PyTorch for two seconds.

The server has imported Regard, and has trained nothing. A test that needs a new interpreter starts one with
`subprocess`.
"""

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from regard.cli import main

CONTEXT = multiprocessing.get_context("forkserver")
TRAINING = ["regard.cli.train", "regard.runs.training", "regard.runs.sequence_run", "sacrebleu"]
RANKS = ["torch._dynamo", "torch.distributed.fsdp"]
"""What data-parallel and sharded training import, for two seconds in every rank."""
EXPLORER = ["regard.server.app", "regard.server.http_server", "regard.server.serve"]
CONTEXT.set_forkserver_preload(TRAINING + RANKS + EXPLORER)
PATIENCE = 120  # Seconds until a process is considered hung


@dataclass(frozen=True)
class Started:
    """A command in a process."""

    process: BaseProcess
    output: Path  # Folder of the files `out` and `err`

    @property
    def out(self) -> str:
        """Standard output so far."""
        return (self.output / "out").read_text()

    @property
    def err(self) -> str:
        """Standard error so far."""
        return (self.output / "err").read_text()

    @property
    def pid(self) -> int:
        """Number of the process."""
        assert self.process.pid is not None
        return self.process.pid

    def wait(self) -> int:
        """Wait for the end of the process; return the exit status, which is negative after a signal."""
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(f"a command did not end: {self.err}")
        return self.process.exitcode


def start(
    output: Path,
    *words: str | Path,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    program: Callable[[], Any] = main,
) -> Started:
    """Start `regard WORDS...` in a process. `output`: folder of the files with its output; `folder`: working
    directory, the current one by default; `env`: additional environment variables; `program`: function that reads
    the words instead of Regard."""
    output.mkdir(parents=True, exist_ok=True)
    for name in ("out", "err"):
        (output / name).write_text("")
    environment = {**os.environ, **(env or {})}
    words = tuple(str(word) for word in words)
    process = CONTEXT.Process(target=_run, args=(program, words, output.absolute(), folder or Path.cwd(), environment))
    process.start()
    return Started(process, output)


@contextmanager
def start_ranks(output: Path, size: int, *words: str | Path) -> Iterator[list[Started]]:
    """Start the processes of a training run, with the environment variables of torchrun. The port is reserved
    while they run: the socket is bound, but does not listen, so that no other process gets the port and the
    first rank can listen on it."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserved.getsockname()[1])}
        ranks = [
            {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), **address} for rank in range(size)
        ]
        yield [start(output / env["RANK"], *words, env=env) for env in ranks]


def _run(
    program: Callable[[], Any], words: tuple[str, ...], output: Path, folder: Path, environment: dict[str, str]
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate(("out", "err"), start=1):
        with (output / name).open("w") as file:
            os.dup2(file.fileno(), number)
    sys.argv = ["regard", *words]
    sys.exit(program())
