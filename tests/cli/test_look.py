"""`regard show`, the explorer as a process; and `regard plot`, figures of runs and of external models."""

import csv
import json
import os
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.interpret.figures import FIGURE_KINDS

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def serves() -> None:
    """Skip the test without the extra serve."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")


@pytest.mark.usefixtures("serves")
def test_server_answers_locally_and_ends_with_ctrl_c(trained: regard.AnswerRun) -> None:
    from tests.server.running import showing

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


@pytest.mark.usefixtures("serves")
def test_a_port_that_is_taken(command: Command, trained: regard.AnswerRun) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, out, err = command("show", trained.folder, "--port", str(port), "--no-browser")
    assert (status, out) == (1, "") and err.count("\n") == 1
    assert f"cannot listen on '127.0.0.1' port {port}: " in err


@pytest.mark.usefixtures("serves")
def test_run_without_attention_layers_is_not_compared(command: Command, tmp_path: Path) -> None:
    small = ("--steps", "2", "--hidden", "4", "--batchsize", "8")
    for pooling in ("attention", "last"):
        assert command("train", "recall", "--pooling", pooling, *small, "--savepath", tmp_path / pooling)[0] == 0
    status, _, err = command("show", tmp_path / "attention/recall", "--compare-with", tmp_path / "last/recall")
    assert (
        (status, err.count("\n")) == (2, 1)
        and "no attention layers" in err
        and "choose a model with matching layers" in err
    )


@pytest.mark.usefixtures("serves")
def test_help(command: Command) -> None:
    for name in ("show", "examine", "prune"):
        status, out, _ = command(name, "--help")
        assert status == 0 and "--savepath" in out and "default" in out


def test_examine_and_prune_by_command(command: Command, trained: regard.AnswerRun, tmp_path: Path) -> None:
    status, out, _ = command("prune", trained.folder, "--heads", "1", "--output", tmp_path / "smaller")
    assert status == 0 and "heads removed" in out and "parameters" in out
    status, out, _ = command("examine", tmp_path / "smaller", "--samples", "5")
    assert status == 0 and "cross, head 0:" in out and "Loss added when a head is off" in out
    stored = json.loads((tmp_path / "smaller" / "examined.json").read_text())
    assert stored["samples"] == 5
    status, _, err = command("prune", trained.folder, "--heads", "1", "--output", tmp_path / "smaller")
    assert status == 2 and "already contains a run" in err


def test_live_page_is_written(command: Command, trained: regard.AnswerRun, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert command("show", trained.folder, "--live", page)[:2] == (0, f"The page is in {page}\n")
    assert 'id="parameters"' in page.read_text(encoding="utf-8")


KINDS_OF_AN_ANSWER_RUN = ("heads", "alignment", "importance", "entropy", "positions", "learning", "embeddings")


@pytest.mark.parametrize("kind", KINDS_OF_AN_ANSWER_RUN)
def test_writes_figure_caption_and_data(command: Command, tmp_path: Path, trained: regard.AnswerRun, kind: str) -> None:
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


@pytest.mark.parametrize("kind", ["heads", "rollout", "induction", "importance", "entropy", "positions", "embeddings"])
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
