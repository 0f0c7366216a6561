"""Standard streams: closed streams, and control characters in texts."""

import io
import os
import pty
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import regard
from regard.cli import terminal
from regard.cli.parsing import parse
from regard.errors import escape_controls
from tests.conftest import Command

REGARD = shlex.join([sys.executable, "-m", "regard"])


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell command."""
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">&- 2>/dev/full", "2>/dev/full"])
def test_closed_streams_change_nothing_else(tmp_path: Path, closed: str) -> None:
    for words, status in (("--version", 0), ("nothing", 2)):
        done = shell(f"{REGARD} {words} {closed}", tmp_path)
        assert done.returncode == status, (words, done.stderr)
        assert "Traceback" not in done.stderr and "internal error" not in done.stderr
        assert len(done.stderr.splitlines()) == (status == 2 and "2>" not in closed)
        assert done.stdout.startswith("regard ") == (status == 0 and ">&-" not in closed.replace("2>&-", ""))


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full", "2>&1 | head -c 1"])
def test_commands_work_without_streams(translator: regard.PairRun, tmp_path: Path, closed: str) -> None:
    run = shlex.quote(str(translator.folder))
    for words in (
        "train counting --steps 2 --hidden 4 --overwrite",
        f"test {run} --samples 4",
        f"translate {run}",
        f"translate {run} '3. Mai 1979'",
        f"score {run}",
        f"explain {run} --json e.json",
        "tasks",
    ):
        done = shell(f"set -o pipefail; {REGARD} {words} {closed}", tmp_path)
        assert "Traceback" not in done.stderr and "internal error" not in done.stderr, (words, done.stderr)
        assert done.returncode in ((0, 1) if "head" in closed or "full" in closed else (0,)), (words, done.stderr)


@pytest.mark.parametrize(("words", "stream"), [("translate RUN", "0>x"), ("--version", "1</dev/null")])
def test_a_stream_of_the_wrong_direction_is_one_line(
    translator: regard.PairRun, tmp_path: Path, words: str, stream: str
) -> None:
    words = words.replace("RUN", shlex.quote(str(translator.folder)))
    done = shell(f"{REGARD} {words} {stream}", tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("regard: cannot use a standard stream: "), done.stderr
    assert done.stderr.count("\n") == 1


def test_closed_stream_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    code = (
        "from regard.cli.terminal import open_streams; open_streams(); file = open('run', 'w');"
        "import os, sys; os.write(1, b'stray'); print('stray', flush=True); sys.stderr.write('stray\\n');"
        "sys.exit(file.fileno() < 3)"
    )
    done = shell(f"{shlex.join([sys.executable, '-c', code])} <&- >&- 2>&-", tmp_path)
    assert done.returncode == 0 and (tmp_path / "run").read_text() == ""


CONTROLS = ["\x1b[2J", "\x07", "\x7f", "\x9b31m", "\u202e", "\u2028", "\u2066", "\x00", "\r"]


@pytest.mark.parametrize("control", CONTROLS)
def test_control_characters_are_escaped(control: str) -> None:
    shown = escape_controls(f"a{control}b")
    assert shown.isprintable() and shown.startswith("a\\") and shown.endswith("b")
    assert escape_controls("a\tb\nc é 日本 👩‍🔬 עב") == "a\tb\nc é 日本 👩‍🔬 עב"


@pytest.mark.parametrize("control", ["\x1b[31m", "\x9b31m", "\u202e"])
def test_names_and_inputs_are_escaped(
    translator: regard.PairRun, tmp_path: Path, control: str, command: Command
) -> None:
    folder, text = tmp_path / f"e{control}v", f"3.{control} Mai"
    folder.symlink_to(translator.folder)
    written = control.encode("unicode_escape").decode()
    for words in (
        ["explain", folder, "--input", text],
        ["translate", folder, text, "--plot", tmp_path / f"a{control}.svg"],
        ["translate", tmp_path / f"no{control}", "A"],
        ["test", folder, f"--{control}"],
        ["train", "translation", "--train", f"{control}.de", f"{control}.en"],
        ["train", "dates", "--savepath", f"{control}", "--help"],
    ):
        _, out, err = command(*words)
        assert control[0] not in out + err, words
        assert written in out + err or "--help" in words, words


def test_help_shows_defaults_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Flags:
        """A class with a short docstring."""

        name: str = "a\x1bb"
        path: Path = Path("c\x1bd")

    with pytest.raises(SystemExit), terminal.escape_output():
        parse(Flags(), ["--help"], prog="regard x\x1b", description="What.")
    out = capsys.readouterr().out
    assert "\x1b" not in out and r"a\x1bb" in out and r"c\x1bd" in out and r"regard x\x1b" in out


def on_terminal(words: list[str], folder: Path) -> str:
    """Return the output of a command on a terminal."""
    main, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, "-m", "regard", *words], cwd=folder, env=environment, stdin=side, stdout=side, stderr=side
    ) as process:
        os.close(side)
        found = b""
        while True:
            try:
                part = os.read(main, 1 << 16)
            except OSError:  # the other end is closed
                break
            found += part
            if not part:
                break
        process.wait()
    os.close(main)
    return found.decode()


@pytest.mark.slow
def test_terminal_output_has_colours_but_no_controls_of_a_text(translator: regard.PairRun, tmp_path: Path) -> None:
    run = str(translator.folder)
    drawn = on_terminal(["explain", run, "--input", "3.\x1b[2J"], tmp_path)
    assert "\x1b[1m" in drawn and "\x1b[2J" not in drawn and r"\x1b" in drawn
    helped = on_terminal(["translate", "--help"], tmp_path)
    assert "\x1b[1m" in helped and r"\x1b" not in helped
    wrong = on_terminal(["train", "counting", "--nothing"], tmp_path)
    assert wrong.strip().startswith("regard: Unrecognized options: --nothing;")


def test_an_answer_is_raw_in_a_pipe_and_escaped_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, expected in ((io.StringIO(), "a\x1bb"), (Screen(), r"a\x1bb")):
        monkeypatch.setattr(sys, "stdout", stream)
        with terminal.escape_output():
            terminal.answer_output().write("a\x1bb")
            sys.stdout.write("\x1b")
        assert stream.getvalue() == expected + r"\x1b"
