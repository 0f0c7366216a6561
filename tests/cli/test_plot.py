"""`regard plot`: figures for papers, of runs and of external models."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.interpret.figures import FIGURE_KINDS

Command = Callable[..., tuple[int, str, str]]
KINDS_OF_AN_ANSWER_RUN = ("heads", "alignment", "importance", "entropy", "positions", "learning", "embeddings")


@pytest.mark.parametrize("kind", KINDS_OF_AN_ANSWER_RUN)
def test_writes_figure_caption_and_data(
    command: Command, tmp_path: Path, trained: regard.AnswerRun, kind: str
) -> None:
    path = tmp_path / "figure.pdf"
    status, out, err = command("plot", kind, trained.folder, "-o", path, "--samples", "20")
    assert status == 0, err
    assert path.read_bytes().startswith(b"%PDF")
    caption = (tmp_path / "figure.caption.txt").read_text(encoding="utf-8")
    [data] = tmp_path.glob("figure.data.*")
    assert "signal2 (query, 12 training steps)" in caption
    assert out == f"{caption}Saved {path}, {tmp_path / 'figure.caption.txt'} and {data}\n"
    if data.suffix == ".csv":
        rows = list(csv.DictReader(data.read_text(encoding="utf-8").splitlines()))
        assert rows and all(None not in row.values() for row in rows)
    else:
        assert json.loads(data.read_text(encoding="utf-8"))


def test_the_default_output_has_the_name_of_the_kind(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = command("plot", "positions", "--dimensions", "7", "--length=9", "--width", "3.3")
    assert status == 0, err
    assert out.startswith("Sinusoidal positions (Vaswani et al. 2017): 9 positions of width 7.")
    assert {path.name for path in tmp_path.iterdir()} == {
        "positions.pdf",
        "positions.caption.txt",
        "positions.data.json",
    }


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["heatmap"], "figure 'heatmap' is unknown: choose"),
        (["heads"], "heads needs a model: name a run, or the folder of an external model"),
        (["heads", "nowhere"], "no run 'nowhere' in 'models'"),
        (["positions", "-o", "waves.html"], "plot 'waves.html' has no known extension: choose one of .png, .svg"),
        (["positions", "--width", "4"], "width"),
        (["positions", "--dimensions", "0"], "dimensions 0 is out of range: choose from 1 to 65536"),
        (["positions", "--length", "0"], "length 0 is out of range"),
        (["positions", "--samples", "0"], "samples 0 is out of range"),
        (["positions", "--style", "absent.mplstyle"], "style 'absent.mplstyle' cannot be read: No such file"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = command("plot", *argv)
    assert (status, out) == (2, "")
    assert message in err and err.startswith("regard: ") and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "flags", "message"),
    [
        ("importance", ["--text", "BCCCBAABACCCA"], "measured on inputs that the run draws: omit --text"),
        ("induction", [], "induction needs layers of self-attention, and counting has none"),
        ("rollout", [], "rollout needs two or more layers that attend to each other's states"),
        ("positions", [], "has no positions: train it with --pos_enc"),
        ("heads", ["--layer", "7"], "7"),
        ("alignment", ["--head", "9"], "head 9 is out of range"),
    ],
)
def test_a_run_that_lacks_what_the_figure_shows(
    command: Command, tmp_path: Path, kind: str, flags: list[str], message: str
) -> None:
    regard.train("counting", steps=2, hidden=8, savepath=tmp_path, progress=False)
    path = tmp_path / "figure.pdf"
    status, _, err = command("plot", kind, "counting", "--savepath", tmp_path, "-o", path, *flags)
    assert status == 2 and message in err and err.count("\n") == 1, err
    assert not path.exists()


def test_all_positions_of_transformers_are_drawn(command: Command, tmp_path: Path) -> None:
    for positions in ("sinusoidal", "rotary", "concatenated", "learned"):
        flags = ("--model", "transformer", "--positions", positions, "--hidden", "8", "--steps", "1")
        assert command("train", "copy", *flags, "--overwrite", "--savepath", tmp_path)[0] == 0
        figure = tmp_path / f"{positions}.svg"
        status, _, err = command("plot", "positions", "copy", "--savepath", tmp_path, "--length=9", "-o", figure)
        assert status == 0, err
        assert figure.read_text().startswith("<?xml")
    assert command("train", "reverse", "--hidden", "8", "--steps", "1", "--savepath", tmp_path)[0] == 0
    status, _, err = command("plot", "positions", "reverse", "--savepath", tmp_path)
    assert status == 2 and "the model reads step by step, and needs no positions" in err


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT with random weights, in the format of transformers."""
    transformers: Any = pytest.importorskip("transformers", reason="needs the extra peers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "and", "then", "it"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=32, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", mask_token="[MASK]"
    ).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "kind", ["heads", "rollout", "induction", "importance", "entropy", "positions", "embeddings"]
)
def test_figures_of_an_external_model(command: Command, tmp_path: Path, bert: Path, kind: str) -> None:
    path = tmp_path / "figure.png"
    status, out, err = command("plot", kind, bert, "--text", "the cat sat on the mat", "-o", path)
    assert status == 0, err
    assert path.read_bytes().startswith(b"\x89PNG")
    assert f"{bert.name} (BertModel)" in out
    if kind == "induction":
        assert "the cat sat on the mat the cat sat on the mat" in out


def test_an_external_model_that_lacks_what_the_figure_shows(command: Command, tmp_path: Path, bert: Path) -> None:
    for kind, message in (
        ("learning", "learning curves need the metrics of a run"),
        ("alignment", "alignment needs layers in which outputs attend to inputs"),
    ):
        status, _, err = command("plot", kind, bert, "--text", "the cat", "-o", tmp_path / "figure.pdf")
        assert status == 2 and message in err and err.count("\n") == 1
    status, _, err = command("plot", "heads", bert, "-o", tmp_path / "figure.pdf")
    assert status == 2 and "cannot draw an input: give --text" in err


def test_averages_over_a_file_of_texts(command: Command, tmp_path: Path, bert: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("the cat sat\n\non the mat\nit sat then\n")
    path = tmp_path / "figure.pdf"
    status, out, err = command("plot", "entropy", bert, "--examples", texts, "-o", path)
    assert status == 0, err
    assert "over 3 inputs" in out and "interval over the samples" in out


def test_help_lists_all_kinds_within_80_columns(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = command("plot", "--help")
    assert status == 0
    assert all(kind in " ".join(out.split()) for kind in FIGURE_KINDS)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(("more", "shown", "left"), [((), 120, ""), (("--samples", "7"), 7, "the first 7.")])
def test_every_text_of_a_file_counts(
    command: Command, tmp_path: Path, bert: Path, more: tuple[str, ...], shown: int, left: str
) -> None:
    texts = tmp_path / "texts"
    texts.write_text("the cat sat\n" * 120)
    for kind in ("entropy", "importance"):
        status, out, err = command("plot", kind, bert, "--examples", texts, *more, "-o", tmp_path / "f.pdf")
        assert status == 0, err
        assert f"over {shown} inputs" in out and (f"Of 120 texts, the figure uses {left}" in out) == bool(left)
    _, out, _ = command("plot", "heads", bert, "--examples", texts, "-o", tmp_path / "f.pdf")
    assert "Of 120 texts, the figure uses the first." in out
