"""`regard draw`."""

from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("counting",), ["queries", "cross", "Attention"]),
        (("recall",), ["encoder.forwards.0", "GRU", "cross"]),
        (("reverse",), ["decoder.rnn", "decoder.cross", "LSTM"]),
        (("copy", "--model", "transformer"), ["encoder.layers.1.self_attention", "MultiHeadAttention", "sum"]),
    ],
    ids=["query", "pooling", "recurrent", "transformer"],
)
def test_every_kind_of_model_is_drawn(
    flags: tuple[str, ...], words: list[str], command: Command, tmp_path: Path
) -> None:
    train = ("train", *flags, "--hidden", "8", "--steps", "1", "--savepath", tmp_path)
    assert command(*train)[0] == 0
    page = tmp_path / "model.html"
    status, out, err = command("draw", flags[0], "--savepath", tmp_path, "--plot", page)
    assert status == 0 and out == f"Saved {page}\n", err
    assert all(word in page.read_text(encoding="utf-8") for word in words)
    status, _, err = command("draw", flags[0], "--savepath", tmp_path, "--plot", tmp_path / "model.txt")
    assert status == 2 and err.count("\n") == 1


def test_translator_is_drawn_with_shapes_of_a_sentence(command: Command, tmp_path: Path) -> None:
    assert command("train", "phrases", "--hidden", "8", "--steps", "1", "--savepath", tmp_path)[0] == 0
    plot, text = tmp_path / "model.png", "the dog sees a cat"
    status, _, err = command("draw", "phrases", "--savepath", tmp_path, "--plot", plot, "--input", text)
    assert status == 0 and plot.read_bytes().startswith(b"\x89PNG"), err
