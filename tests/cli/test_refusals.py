"""Bad input is refused in one line with status 2, before anything is read from standard input or written."""

import io
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import regard
from tests.conftest import Command
from tests.german import LINKS, sentences, write

LINES = {
    name: [*lines.items()]
    for name, lines in tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8")).items()
}
"""By group: command lines and a part of the message."""
RUNS = ("RUN", "DATES", "GERMAN")
"""A run of signal2, a run of dates and a translator; words of the command lines below stand for their folders."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with texts. Standard input fails if it is read."""

    class Unread(io.BytesIO):
        def peek(self, *_: Any) -> bytes:
            raise AssertionError("standard input was read")

        read = readline = __next__ = peek

    (tmp_path / "text").mkdir()
    text = write(tmp_path / "text")
    pairs = sentences()[200:]
    valid = zip(*(Path(path).read_text(encoding="utf-8").splitlines() for path in text["valid"]), strict=True)
    files = {
        "valid.tsv": [f"{source}\t{target}" for source, target in valid],
        "repeated.tsv": ["der Hund\tthe dog"] * 60,
        "empty.tsv": [],
        "blank.tsv": [""],
        "a.tsv": ["a\tb"],
        "a.de": [source for source, _ in pairs],
        "a.en": [target for _, target in pairs],
        "a.links": [LINKS] * len(pairs),
        "past.links": ["9-0", *[LINKS] * (len(pairs) - 1)],
        "short.en": ["0-0"],
        "half.tsv": ["Hund"],
        "three.tsv": ["Hund\tdog\tcat"],
        "no_source.tsv": ["\tdog"],
        "twice.tsv": ["Hund\tdog", "", "Hund\tfox"],
        "unknown.tsv": ["Hund\t☃"],
        "mine.py": [],
    }
    files["more.tsv"] = files["valid.tsv"]
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Unread()))
    return tmp_path


def check(command: Command, words: list[str | Path], message: str, *, keeps: bool = True) -> None:
    """Run a command line that is refused. `keeps`: it writes nothing."""
    before = set(Path.cwd().rglob("*"))
    status, out, err = command(*words)
    assert (status, out) == (2, "") and message in err, (status, out, err)
    assert err.startswith("regard: ") and err.count("\n") == 1, err
    written = {path for path in set(Path.cwd().rglob("*")) - before if path.is_file()}
    assert not keeps or not written, written


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("line", "message"), LINES["PLAIN"])
def test_bad_input(command: Command, line: str, message: str) -> None:
    check(command, [*shlex.split(line)], message)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("line", "message"), [*LINES["OF_A_RUN"], *LINES["OF_A_TRANSLATOR"]])
def test_bad_input_for_a_run(
    command: Command,
    trained: regard.AnswerRun,
    german: regard.TranslationRun,
    translator: regard.PairRun,
    line: str,
    message: str,
) -> None:
    places = {"RUN": trained.folder, "GERMAN": german.folder, "DATES": translator.folder}
    words = [places.get(word, word) for word in shlex.split(line)]
    if line.startswith("trust") and "train.de" in line:
        words = ["trust", german.folder, "--data", *map(Path, german.task.config.train)]
    check(command, words, message.replace("GERMAN", str(german.folder)))
    assert not (german.folder / "alignment.json").exists()


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("flags", "message"), LINES["TRAINING"])
def test_training_checks_options_before_it_learns_a_vocabulary(command: Command, flags: str, message: str) -> None:
    train = [] if re.search("--(train|hub)", flags) else ["--train", "text/train.de", "text/train.en"]
    words: list[str | Path] = ["train", "translation", *train, *shlex.split(flags), "--steps", "2"]
    check(command, words, message)


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    savepath = tmp_path_factory.mktemp("counting")
    return regard.train("counting", steps=2, hidden=8, savepath=savepath, progress=False).folder


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("words", "message"), LINES["OF_COUNTING"])
def test_a_run_that_lacks_what_a_figure_shows(command: Command, counting: Path, words: str, message: str) -> None:
    kind, *flags = shlex.split(words)
    check(command, ["plot", kind, counting, "-o", "figure.pdf", *flags], message)


@pytest.mark.usefixtures("site")
def test_diverging_training_keeps_its_last_checkpoint(command: Command) -> None:
    words: list[str | Path] = ["train", "counting", "--lr", "1e30", "--steps", "50"]
    check(command, words, "lower --lr; the last checkpoint of the run", keeps=False)
