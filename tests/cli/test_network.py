"""No command connects to another machine unless its input is on that machine."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from regard.cli import COMMANDS
from tests.command_lines import LINES, add_models, make_folder
from tests.network import Guard, OutsideError, reached, traced


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("network"))


@pytest.fixture(scope="module")
def all_ground(ground: Path) -> Path:
    return add_models(ground)


def environment(folder: Path) -> dict[str, str]:
    """Return a minimal user environment with its home in `folder`."""
    left = {"HF_", "ORT_", "RAY_", "XDG_", "TRANSFORMERS_"}
    kept = {name: value for name, value in os.environ.items() if not any(map(name.startswith, left))}
    (folder / "home").mkdir(exist_ok=True)
    return {**kept, "HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}


def check(argv: Sequence[str], folder: Path) -> None:
    """Run a command, and check that it does not connect to another machine."""
    status, said, found = traced(argv, folder, environment(folder))
    assert not found, found
    assert status in (0, 1, 2, 130) and "Traceback" not in said and "internal error" not in said, said


def test_every_command_is_tested() -> None:
    assert LINES.keys() == COMMANDS.keys()


def test_a_command_connects_to_no_other_machine(ground: Path) -> None:
    check(LINES["test"][0], ground)


@pytest.mark.slow
@pytest.mark.parametrize("argv", [argv for lines in LINES.values() for argv in lines], ids=" ".join)
def test_no_command_connects_to_another_machine(all_ground: Path, argv: list[str]) -> None:
    check(argv, all_ground)


def test_connections_are_detected() -> None:
    """Connections seen by strace and by the audit hook are detected."""
    near = 'connect(5, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}, 16) = 0'
    far = near.replace("127.0.0.1", "10.1.2.3")
    name = near.replace("(80)", "(53)")
    unix = 'connect(5, {sa_family=AF_UNIX, sun_path="/run/x"}, 16) = 0'
    six = 'sendto(5, "x", 1, 0, {sa_family=AF_INET6, sin6_port=htons(443), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "2001:db8::1", &sin6_addr)}, 28) = 1'  # noqa: E501
    assert reached([near, far, name, unix, six]) == [far, name, six]
    guard = Guard()
    guard._heard("socket.getaddrinfo", ("localhost", 80, 0, 0, 0))
    with pytest.raises(OutsideError):
        guard._heard("socket.getaddrinfo", ("example.org", 80, 0, 0, 0))
    assert guard.reached == ["socket.getaddrinfo example.org"]
