"""Translation from the command line."""

import io
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from tests.german import sentences, write

Command = Callable[..., tuple[int, str, str]]

FLAGS = [
    *("--vocab_size", "60", "--hidden", "16", "--heads", "2", "--inner", "16", "--enc_layers", "1"),
    *("--dec_layers", "1", "--tokens", "400", "--validate_every", "5"),
]


def type_in(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_train_test_translate(tmp_path: Path, command: Command) -> None:
    text = write(tmp_path)
    named = [word for name, files in text.items() for word in (f"--{name}", *files)]
    here = ["--savepath", str(tmp_path)]
    status, out, err = command("train", "translation", *named, *FLAGS, "--steps", "10", *here)
    assert status == 0 and "Trained translation for 10 steps: best validation BLEU" in out
    assert "prepare the corpus" in err
    status, out, _ = command("train", "translation", "--resume", *here)
    assert status == 0 and "Nothing to train: translation was complete already after 10 steps: best" in out
    status, out, _ = command("test", "translation", *here, "--output", tmp_path / "found.txt")
    assert status == 0 and "BLEU" in out and "chrF" in out and "Exact match" in out and "of 24 sentences" in out
    assert len((tmp_path / "found.txt").read_text().splitlines()) == 24
    status, out, _ = command("test", "translation", *here, "--data", *text["valid"], "--beam", "1")
    assert status == 0 and "nrefs:1" in out
    status, out, _ = command("translate", "translation", "Heute singt der Hahn.", *here)
    assert status == 0 and out.count("\n") == 1
    status, out, _ = command("translate", "translation", "Heute singt der Hahn.", "--n_best", "3", *here)
    assert status == 0 and out.count("\n") == 3


def test_training_reports_bleu_of_zero(tmp_path: Path, command: Command) -> None:
    named = [word for name, files in write(tmp_path).items() for word in (f"--{name}", *files)]
    few = ("--steps", "11", "--validate_every", "11", "--lr", "1e-9", "--savepath", tmp_path)
    status, out, _ = command("train", "translation", *named, *FLAGS, *few)
    assert status == 0 and "best validation BLEU 0.00 (tokenizer 13a) after 11 steps" in out


def test_text_of_training_is_reported(tmp_path: Path, command: Command) -> None:
    train = write(tmp_path)["train"]
    here = ("--savepath", tmp_path)
    few = ("--steps", "1", "--validate_every", "1")
    status, out, err = command(
        "train", "translation", "--train", *train, "--valid", *train, *FLAGS[:-2], *few, *here
    )
    assert status == 0 and "Trained translation for 1 step: best validation BLEU" in out
    assert "regard: warning: validation text: 240 of 240 pairs are in the training text, so its figures" in err
    part = tmp_path / "part.tsv"
    part.write_text("".join(f"{source}\t{target}\n" for source, target in sentences()[239:242]), encoding="utf-8")
    assert "training text" not in command("test", "translation", "--data", part, *here)[2]
    part.write_text("".join(f"{source}\t{target}\n" for source, target in sentences()[238:241]), encoding="utf-8")
    assert (
        "regard: warning: 2 of 3 pairs are in the training text"
        in command("test", "translation", "--data", part, *here)[2]
    )


def test_resumed_run_gets_no_other_text(tmp_path: Path, command: Command) -> None:
    text, here = write(tmp_path), ("--savepath", tmp_path)
    assert command("train", "translation", "--train", *text["train"], *FLAGS[:-2], "--steps", "1", *here)[0] == 0
    status, _, err = command("train", "translation", "--resume", "--valid", *text["valid"], *here)
    assert status == 2 and "valid has 2 files, and had 0; a resumed run needs its original text" in err


def test_skipped_lines_are_reported(tmp_path: Path, command: Command) -> None:
    pairs = "".join(f"{source}\t{target}\n" for source, target in sentences())
    (tmp_path / "pairs.tsv").write_text(pairs + "\tempty\nno partner\n")
    status, _, err = command(
        *("train", "translation", "--train", tmp_path / "pairs.tsv", *FLAGS, "--steps", "1", "--keep", "1"),
        *("--savepath", tmp_path),
    )
    assert status == 0
    assert "288 pairs; left out: 1 with an empty side, 1 without a partner" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "translation needs training text: give --train"),
        (("--train", "nowhere.tsv"), "file 'nowhere.tsv' does not exist"),
        (("--preset", "huge"), "preset 'huge' does not fit"),
        (("--tokenizer", "syllables"), "tokenizer"),
        (("--hub", "x"), "hub needs the source and target columns: give --languages"),
        (("--dropout", "1"), "dropout 1.0 is out of range"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = command("train", "translation", *words)
    assert status == 2 and message in err.replace(str(tmp_path) + "/", "") and err.count("\n") == 1 and not out
    assert not list(tmp_path.rglob("config.json"))


def test_each_line_has_one_answer(
    german: regard.TranslationRun, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [b"Heute singt der alte Hahn.", b"", b"\xff", "Morgen läuft ☃.".encode(), b"x " * 5000]
    type_in(monkeypatch, b"\n".join(lines))
    status, out, err = command("translate", german.folder)
    found = out.split("\n")
    assert status == 0 and len(found) == 6 and found[0].startswith("The ") and found[1] == "" and found[4] == ""
    assert "line 3 is not UTF-8" in err and "line 4 has tokens not seen in training: '☃'" in err
    assert "line 5 has" in err and "tokens, but at most 1024 are allowed" in err


def test_scores(german: regard.TranslationRun, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = sentences()[0]
    type_in(monkeypatch, f"{source}\t{target}\nno tab\n{source}\tnonsense\n".encode())
    status, out, err = command("score", german.folder)
    rows = [[float(cell) for cell in line.split("\t")] for line in out.splitlines()]
    assert status == 0 and len(rows) == 3 and "line 2 has no tab" in err
    assert math.isnan(rows[1][0]) and rows[0][1] > rows[2][1]
    expected = german.score([(source, target)])[0]
    assert rows[0] == pytest.approx([expected.log_probability, expected.per_token], abs=1e-3)


def test_help_names_the_presets_values(command: Command) -> None:
    status, out, _ = command("train", "translation", "--preset", "base", "--help-all")
    assert status == 0 and "(default: 512)" in out and "--label_smoothing" in out


def test_picture_shows_the_written_translation(
    german: regard.TranslationRun, command: Command, tmp_path: Path
) -> None:
    """The picture shows the printed translation, and the search does not run again."""
    source = sentences()[0][0]
    for seed in range(3):
        picture = tmp_path / f"{seed}.html"
        words = ("--temperature", "3", "--seed", str(seed), "--plot", picture)
        status, out, _ = command("translate", german.folder, source, *words)
        assert status == 0 and out.splitlines()[0] in picture.read_text(encoding="utf-8")
