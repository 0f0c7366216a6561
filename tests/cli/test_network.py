"""No command connects to another machine unless its input is on that machine."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from regard.cli import COMMANDS
from tests.german import write
from tests.network import Guard, OutsideError, reached, traced

TINY = {"hidden": 8, "heads": 2, "inner": 8, "enc_layers": 1, "dec_layers": 1, "vocab_size": 60, "tokens": 200}
TEXT = "Heute läuft der kleine Hund."
FIRST = "aggregate(select(indices, constant(0)), tokens)"
LINES: dict[str, list[list[str]]] = {
    "train": [["train", "dates", "--steps", "2", "--overwrite"]],
    "test": [
        ["test", "counting", "--samples", "3", "--plot", "page.html"],
        ["test", "counting", "--plot", "a.png"],
    ],
    "show": [["show", "counting", "--no-browser", "--port", "18137"]],
    "look": [
        ["look", "gpt", "--text", "the cat", "--plot", "b.html"],
        ["look", "models/gone", "--text", "a"],
        ["look", "bert-base-uncased", "--text", "a", "--json", "c.json"],
    ],
    "examine": [["examine", "counting", "--samples", "20"]],
    "timeline": [["timeline", "counting", "--samples", "20"]],
    "generate": [["generate", "induction", "ABCAB"]],
    "explain": [["explain", "counting"]],
    "prune": [["prune", "counting", "--output", "pruned"]],
    "translate": [["translate", "translation", TEXT], ["translate", "translation", TEXT, "--engine", "regard"]],
    "align": [["align", "translation", "text.de", "text.en"]],
    "score": [["score", "translation", "--input", "pairs.txt"]],
    "compare": [["compare", "counting", "--vary", "hidden=8,9", "--seeds", "2", "--steps", "3"]],
    "card": [["card", "sink", "--steps", "1", "--seeds", "1"]],
    "bench": [["bench", "--methods", "attention", "--models", "counting", "--seeds", "1", "--quick"]],
    "average": [["average", "translation"]],
    "trust": [["trust", "translation"]],
    "learn": [["learn", "--no-browser", "--port", "18138"], ["learn", "--stubs", "stubs"]],
    "check": [["check", "learner.py"]],
    "write": [["write", "program.py", "--puzzle", "first", "--train"], ["write", "first"]],
    "tasks": [["tasks"]],
    "data": [["data", "multi30k", "--url", "http://127.0.0.1:9/"]],
    "clean": [["clean", "text.de", "text.en", "--output", "cleaned"]],
    "export": [
        ["export", "translation", "--to", "ctranslate2", "--output", "ct2"],
        ["export", "translation", "--to", "huggingface", "--output", "hf", "--license", "cc0-1.0"],
    ],
    "import": [["import", "marian", "--examples", "text.de"]],
    "plot": [["plot", "positions", "-o", "positions.png"], ["plot", "heads", "counting"]],
}
"""Command lines that need no connection to another machine, for each command."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with small runs, texts, and models of other programs if they are installed."""
    import regard

    folder = tmp_path_factory.mktemp("network")
    text = write(folder)
    marian = {"positions": "sinusoidal", "pre_norm": False, "joint": True, "tied": True}
    given: dict[str, Any] = {
        **text,
        **TINY,
        **marian,
        "steps": 4,
        "savepath": folder / "models",
        "progress": False,
    }
    regard.train("translation", **given)
    flags: dict[str, Any] = {
        "hidden": 8,
        "heads": 2,
        "steps": 4,
        "savepath": folder / "models",
        "progress": False,
    }
    regard.train("counting", batchsize=4, snapshots=4, **flags)
    regard.train("induction", **flags)
    (folder / "text.de").write_text(f"{TEXT}\nEin Hund.\n", encoding="utf-8")
    (folder / "text.en").write_text("The small dog runs today.\nA dog.\n", encoding="utf-8")
    (folder / "pairs.txt").write_text(f"{TEXT}\tThe small dog runs today.\n", encoding="utf-8")
    learner = "import torch\n\ndef softmax(scores):\n    return torch.softmax(scores, -1)\n"
    (folder / "learner.py").write_text(learner, encoding="utf-8")
    program = f"from regard_lab.programs.language import *\nanswer = {FIRST}\n"
    (folder / "program.py").write_text(program, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def all_ground(ground: Path) -> Path:
    """Add models of other programs, if these programs are installed."""
    if find_spec("transformers"):
        from tests.faults.foreign import KINDS
        from tests.marian import write_marian

        KINDS["decoders"].make(ground / "gpt")
        if find_spec("sentencepiece"):
            write_marian(ground / "marian")
    return ground


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
