"""`regard show`, `plot`, `explain` and `test`."""

import csv
import json
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli import main
from tests.conftest import Command
from tests.language_models import word_tokenizer


@pytest.fixture
def serves() -> None:
    """Skip the test without the extra serve."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")


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


def test_examine_and_prune_by_command(command: Command, trained: regard.AnswerRun, tmp_path: Path) -> None:
    status, out, _ = command("prune", trained.folder, "--heads", "1", "--output", tmp_path / "smaller")
    assert status == 0 and "heads removed" in out and "parameters" in out
    status, out, _ = command("examine", tmp_path / "smaller", "--samples", "5")
    assert status == 0 and "signal2: 5 unseen samples, loss" in out and "Loss added when a head is off" not in out
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
    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "and", "then", "it"]
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=32, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    word_tokenizer(words, "[UNK]", pad_token="[PAD]", mask_token="[MASK]").save_pretrained(folder)
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


@pytest.mark.parametrize(("more", "shown", "left"), [((), 120, ""), (("--samples", "7"), 7, "the first 7.")])
def test_every_text_of_a_file_counts(
    command: Command, tmp_path: Path, bert: Path, more: tuple[str, ...], shown: int, left: str
) -> None:
    texts = tmp_path / "texts"
    texts.write_text("the cat sat\n\non the mat\n" * 60)
    for kind in ("entropy", "importance"):
        status, out, err = command("plot", kind, bert, "--examples", texts, *more, "-o", tmp_path / "f.pdf")
        assert status == 0, err
        assert "interval over the samples" in out or kind == "importance"
        assert f"over {shown} inputs" in out and (f"Of 120 texts, the figure uses {left}" in out) == bool(left)
    _, out, _ = command("plot", "heads", bert, "--examples", texts, "-o", tmp_path / "f.pdf")
    assert "Of 120 texts, the figure uses the first." in out


# `regard explain --why` prints the parts of a score, and refuses what cannot be split in one line.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a hardly trained run with two layers."""
    run = regard.train(
        "induction", hidden=16, heads=2, steps=3, savepath=tmp_path_factory.mktemp("runs"), progress=False
    )
    return run.folder


def test_parts_and_tree_are_printed(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "why.json"
    layer = "decoder.1.self_attention"
    main(["explain", str(folder), "--why", "--layer", layer, "--output", "5", "--depth", "3", "--json", str(file)])
    said = " ".join(capsys.readouterr().out.split())
    numbers = json.loads(file.read_text(encoding="utf-8"))
    run = regard.load(folder)
    expected = regard.why(run, numbers["input"], layer=layer, output=5)
    assert f"has score {expected.score:.4f}" in said and "Written into the query" in said
    assert f"{expected.query_parts[0].value:+.4f}" in said
    assert numbers["trace"] == json.loads(json.dumps(expected.trace(depth=3).json()["root"]))
    assert "Followed backwards" in said and "the scales of norms" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--temperature", "2"], "temperature divides scores"), (["--depth", "0"], "depth 0 is out of range")],
)
def test_what_cannot_be_split_is_one_line(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(folder), "--why", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


# `regard test`.


def test_a_run_is_found_by_its_task_or_its_folder(command: Command, trained: regard.AnswerRun) -> None:
    by_task = command("test", "signal2", "--savepath", trained.folder.parent, "--samples", "50")
    by_folder = command("test", trained.folder, "--samples", "50")
    assert by_task[0] == 0 and by_task == by_folder


def test_report_equals_that_of_the_run(command: Command, trained: regard.AnswerRun) -> None:
    _, out, _ = command("test", trained.folder, "--samples", "500", "--seed", "3", "--sample_len", "4", "--weights")
    report = trained.test(samples=500, seed=3, sample_len=4)
    assert str(report) in out
    assert f"Exact match: {report.exact_match:.2%} of 500 fresh samples of 4 letters" in out
    answer, _, weights = str(trained.attend(seed=3, sample_len=4)).partition("\n\n")
    assert answer in out and weights in out
    assert len(trained.attend(seed=3, sample_len=4).input) == 7


def test_the_report_can_be_read_by_other_programs(
    command: Command, trained: regard.AnswerRun, german: regard.TranslationRun, tmp_path: Path
) -> None:
    status, _, err = command("test", trained.folder, "--samples", "50", "--json", tmp_path / "letters.json")
    assert status == 0, err
    assert json.loads((tmp_path / "letters.json").read_text()) == asdict(trained.test(samples=50))
    status, _, err = command("test", german.folder, "--json", tmp_path / "german.json")
    assert status == 0, err
    found, report = json.loads((tmp_path / "german.json").read_text()), german.test()
    assert found["quality"] == asdict(report.quality) and found["translations"] == report.translations


def test_the_signal_can_be_fixed(command: Command, trained: regard.AnswerRun) -> None:
    _, out, _ = command("test", trained.folder, "--samples", "5", "--signal", "CAB")
    assert "Input:      'CAB" in out


@pytest.mark.parametrize(("name", "start"), [("a.svg", b"<?xml"), ("a.html", b"<!doctype")])
def test_plot_writes_to_the_given_path(
    command: Command, trained: regard.AnswerRun, tmp_path: Path, name: str, start: bytes
) -> None:
    status, out, err = command("test", trained.folder, "--samples", "5", "--plot", tmp_path / name)
    assert status == 0, err
    assert f"Saved {tmp_path / name}" in out
    assert (tmp_path / name).read_bytes().startswith(start)


def test_plot_opens_only_with_a_display(
    command: Command, trained: regard.AnswerRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    import webbrowser

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    plot = ("test", trained.folder, "--samples", "5", "--plot", tmp_path / "a.png")
    monkeypatch.setenv("DISPLAY", ":0")
    command(*plot)
    assert opened == []  # a pipe
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    command(*plot)
    assert opened == [(tmp_path / "a.png").as_uri()]
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    command(*plot)
    assert len(opened) == 1


def test_flags_of_the_training_are_accepted(command: Command, trained: regard.AnswerRun) -> None:
    plain = command("test", trained.folder, "--samples", "5")
    assert plain[0] == 0
    for again in (["--multihead=True"], ["--heads", "2", "--hidden=8"], ["--model", "query"]):
        assert command("test", trained.folder, *again, "--samples", "5") == plain


def test_help_of_the_test_command(command: Command) -> None:
    for argv in (["--help"], ["counting", "--help"]):
        status, out, _ = command("test", *argv)
        assert status == 0
        assert all(flag in out for flag in ("--input", "--sample_len", "--signal", "--plot", "--savepath"))
    status, out, _ = command("test", "translation", "--help")
    assert status == 0 and "--length_penalty" in out and "--data" in out


def test_a_run_from_sequence_to_sequence(command: Command, translator: regard.PairRun) -> None:
    status, out, _ = command("test", translator.folder, "--samples", "50", "--seed", "2", "--input", "3. Mai 1979")
    assert status == 0
    assert str(translator.test(samples=50, seed=2)) in out
    assert str(translator.attend("3. Mai 1979")) in out and "</s>" in out
