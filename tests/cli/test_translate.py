"""`regard translate` and `regard score`: one output line per input line, constraints, and training on text."""

import io
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import regard
from regard.decoding.controls import Controls
from regard.viz.page import map_data
from tests.conftest import TINY, Command, train_german
from tests.german import sentences, write


@pytest.fixture
def piped(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
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
    lines = [b"\xef\xbb\xbf3. Mai 1979", b"", "3. März € 1979".encode(), b"3. Mai \xff1979", b"9" * 1000, b"5 mai 1999"]
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


def test_a_file_of_another_language_gives_a_warning(piped: Command, translator: regard.PairRun) -> None:
    status, _, err = piped("5 мая 1979\n3. Mai 1979\n".encode(), "translate", translator.folder)
    known, unknown = err.splitlines()
    assert status == 0 and known.startswith("regard: line 1 has characters not seen in training (30% of it): ")
    assert unknown == (
        "regard: warning: 14.3% of the tokens of the input (3 of 21) are not in the vocabulary of the model: check "
        "the language and the direction"
    )


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


SOURCE = "Heute läuft der kleine Hund."
FLAGS = [
    *("--vocab_size", "60", "--hidden", "16", "--heads", "2", "--inner", "16", "--enc_layers", "1"),
    *("--dec_layers", "1", "--tokens", "400", "--validate_every", "5"),
]


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
    status, out, err = command("train", "translation", "--train", *train, "--valid", *train, *FLAGS[:-2], *few, *here)
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


def test_each_line_has_one_answer(german: regard.TranslationRun, piped: Command) -> None:
    lines = [b"Heute singt der alte Hahn.", b"", b"\xff", "Morgen läuft ☃.".encode(), b"x " * 5000]
    status, out, err = piped(b"\n".join(lines), "translate", german.folder)
    found = out.split("\n")
    assert status == 0 and len(found) == 6 and found[0].startswith("The ") and found[1] == "" and found[4] == ""
    assert "line 3 is not UTF-8" in err and "line 4 has tokens not seen in training: '☃'" in err
    assert "line 5 has" in err and "tokens, but at most 1024 are allowed" in err


def test_scores(german: regard.TranslationRun, piped: Command) -> None:
    source, target = sentences()[0]
    status, out, err = piped(f"{source}\t{target}\nno tab\n{source}\tnonsense\n".encode(), "score", german.folder)
    rows = [[float(cell) for cell in line.split("\t")] for line in out.splitlines()]
    assert status == 0 and len(rows) == 3 and "line 2 has no tab" in err
    assert math.isnan(rows[1][0]) and rows[0][1] > rows[2][1]
    expected = german.score([(source, target)])[0]
    assert rows[0] == pytest.approx([expected.log_probability, expected.per_token], abs=1e-3)


def test_picture_shows_the_written_translation(german: regard.TranslationRun, command: Command, tmp_path: Path) -> None:
    """The picture shows the printed translation, and the search does not run again."""
    source = sentences()[0][0]
    for seed in range(3):
        picture = tmp_path / f"{seed}.html"
        words = ("--temperature", "3", "--seed", str(seed), "--plot", picture)
        status, out, _ = command("translate", german.folder, source, *words)
        assert status == 0 and out.splitlines()[0] in picture.read_text(encoding="utf-8")


def test_missing_terms_of_all_answers_are_reported(german: regard.TranslationRun, command: Command) -> None:
    argv = ("translate", german.folder, SOURCE, "--term", "The o", "--beam", "4", "--n_best", "4")
    status, out, err = command(*argv, "--max_length", "3")
    lacking = sum("The o" not in answer for answer in out.splitlines())
    assert status == 0 and 1 < lacking <= 4
    assert f"regard: {lacking} of the 4 answers to the text lack 'The o': the length limit" in err


def test_unchosen_heads_of_replaced_words_are_reported(german: regard.TranslationRun, command: Command) -> None:
    status, _, err = command("translate", german.folder, SOURCE, "--replace_unknown")
    assert status == 0 and "this run has no chosen alignment heads" in err


def test_translate_reports_pairs_instead_of_sources(
    german: regard.TranslationRun, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "pairs.tsv").write_text(f"{SOURCE}\tThe small dog runs today.\n" * 2, encoding="utf-8")
    status, out, err = command("translate", german.folder, "--input", tmp_path / "pairs.tsv")
    assert status == 0 and out.count("\n") == 2 and err.count("has a tab: give only sources") == 1


SOURCES = [source for source, _ in sentences()[:4]]


CONSTRAINED = {**TINY, "vocab_size": 200, "steps": 200}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> regard.TranslationRun:
    """Return a run whose vocabulary contains all words."""
    return train_german(tmp_path_factory, **CONSTRAINED)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines.de"
    file.write_text("".join(f"{source}\n" for source in SOURCES), encoding="utf-8")
    return file


def test_flags_are_the_options_of_the_library(run: regard.TranslationRun, command: Command, lines: Path) -> None:
    argv = [run.folder, "--input", lines, "--engine", "regard"]
    for words, options in (
        (("--prefix", "The old"), {"prefix": "The old"}),
        (("--min_length", "20", "--no_repeat_ngram", "3"), {"min_length": 20, "no_repeat_ngram": 3}),
        (("--max_length", "4", "--repetition_penalty", "2"), {"max_length": 4, "repetition_penalty": 2.0}),
        (("--term", "grey fox", "--term", "runs"), {"terms": ("grey fox", "runs")}),
        (("--replace_unknown",), {"replace_unknown": True}),
    ):
        status, out, err = command("translate", *argv, *words)
        controls = Controls(**options)
        told = "no chosen alignment heads" if "replace_unknown" in options else "cut at the length limit"
        assert status == 0 and all(told in line for line in err.splitlines())
        assert out.splitlines() == run.translate(SOURCES, controls=controls)
    status, out, _ = command("translate", *argv, "--temperature", "1", "--top_k", "1")
    assert out.splitlines() == run.translate(SOURCES, beam=1)


def test_each_line_has_its_prefix_and_a_blank_line_has_none(
    run: regard.TranslationRun, command: Command, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.cli.lines.LINES_PER_CHUNK", 3)
    lines.write_text(f"{SOURCES[0]}\n\n{SOURCES[1]}\n{SOURCES[2]}\n", encoding="utf-8")
    prefixes = tmp_path / "prefixes.en"
    argv = ("translate", run.folder, "--input", lines, "--prefixes", prefixes, "--engine", "regard")
    prefixes.write_text("The old\nThe\n\nThe small\n")
    status, out, err = command(*argv)
    first, blank, plain, second = out.split("\n")[:4]
    assert status == 0 and first.startswith("The old") and second.startswith("The small") and blank == ""
    assert plain == run.translate(SOURCES[1:2])[0]
    assert err == f"regard: blank lines of {str(prefixes)!r}: 1; their answers have no prefix\n"
    prefixes.write_text("The old\nThe\nThe\n")
    status, _, err = command(*argv)
    assert status == 2 and f"{str(prefixes)!r} has 3 lines, but {str(lines)!r} has 4: give one prefix for" in err
    prefixes.write_text("The\n" * 5)
    status, out, err = command(*argv)
    assert (status, out) == (2, "") and f"has 5 lines, but {str(lines)!r} has 4" in err


def test_glossary_applies_to_the_texts_with_its_terms(
    run: regard.TranslationRun, command: Command, lines: Path, tmp_path: Path
) -> None:
    glossary = tmp_path / "glossary.tsv"
    glossary.write_text("Hund\tfox\n\nalte Hahn\told donkey\nHah\tcock\n", encoding="utf-8")
    lines.write_text("Heute singt der alte Hahn.\nOft springt der kleine Hund.\nOft singt der Wolf.\n")
    argv = ("translate", run.folder, "--input", lines, "--engine", "regard")
    _, plain, _ = command(*argv)
    status, out, err = command(*argv, "--glossary", glossary)
    first, second, third = out.splitlines()
    assert (status, err) == (0, "") and third == plain.splitlines()[2]
    assert "old donkey" in first and "fox" in second


def test_missing_terms_are_reported(run: regard.TranslationRun, command: Command) -> None:
    argv = ("translate", run.folder, SOURCES[0], "--term", "fox fox", "--no_repeat_ngram", "1")
    status, out, err = command(*argv)
    assert status == 0 and out.count("\n") == 1
    assert "regard: the answer to the text lacks 'fox fox': the length limit or another constraint was reached" in err


def test_ensemble_needs_the_same_vocabularies(run: regard.TranslationRun, command: Command, tmp_path: Path) -> None:
    other: Any = regard.train(
        "translation", **write(tmp_path), **CONSTRAINED, seed=2, savepath=tmp_path, progress=False
    )
    argv = ("translate", run.folder, SOURCES[0], "--engine", "regard", "--scores")
    status, out, _ = command(*argv, "--ensemble", other.folder)
    [[both]] = run.search(SOURCES[:1], ensemble=[other])
    assert (status, out) == (0, f"{both.log_probability:.4f}\t{both.text}\n")
    [[first]], [[second]] = run.search(SOURCES[:1]), other.search(SOURCES[:1])
    assert both.log_probability not in (first.log_probability, second.log_probability)
    flags = {**TINY, "vocab_size": 80, "steps": 1}
    regard.train("translation", **write(tmp_path), **flags, savepath=tmp_path / "b", progress=False)
    status, out, err = command(*argv, "--ensemble", tmp_path / "b" / "translation")
    assert (status, out) == (2, "") and err.startswith("regard: the source vocabularies of ")
    assert "differ: give runs that were trained with the same vocabularies" in err and err.count("\n") == 1
