"""Constraints on the answers of `regard translate`, from the command line."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.decoding.controls import Controls
from tests.conftest import TINY
from tests.german import sentences, write

Command = Callable[..., tuple[int, str, str]]
SOURCES = [source for source, _ in sentences()[:4]]


FLAGS = {**TINY, "vocab_size": 200, "steps": 200}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> regard.TranslationRun:
    """Return a run whose vocabulary contains all words."""
    folder = tmp_path_factory.mktemp("constrained")
    run: Any = regard.train("translation", **write(folder), **FLAGS, savepath=folder, progress=False)
    return run


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
    assert (
        "regard: the answer to the text lacks 'fox fox': the length limit or another constraint was reached"
        in err
    )


def test_ensemble_needs_the_same_vocabularies(
    run: regard.TranslationRun, command: Command, tmp_path: Path
) -> None:
    other: Any = regard.train(
        "translation", **write(tmp_path), **FLAGS, seed=2, savepath=tmp_path, progress=False
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--min_length", "5", "--max_length", "4"), "min_length 5 exceeds max_length 4"),
        (("--max_length", "0"), "max_length 0 is out of range"),
        (("--no_repeat_ngram", "-1"), "no_repeat_ngram -1 is out of range"),
        (("--repetition_penalty", "0"), "repetition_penalty 0.0 is out of range: choose from 1 to 100"),
        (("--prefix", ""), "prefix '' is blank: leave it out"),
        (("--prefix", "☃"), "prefix '☃' has tokens not seen in training: '☃'"),
        (
            ("--prefix", "x", "--prefixes", "y"),
            "--prefixes is for the lines of a file: give --prefix for one text",
        ),
        (("--term", " "), "term ' ' is blank: leave it out"),
        (("--term", "☃"), "term '☃' has tokens not seen in training: '☃': choose another term"),
        (("--term", "dog", "--beam", "1"), "terms and a glossary need beam search: give a beam of at least 2"),
        (("--term", "dog", "--temperature", "1"), "terms and a glossary need beam search"),
        (
            ("--term", "old dog", "--max_length", "1"),
            "tokens, but an answer has at most 1: give a lower min_length",
        ),
        (("--top_k", "3"), "top_k, top_p and seed change sampling, but there is no temperature"),
        (("--temperature", "1", "--top_p", "0"), "top_p 0.0 is out of range: choose above 0 and at most 1"),
        (("--glossary", "nowhere.tsv"), "file 'nowhere.tsv' does not exist: check its name"),
        (("--ensemble", "nowhere"), "nowhere"),
    ],
)
def test_bad_input_is_one_line(
    run: regard.TranslationRun, command: Command, words: tuple[str, ...], message: str
) -> None:
    status, out, err = command("translate", run.folder, SOURCES[0], "--engine", "regard", *words)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Hund\n", "line 1 of .* is 'Hund': give a source term, a tab and its translation"),
        ("Hund\tdog\tcat\n", "line 1 of "),
        ("\tdog\n", "line 1 of "),
        ("Hund\tdog\n\nHund\tfox\n", "line 3 of .* translates 'Hund' by 'fox', but an earlier line by 'dog'"),
        ("Hund\t☃\n", "term '☃' has tokens not seen in training"),
    ],
)
def test_bad_glossary_is_one_line(
    run: regard.TranslationRun, command: Command, tmp_path: Path, content: str, message: str
) -> None:
    glossary = tmp_path / "glossary.tsv"
    glossary.write_text(content, encoding="utf-8")
    status, out, err = command("translate", run.folder, SOURCES[0], "--glossary", glossary)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert re.search(message, err)
