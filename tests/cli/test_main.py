"""The command line as a process."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.cli import data
from regard.tasks.all_tasks import list_tasks
from tests.processes import Started, start

REGARD = [sys.executable, "-m", "regard"]

Command = Callable[..., tuple[int, str, str]]


def shell(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*REGARD, *map(str, argv)], capture_output=True, text=True, cwd=cwd, timeout=120)


def test_help_names_every_command_without_loading_pytorch(tmp_path: Path) -> None:
    code = (
        "import sys, regard.cli; status = regard.cli.main(['--help']);"
        "assert 'torch' not in sys.modules and 'tyro' not in sys.modules; sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("train", "test", "tasks"))


@pytest.mark.parametrize("name", ["export", "import", "align", "translate", "train translation"])
def test_help_fits_a_terminal(name: str, command: Command, narrow: None) -> None:
    status, out, _ = command(*name.split(), "--help")
    assert status == 0 and len(out.splitlines()) > 15 and max(map(len, out.splitlines())) <= 80


def test_help_has_groups_of_commands(command: Command) -> None:
    _, out, _ = command("--help")
    lines = out.splitlines()
    assert len(lines) <= 40
    groups = ["train:", "look:", "explain:", "compare:", "translate:", "learn:", "exchange:"]
    assert [line for line in lines if re.fullmatch(r"[a-z]+:", line)] == groups


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_train_test_and_plot(tmp_path: Path) -> None:
    trained = shell("train", "signal2", "--steps=30", "--hidden", "16", "--enc-layers=2", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "Trained signal2 for 30 steps" in trained.stdout and "models/signal2" in trained.stdout
    assert "step 30 of 30" in trained.stderr
    tested = start(tmp_path, "test", "signal2", "--input", "BCCCBAABACCCA", "--weights", "--plot", folder=tmp_path)
    assert tested.wait() == 0, tested.err
    for part in (
        "Exact match: ",
        "of 10,000 fresh samples of 10 letters",
        "Attention on relevant inputs (uniform attention: ",
        "head 3",
        "uniform attention: 33",
        "Input:      'BCCCBAABACCCA'",
        "Truth:      [2, 4, 4]",
        "Output step 1 (count C (1st))",
        "Head #2 attended mainly to Input steps: [",
        "L2-Norm of Input Positional Encoding:",
        "Saved models/signal2/attention.png",
    ):
        assert part in tested.out, part
    assert (tmp_path / "models/signal2/attention.png").read_bytes().startswith(b"\x89PNG")


def stopped(folder: Path, number: int) -> Started:
    """Train without end in `folder`, and send a signal after the first metrics."""
    process = start(folder, "train", "counting", "--steps", "1000000", folder=folder)
    deadline = time.monotonic() + 60
    while not (folder / "models/counting/metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, number)
    return process


def test_ctrl_c_saves_and_resume_continues(tmp_path: Path) -> None:
    process = stopped(tmp_path, signal.SIGINT)
    assert process.wait() == 130
    err = process.err
    assert err.splitlines()[-1] == (
        "regard: stopped and saved in models; continue with `regard train counting --resume`"
    )
    assert "Traceback" not in err
    refused = start(tmp_path, "train", "counting", "--resume", "--seed", "20", folder=tmp_path)
    assert refused.wait() == 2
    assert refused.err == (
        "regard: seed 20 differs from the run's 0: a resumed run keeps its flags; leave seed out, or train a new run\n"
    )


def test_sigterm_saves_too(tmp_path: Path) -> None:
    process = stopped(tmp_path, signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    assert process.err.splitlines()[-1].startswith("regard: stopped and saved in models; continue with")
    assert start(tmp_path, "test", "counting", "--samples", "10", folder=tmp_path).wait() == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX limits on the size of files")
def test_disk_error_is_one_line_and_status_1(tmp_path: Path) -> None:
    """Training reports a full disk in one line. A limit on file sizes simulates the full disk."""
    code = (
        "import resource, signal, sys; from regard.cli import main;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000));"
        "sys.exit(main(['train', 'counting', '--steps', '5']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("regard: cannot write ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("argv", [["--help"], ["prune", "--help"], ["tasks"]])
def test_an_output_that_cannot_be_written_is_one_line(argv: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*REGARD, *argv], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("regard: cannot write the output: No space left on device")
    assert len(done.stderr.splitlines()) == 1


def test_closed_pipe_gives_no_traceback(tmp_path: Path) -> None:
    line = f"{sys.executable} -m regard tasks | true"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""


def test_unexpected_error_is_one_line_and_a_report_file(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(argv: list[str]) -> None:
        raise ZeroDivisionError("by \udce9 zero")

    monkeypatch.setattr(data, "run_tasks", broken)
    status, out, err = command("tasks")
    assert (status, out) == (1, "") and err.count("\n") == 1 and "Traceback" not in err
    assert err.startswith("regard: internal error, ZeroDivisionError: by \\udce9 zero; the traceback is in ")
    file = Path(err.split(" is in ")[1].split(": please")[0])
    assert "ZeroDivisionError" in file.read_text() and "'tasks'" in file.read_text()
    file.unlink()
    monkeypatch.setenv("REGARD_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        command("tasks")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_too_little_memory_is_one_line(tmp_path: Path) -> None:
    for kilobytes in (120_000, 200_000):
        command = f"ulimit -v {kilobytes}; {' '.join(REGARD)} train counting --steps 1"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 1 and done.stderr.startswith("regard: out of memory: "), done.stderr
        assert done.stderr.count("\n") == 1 and not list(tmp_path.iterdir())


def _paths() -> list[tuple[str, list[str]]]:
    """Return every flag with a path value, and the command line before the flag."""
    from tests.faults.lines import forms

    found = {}
    for form in forms(["models/none"]):
        for flag in form.flags:
            if flag.hint is Path or Path in getattr(flag.hint, "__args__", ()):
                found[(form.command, flag.name)] = list(form.words)
    return [(name, [command, *words]) for (command, name), words in found.items()]


def test_an_empty_path_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = _paths()
    assert {"stubs", "site", "notebooks", "json", "savepath"} <= {name for name, _ in paths} and len(paths) > 30
    for name, words in paths:
        vary = ["--vary", "lr=0.1,0.2"] if words[0] == "compare" else []
        for given in ([f"--{name}="], [f"--{name}", ""], [f"--{name.replace('_', '-')}="]):
            status, _, err = command(*words, *vary, *given)
            assert status == 2 and f"flag --{name} has an empty path" in err, (words, given, err)
    for words in (["learn", "--stubs="], ["test", ""], ["train", "", "--steps=1"], ["check", ""], ["look", ""]):
        status, _, err = command(*words)
        assert status == 2 and err.count("\n") == 1, err
    assert not list(tmp_path.iterdir())


def test_lists_every_task_with_an_example(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "480")
    status, out, _ = command("tasks")
    assert status == 0
    for example in list_tasks():
        assert example.task in out and f"'{example.input}'" in out


BROKEN = {
    "raises": "raise ValueError('broken')",
    "part missing": "import a_part_that_is_missing",
    "no Python": "def (",
    "shared library missing": "raise ImportError('libfoo.so.1: cannot open shared object file')",
}


@pytest.mark.parametrize(("library", "way"), [("matplotlib", way) for way in BROKEN] + [("safetensors", "raises")])
def test_a_broken_library_is_named(tmp_path: Path, library: str, way: str) -> None:
    regard.train("counting", hidden=4, heads=1, steps=1, savepath=tmp_path / "models", progress=False)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / f"{library}.py").write_text(BROKEN[way])
    path = os.pathsep.join([str(tmp_path / "broken"), *sys.path])
    command = [sys.executable, "-P", "-m", "regard", "plot", "positions", "-o", "model.png"]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert f"importing {library} fails: " in ended.stderr
    assert ended.stderr.endswith(f"; reinstall it with pip install --force-reinstall {library}\n")
