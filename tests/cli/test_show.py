"""`regard show`: the explorer as a process."""

import json
import os
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from tests.server.running import showing

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")


def test_server_answers_locally_and_ends_with_ctrl_c(trained: regard.AnswerRun) -> None:
    with showing(trained.folder) as (process, address):
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=10) as page:
            assert b"<title>Regard: explorer</title>" in page.read()
        body = json.dumps({"input": "BCCCBAABACCCA"}).encode()
        asked = urllib.request.Request(f"{address}api/attend", body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            assert json.load(answer)["map"]["prediction"] == trained.attend("BCCCBAABACCCA").prediction
        os.kill(process.pid, signal.SIGINT)
        assert (process.wait(), process.err) == (130, "regard: interrupted\n")


def test_a_port_that_is_taken(command: Callable[..., tuple[int, str, str]], trained: regard.AnswerRun) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, out, err = command("show", trained.folder, "--port", str(port), "--no-browser")
    assert (status, out) == (1, "") and err.count("\n") == 1
    assert f"cannot listen on '127.0.0.1' port {port}: " in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("none",), "no run 'none'"),
        ((), "name the run first"),
        (("signal2", "--port", "70000"), "port 70000 is out of range"),
    ],
)
def test_bad_input(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path, argv: tuple[str, ...], message: str
) -> None:
    status, _, err = command("show", *argv, *(("--savepath", tmp_path) if argv else ()))
    assert status == 2 and message in err and err.count("\n") == 1


def test_run_without_attention_layers_is_not_compared(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    small = ("--steps", "2", "--hidden", "4", "--batchsize", "8")
    for pooling in ("attention", "last"):
        assert command("train", "recall", "--pooling", pooling, *small, "--savepath", tmp_path / pooling)[0] == 0
    status, _, err = command("show", tmp_path / "attention/recall", "--compare-with", tmp_path / "last/recall")
    assert (
        (status, err.count("\n")) == (2, 1)
        and "no attention layers" in err
        and "choose a model with matching layers" in err
    )


def test_help(command: Callable[..., tuple[int, str, str]]) -> None:
    for name in ("show", "examine", "prune"):
        status, out, _ = command(name, "--help")
        assert status == 0 and "--savepath" in out and "default" in out


def test_examine_and_prune_by_command(
    command: Callable[..., tuple[int, str, str]], trained: regard.AnswerRun, tmp_path: Path
) -> None:
    status, out, _ = command("prune", trained.folder, "--heads", "1", "--output", tmp_path / "smaller")
    assert status == 0 and "heads removed" in out and "parameters" in out
    status, out, _ = command("examine", tmp_path / "smaller", "--samples", "5")
    assert status == 0 and "cross, head 0:" in out and "Loss added when a head is off" in out
    stored = json.loads((tmp_path / "smaller" / "examined.json").read_text())
    assert stored["samples"] == 5
    status, _, err = command("prune", trained.folder, "--heads", "1", "--output", tmp_path / "smaller")
    assert status == 2 and "already contains a run" in err
    status, _, err = command("prune", trained.folder, "--heads", "9")
    assert status == 2 and "heads 9 is out of range" in err
    status, _, err = command("prune", trained.folder, "--heads", "1", "--seed=-1")
    assert status == 2 and "seed -1 is out of range" in err
    status, _, err = command("examine", trained.folder, "--samples", "1")
    assert status == 2 and "samples 1 is out of range" in err


def test_live_page_is_written(
    command: Callable[..., tuple[int, str, str]], trained: regard.AnswerRun, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert command("show", trained.folder, "--live", page)[:2] == (0, f"The page is in {page}\n")
    assert 'id="parameters"' in page.read_text(encoding="utf-8")


def test_live_page_has_one_run(command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    status, _, err = command("show", "counting", "--live", tmp_path / "page.html", "--compare_with", "signal")
    assert status == 2
    assert "leave out --compare_with" in err
