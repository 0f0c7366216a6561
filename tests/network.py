"""Detection of connections to other machines: an audit hook for Python, strace for whole commands."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

NAMES = {"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"}
LOCAL = re.compile(r"localhost|127\.[\d.]+|::1|::|0\.0\.0\.0|")
"""Names and addresses of this machine, except for DNS, because a local DNS server sends requests to other machines."""
DNS = 53
FAR4 = re.compile(r"sa_family=AF_INET, sin_port=htons\((\d+)\), sin_addr=inet_addr\(\"([^\"]*)\"\)")
FAR6 = re.compile(r"sa_family=AF_INET6, sin6_port=htons\((\d+)\).*?inet_pton\(AF_INET6, \"([^\"]*)\"")
SENDS = ("connect(", "sendto(", "sendmsg(", "sendmmsg(", "bind(")
SERVES = "Ctrl-C ends it"


class OutsideError(ConnectionError):
    """Raised if code tries to connect to another machine."""


class Guard:
    """Audit hook that refuses and records connections to other machines in this process."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.own = {socket.gethostname()}
        with contextlib.suppress(OSError):
            self.own |= {str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None)}

    def install(self) -> "Guard":
        """Install the hook for the lifetime of the process."""
        sys.addaudithook(self._heard)
        return self

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in NAMES:
            return
        if event in ("socket.getaddrinfo", "socket.gethostbyname"):
            host: Any = args[0]
        else:
            if args[0].family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(args[1], tuple):
                return
            host = args[1][0]
        text = host.decode() if isinstance(host, bytes) else str(host or "")
        if not LOCAL.fullmatch(text) and text not in self.own:
            self.reached.append(f"{event} {text}")
            raise OutsideError(f"{event} {text}: tests reach for no other machine")


@cache
def can_trace() -> bool:
    """Return whether strace is installed and permitted."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-f", "true"], capture_output=True, check=False).returncode == 0


def reached(lines: Sequence[str]) -> list[str]:
    """Return the lines of strace about connections to other machines and open sockets."""
    found = []
    for line in lines:
        if any(each in line for each in SENDS):
            for port, address in (*FAR4.findall(line), *FAR6.findall(line)):
                if not LOCAL.fullmatch(address) or int(port) == DNS:
                    found.append(line)
    return found


def traced(
    command: Sequence[str], folder: Path, env: Mapping[str, str], seconds: float = 120
) -> tuple[int, str, list[str]]:
    """Run a command in a folder to its end, or a server until it accepts requests. Returns the exit status, the
    output, and the connections to other machines. Native code is included if strace is available."""
    trace = folder / "trace.txt"
    trace.unlink(missing_ok=True)
    before = ["strace", "-f", "-e", "trace=network", "-o", str(trace)] if can_trace() else []
    program = [sys.executable, "-c", HOOKED, *command]
    with (folder / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [*before, *program], cwd=folder, env=dict(env), stdin=subprocess.DEVNULL,
            stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            if SERVES in (folder / "said.txt").read_text(errors="replace"):
                time.sleep(1)
                os.killpg(process.pid, signal.SIGINT)
                process.wait(30)
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = (folder / "said.txt").read_text(errors="replace")
    lines = trace.read_text(errors="replace").splitlines() if trace.exists() else []
    hooked = [line for line in text.splitlines() if line.startswith("reached: ")]
    return process.returncode, text, [*hooked, *reached(lines)]


HOOKED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from tests.network import Guard
guard = Guard().install()
sys.path.pop(0)
from regard.cli import main
try:
    status = main(sys.argv[1:])
finally:
    for each in guard.reached:
        print("reached:", each, flush=True)
sys.exit(status)
"""
