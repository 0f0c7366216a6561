"""`regard positions`."""

from collections.abc import Callable
from pathlib import Path

import pytest

import regard

Command = Callable[..., tuple[int, str, str]]


def test_draws_the_sinusoidal_ones(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = command("positions", "--plot")
    assert (status, out) == (0, "Saved positions.png\n"), err
    assert (tmp_path / "positions.png").read_bytes().startswith(b"\x89PNG")
    assert command("positions", "--width", "7", "--length=9", "--plot", "waves.svg")[0] == 0
    assert b"<svg" in (tmp_path / "waves.svg").read_bytes()


def test_draws_those_of_a_run(command: Command, tmp_path: Path, trained: regard.AnswerRun) -> None:
    status, _, err = command("positions", "--run", trained.folder, "--plot", tmp_path / "learned.png")
    assert status == 0, err
    assert (tmp_path / "learned.png").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--width", "0"], "width 0 is out of range: choose from 1 to 65536"),
        (["--length", "0"], "length 0 is out of range"),
        (["--plot", "waves.html"], "plot 'waves.html' has no known extension: choose one of .png, .svg, .pdf"),
        (["--run", "nowhere"], "no run 'nowhere' in 'models'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(command: Command, argv: list[str], message: str) -> None:
    status, _, err = command("positions", *argv)
    assert status == 2
    assert message in err and err.startswith("regard: ") and err.count("\n") == 1


def test_a_run_without_positions(command: Command, tmp_path: Path) -> None:
    regard.train("counting", steps=2, savepath=tmp_path, progress=False)
    status, _, err = command("positions", "--run", "counting", "--savepath", tmp_path)
    assert status == 2 and "has no positions: train it with --pos_enc" in err


def test_positions_of_transformers_are_drawn_whatever_they_are(command: Command, tmp_path: Path) -> None:
    for positions in ("sinusoidal", "rotary", "concatenated", "learned"):
        flags = (
            "--model",
            "transformer",
            "--positions",
            positions,
            "--hidden",
            "8",
            "--steps",
            "1",
            "--overwrite",
        )
        assert command("train", "copy", *flags, "--savepath", tmp_path)[0] == 0
        plot = tmp_path / f"{positions}.svg"
        status, _, err = command(
            "positions", "--run", "copy", "--savepath", tmp_path, "--length=9", "--plot", plot
        )
        assert status == 0, err
        assert plot.read_text().startswith("<?xml")
    assert command("train", "reverse", "--hidden", "8", "--steps", "1", "--savepath", tmp_path)[0] == 0
    status, _, err = command("positions", "--run", "reverse", "--savepath", tmp_path)
    assert status == 2 and "a recurrent model reads step by step, and needs none" in err
