"""`regard translate`: one output line per input line, for any input."""

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import regard
from regard.viz.serialization import map_data

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def piped(command: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run a command with some bytes as standard input."""

    def call(content: bytes, *argv: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        return command(*argv)

    return call


TEXTS = ["3. Mai 1979", "14 juillet 1989", "Mar 5, 2015", "Thursday, May 3, 1979"]


def test_a_text_on_the_command_line(command: Command, translator: regard.PairRun) -> None:
    status, out, err = command("translate", translator.folder, TEXTS[0])
    assert (status, out, err) == (0, f"{translator.translate(TEXTS[:1])[0]}\n", "")


def test_lines_of_standard_input_and_of_a_file(
    command: Command, piped: Command, translator: regard.PairRun, tmp_path: Path
) -> None:
    expected = "".join(f"{answer}\n" for answer in translator.translate(TEXTS))
    content = "\n".join(TEXTS).encode()
    assert piped(content, "translate", translator.folder) == (0, expected, "")
    assert piped(content + b"\n", "translate", translator.folder) == (0, expected, "")
    file = tmp_path / "lines.txt"
    file.write_bytes(content.replace(b"\n", b"\r\n"))
    assert command("translate", translator.folder, "--input", file) == (0, expected, "")


def test_order_is_kept_across_batches_and_chunks(
    piped: Command, translator: regard.PairRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.cli.lines.LINES_PER_CHUNK", 5)
    texts = [TEXTS[index % 4] for index in range(17)]
    _, out, _ = piped("\n".join(texts).encode(), "translate", translator.folder, "--batchsize", "3")
    assert out.splitlines() == translator.translate(texts)


def test_invalid_lines_are_reported_and_keep_their_position(piped: Command, translator: regard.PairRun) -> None:
    lines = [
        b"\xef\xbb\xbf3. Mai 1979",
        b"",
        "3. März € 1979".encode(),
        b"3. Mai \xff1979",
        b"9" * 1000,
        b"5 mai 1999",
    ]
    status, out, err = piped(b"\n".join(lines), "translate", translator.folder)
    answers = out.split("\n")
    assert status == 0 and len(answers) == 7 and answers[6] == ""
    assert answers[0] == translator.translate([TEXTS[0]])[0]
    assert answers[1] == answers[4] == ""
    assert answers[5] == translator.translate(["5 mai 1999"])[0]
    assert err.splitlines() == [
        "regard: line 3 has characters not seen in training: '€'",
        "regard: line 4 is not UTF-8 at byte 7: invalid bytes are read as unknown",
        "regard: line 4 has characters not seen in training: '�'",
        "regard: line 5 has 1000 characters, but at most 360 are allowed: its answer is empty",
    ]


def test_unknown_characters_of_one_text_are_reported(command: Command, translator: regard.PairRun) -> None:
    status, out, err = command("translate", translator.folder, "3. März € 1979")
    assert status == 0 and out.count("\n") == 1
    assert err == "regard: the text has characters not seen in training: '€'\n"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes_give_one_line_per_line(piped: Command, translator: regard.PairRun, content: bytes) -> None:
    status, out, _ = piped(content, "translate", translator.folder)
    lines = content.split(b"\n")
    assert status == 0
    assert out.count("\n") == len(lines) - (lines[-1] == b"")


def test_n_best_with_scores(piped: Command, translator: regard.PairRun) -> None:
    argv = ("translate", translator.folder, "--beam", "4", "--n_best", "3", "--scores", "--length_penalty=1")
    _, out, _ = piped(b"3. Mai 1979\n\n", *argv)
    lines = out.split("\n")
    found = translator.search(["3. Mai 1979"], beam=4, n_best=3, length_penalty=1.0)[0]
    assert lines == [*(f"{each.log_probability:.4f}\t{each.text}" for each in found), "", "", "", ""]


def test_plot_draws_the_alignment(command: Command, translator: regard.PairRun, tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    status, out, _ = command("translate", translator.folder, TEXTS[0], "--plot", file)
    assert status == 0 and f"Saved {file}" in out and "</s>" in out
    assert file.read_text().startswith("<!doctype html>")
    status, out, _ = command("translate", translator.folder, TEXTS[0], "--plot")
    assert f"Saved {translator.folder / 'alignment.png'}" in out
    assert (translator.folder / "alignment.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("x", "--plot", "a.gif"), "plot 'a.gif' has no known extension"),
        (("--plot", "a.png"), "--plot draws one text"),
        (("x", "--input", "y"), "text 'x' and --input exclude each other"),
        (("--input", "nowhere.txt"), "file 'nowhere.txt' does not exist: check its name"),
        (("--input", "."), "cannot read '.': Is a directory"),
        (("x", "--beam", "0"), "beam 0 is out of range: choose from 1 to 1000"),
        (("x", "--n_best", "2"), "n_best 2 exceeds beam 1: lower n_best, or raise beam"),
        (("x", "--batchsize", "0"), "batchsize 0 is out of range"),
        (("9" * 1000,), "text 0, '99999999999999999999…', has 1000 characters, but at most 360 are allowed"),
    ],
)
def test_invalid_options_are_refused(
    command: Command, translator: regard.PairRun, argv: tuple[str, ...], message: str
) -> None:
    status, out, err = command("translate", translator.folder, *argv)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1


def test_a_run_that_answers_with_numbers_is_refused(command: Command, trained: regard.AnswerRun) -> None:
    status, _, err = command("translate", trained.folder, "ABC")
    assert status == 2 and "answers with numbers, not text" in err


def test_closed_reader_is_no_error(translator: regard.PairRun) -> None:
    argv = [sys.executable, "-m", "regard", "translate", str(translator.folder)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.write(b"3. Mai 1979\n" * 10)
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_longer_text_than_in_training_is_reported(command: Command, translator: regard.PairRun) -> None:
    text = "3. Mai " + "1979" * 12
    status, out, err = command("translate", translator.folder, text)
    assert status == 0 and out.count("\n") == 1
    assert err.startswith("regard: training used inputs of at most ") and err.count("\n") == 1
    assert command("translate", translator.folder, "3. Mai 1979")[2] == ""
    assert "used inputs of at most" in translator.attend(text).note
    assert map_data(translator.attend(text))["note"] == translator.attend(text).note != ""
