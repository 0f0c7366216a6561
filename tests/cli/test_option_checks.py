"""Options of translation are checked before any text is read, and no option is ignored silently."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli.compare import _flags
from tests.german import write

Command = Callable[..., tuple[int, str, str]]
SOURCE = "Heute läuft der kleine Hund."
BAD_SEARCH = {
    "beam": (["--beam", "0"], "beam 0 is out of range: choose from 1 to 1000"),
    "n_best": (["--beam", "2", "--n_best", "3"], "n_best 3 exceeds beam 2: lower n_best, or raise beam"),
    "penalty": (["--beam", "1", "--length_penalty", "nan"], "length_penalty nan is out of range: choose from 0"),
    "temperature": (["--temperature", "nan"], "temperature nan is out of range: choose from 0.001 to 1000, or 0"),
    "negative temperature": (["--temperature", "-1"], "temperature -1.0 is out of range"),
    "infinite temperature": (["--temperature", "inf"], "temperature inf is out of range"),
    "penalty of greedy search": (
        ["--beam", "1", "--length_penalty", "2"],
        "--length_penalty 2 ranks answers",
    ),
    "penalty of samples": (["--temperature", "1", "--length_penalty", "2"], "--length_penalty 2 ranks answers"),
    "top_k": (["--temperature", "1", "--top_k", "-1"], "top_k -1 is out of range"),
    "top_p": (["--temperature", "1", "--top_p", "nan"], "top_p nan is out of range"),
    "seed": (["--seed", "3"], "top_k, top_p and seed change sampling, but there is no temperature"),
    "batchsize": (["--batchsize", "0"], "batchsize 0 is out of range"),
    "lengths": (["--min_length", "5", "--max_length", "3"], "min_length 5 exceeds max_length 3"),
    "tab": (["--term", "dog\tcat"], r"term 'dog\tcat' contains a tab: give one term of the target language"),
    "words": (["--words"], "--words changes the drawing of --plot: give --plot, or leave out --words"),
    "int8": (["--engine", "regard", "--precision", "int8"], "precision int8 needs CTranslate2"),
}


@pytest.fixture
def no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if standard input is read."""

    class Unread(io.BytesIO):
        def peek(self, *_: Any) -> bytes:
            raise AssertionError("standard input was read")

        read = readline = __next__ = peek

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Unread()))


def refused(result: tuple[int, str, str], message: str) -> None:
    status, out, err = result
    assert (status, out) == (2, "") and message in err, result
    assert err.startswith("regard: ") and err.count("\n") == 1, err


@pytest.mark.usefixtures("no_input")
@pytest.mark.parametrize(("flags", "message"), BAD_SEARCH.values(), ids=BAD_SEARCH)
def test_translate_checks_options_before_it_reads_lines(
    german: regard.TranslationRun, command: Command, flags: list[str], message: str
) -> None:
    refused(command("translate", german.folder, *flags), message)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--input", "FILE", "--input", "FILE"], "flag --input is given 2 times"),
        ([SOURCE, "--input", "FILE"], "and --input exclude each other"),
        ([SOURCE, "--lenient"], "--lenient is for the lines of a file"),
        ([SOURCE, "--plot", "no/such/folder/a.png"], "cannot write 'no/such/folder/a.png'"),
        ([SOURCE, "--glossary", "EMPTY"], "has no terms: give lines with a source term, a tab"),
        ([SOURCE, "--temperature", "1", "--n_best", "2"], "n_best 2 ranks answers, but a temperature draws one"),
        (["--input", "FOLDER"], "Is a directory; choose another file"),
        ([SOURCE, "--ensemble", "RUN"], "--ensemble names a run twice, or RUN itself: name only other runs"),
    ],
)
def test_translate_refuses_contradictions(
    german: regard.TranslationRun, command: Command, tmp_path: Path, argv: list[str], message: str
) -> None:
    places = {
        "RUN": german.folder,
        "FILE": tmp_path / "lines.txt",
        "EMPTY": tmp_path / "empty.tsv",
        "FOLDER": tmp_path,
    }
    places["FILE"].write_text(f"{SOURCE}\n", encoding="utf-8")
    places["EMPTY"].write_text("\n")
    refused(command("translate", german.folder, *(places.get(word, word) for word in argv)), message)


def test_missing_terms_of_all_answers_are_reported(german: regard.TranslationRun, command: Command) -> None:
    argv = ("translate", german.folder, SOURCE, "--term", "The o", "--beam", "4", "--n_best", "4")
    status, out, err = command(*argv, "--max_length", "3")
    lacking = sum("The o" not in answer for answer in out.splitlines())
    assert status == 0 and 1 < lacking <= 4
    assert f"regard: {lacking} of the 4 answers to the text lack 'The o': the length limit" in err


def test_unchosen_heads_of_replaced_words_are_reported(german: regard.TranslationRun, command: Command) -> None:
    status, _, err = command("translate", german.folder, SOURCE, "--replace_unknown")
    assert status == 0 and "this run has no chosen alignment heads" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--beam", "0"], "beam 0 is out of range"),
        (["--false_alarms", "nan"], "false_alarms nan is out of range: choose above 0 and less than 0.5"),
        (["--false_alarms", "0.5"], "false_alarms 0.5 is out of range"),
        (["--seed", "-1"], "seed -1 is out of range"),
        (["--samples", "49"], "samples 49 is out of range: choose from 50 to 1000000"),
        (["--data", "missing.tsv", "--data", "more.tsv"], "flag --data is given 2 times"),
    ],
)
def test_trust_checks_options_before_it_reads_text(
    german: regard.TranslationRun, command: Command, flags: list[str], message: str
) -> None:
    data = [] if "--data" in flags else ["--data", "missing.tsv"]
    refused(command("trust", german.folder, *data, *flags), message)


def test_trust_is_lenient_only_with_data(german: regard.TranslationRun, command: Command) -> None:
    refused(command("trust", german.folder, "--lenient"), "--lenient leaves out lines of --data: give --data")


def test_trust_refuses_the_training_text(german: regard.TranslationRun, command: Command) -> None:
    refused(
        command("trust", german.folder, "--data", *german.task.config.train),
        "240 of 240 pairs are in the training text of the run",
    )


def test_trust_refuses_repeated_pairs(german: regard.TranslationRun, command: Command, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(f"{SOURCE}\tThe small dog runs today.\n" * 60, encoding="utf-8")
    refused(
        command("trust", german.folder, "--data", tmp_path / "pairs.tsv"),
        "too few different pairs to calibrate the doubt (1): give at least 50",
    )


def test_translate_reports_pairs_instead_of_sources(
    german: regard.TranslationRun, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "pairs.tsv").write_text(f"{SOURCE}\tThe small dog runs today.\n" * 2, encoding="utf-8")
    status, out, err = command("translate", german.folder, "--input", tmp_path / "pairs.tsv")
    assert status == 0 and out.count("\n") == 2 and err.count("has a tab: give only sources") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["test", "RUN", "--samples", "9"],
            "--samples is for generated samples, but RUN has parallel text: to test",
        ),
        (["test", "RUN", "--seed", "3"], "--seed is for generated samples, but RUN has parallel text: all pairs"),
        (["test", "RUN", "--plot"], "draw one translation with `regard translate RUN TEXT --plot`"),
        (["explain", "RUN", "--depth", "3"], "--depth has no effect without --why"),
        (["examine", "RUN", "--explorer", "http://x"], "--explorer has no effect without --html"),
        (
            ["compare", "counting", "--vary", "heads=1", "--explorer", "x"],
            "--explorer has no effect without --html",
        ),
        (["clean", "a.de", "a.en", "--min_score", "0.5"], "--min_score has no effect without --runs"),
        (["write", "previous", "--causal"], "--causal has no effect without --hide"),
    ],
)
def test_options_without_effect_are_refused(
    german: regard.TranslationRun, command: Command, argv: list[str], message: str
) -> None:
    run = str(german.folder)
    refused(command(*(word.replace("RUN", run) for word in argv)), message.replace("RUN", run))


def test_test_checks_options_and_keeps_its_input(
    german: regard.TranslationRun, command: Command, tmp_path: Path
) -> None:
    for flags, message in (
        (("--beam", "0"), "beam 0 is out of range"),
        (("--beam", "1", "--length_penalty", "nan"), "length_penalty nan is out of range"),
        (("--batchsize", "0"), "batchsize 0 is out of range"),
    ):
        refused(command("test", german.folder, "--data", "missing.tsv", *flags), message)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(f"{SOURCE}\tThe small dog runs today.\n", encoding="utf-8")
    for flag in ("--output", "--json"):
        refused(
            command("test", german.folder, "--data", pairs, flag, pairs), "is also an input, and would be lost"
        )
    own = german.task.config.test[0]
    refused(command("test", german.folder, "--output", own), "is also an input, and would be lost")
    refused(command("test", german.folder, "--output", tmp_path), "Is a directory")
    both = ("--output", tmp_path / "out", "--json", tmp_path / "out")
    refused(command("test", german.folder, *both), "--output and --json are both")


@pytest.mark.usefixtures("no_input")
def test_score_checks_options_before_it_reads_lines(german: regard.TranslationRun, command: Command) -> None:
    refused(command("score", german.folder, "--batchsize", "0"), "batchsize 0 is out of range")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--samples", "3"], "--samples is for choosing heads: give --links or --silver"),
        (["--no-keep"], "--no-keep is for choosing heads"),
        (["--silver", "--by", "head"], "--by is for aligning pairs, not for choosing heads"),
        (["--silver", "--format", "json"], "--format json is for aligning pairs"),
        (["--plot", "no/such/folder/a.png"], "cannot write 'no/such/folder/a.png'"),
        (["--plot", "a.png"], "the input has no pairs, so there is nothing to draw"),
    ],
)
def test_align_refuses_options_without_effect(
    german: regard.TranslationRun, command: Command, tmp_path: Path, flags: list[str], message: str
) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    refused(command("align", german.folder, empty, *flags), message)


BAD_TRAINING = {
    "criterion without text": (
        ["--criterion", "loss/news"],
        "criterion loss/news names no text of --extra_valid",
    ),
    "criterion of another text": (
        ["--valid", "VALID", "--extra_valid", "other=VALID", "--criterion", "loss/news"],
        "names no text of --extra_valid: other; give a text with --extra_valid news=SOURCE,TARGET",
    ),
    "criterion without a name": (["--criterion", "loss/"], "criterion 'loss/' is unknown"),
    "empty text": (["--train", "EMPTY"], "empty.tsv' has no pairs: 0 pairs; give another text"),
    "empty validation text": (["--valid", "EMPTY"], "empty.tsv' has no pairs"),
    "empty extra text": (["--valid", "VALID", "--extra_valid", "n=EMPTY"], "validation n text '"),
    "two extra texts": (
        ["--valid", "VALID", "--extra_valid", "a=VALID", "--extra_valid", "b=VALID"],
        "flag --extra_valid is given 2 times: give all its values at once",
    ),
    "sharded": (["--sharded"], "sharded splits the model between processes: start training with torchrun"),
    "merges of words": (["--merge_dropout", "0.1", "--tokenizer", "words"], "which the tokenizer words does not"),
    "merges of unigrams": (["--merge_dropout", "0.1", "--tokenizer", "unigram"], "use it with --tokenizer bpe"),
    "patience": (["--patience", "3"], "patience 3 counts validations, but there is no validation text"),
    "guide": (["--guide_weight", "0.05"], "without --guide: leave guide_weight out, or give --guide"),
    "guide without weight": (["--guide", "PLAIN", "--guide_weight", "0"], "guide_weight 0: leave guide out"),
    "weights": (
        ["--weights", "1"],
        "weights 1.0 has no effect without a second text of --train: leave weights out",
    ),
    "snapshots": (["--snapshots", "4"], "snapshots 4 has no effect without more --steps: leave snapshots out"),
    "late patience": (
        ["--valid", "VALID", "--patience", "1", "--validate_every", "1"],
        "patience 1 has no effect without more --steps or a smaller --validate_every: leave patience out",
    ),
    "scored by nothing": (
        ["--bleu_tokenize", "char"],
        "bleu_tokenize char has no effect without --valid or --test",
    ),
    "nothing to validate": (["--validate_every", "1"], "validate_every 1 has no effect without validation text"),
    "tied": (["--tied", "--positions", "concatenated"], "tied True has no effect with concatenated positions"),
    "untied": (
        ["--no_tied", "--attention", "concatenated"],
        "tied False has no effect with concatenated positions",
    ),
    "texts of a data set": (
        ["--hub", "x", "--languages", "de", "en", "--valid", "VALID"],
        "has no effect with --hub: leave valid out, or leave out --hub",
    ),
    "trust in code": (["--trust_code"], "--trust_code has no effect without --resume: leave out --trust_code"),
    "trust in edits": (["--trust-edited"], "--trust_edited has no effect without --resume"),
    "one file twice": (["--train", "PLAIN", "PLAIN"], "source and target are both '"),
    "two files of pairs": (
        ["--train", "VALID", "PAIRS"],
        "training text has tabs in both files: give one file of",
    ),
    "no value": (["--valid", "--seed", "1"], "flag --valid has no value: add a value, or leave the flag out"),
    "no tabs": (
        ["--train", "PLAIN"],
        "0 pairs; left out: 24 without a partner; separate source and target in each",
    ),
    "languages": (["--languages", "de", "en"], "languages names columns of a data set: also give --hub"),
    "two positions": (["--attention", "alibi", "--positions", "sinusoidal"], "are both for the slot position"),
    "default positions": (["--attention", "alibi", "--positions", "rotary"], "are both for the slot position"),
    "default score": (["--attention", "cosine", "--score", "scaled_dot"], "are both for the slot score"),
    "score of linear attention": (["--attention", "linear", "--score", "dot"], "are both for the slot linear"),
}


@pytest.mark.parametrize(("flags", "message"), BAD_TRAINING.values(), ids=BAD_TRAINING)
def test_training_checks_options_before_it_learns_a_vocabulary(
    command: Command, tmp_path: Path, flags: list[str], message: str
) -> None:
    text = write(tmp_path)
    pairs = zip(*(Path(path).read_text(encoding="utf-8").splitlines() for path in text["valid"]), strict=True)
    valid, empty = tmp_path / "valid.tsv", tmp_path / "empty.tsv"
    valid.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    empty.touch()
    (tmp_path / "pairs.tsv").write_bytes(valid.read_bytes())
    places = {
        "PAIRS": str(tmp_path / "pairs.tsv"),
        "VALID": str(valid),
        "EMPTY": str(empty),
        "PLAIN": text["valid"][0],
    }
    words = flags
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    train = [] if {"--train", "--hub"} & set(flags) else ["--train", *text["train"]]
    result = command("train", "translation", *train, *words, "--steps", "2", "--savepath", tmp_path / "runs")
    refused(result, message)
    assert not list(tmp_path.glob("runs/*/vocabulary*"))


def test_mechanism_replaces_options_that_are_not_given() -> None:
    assert regard.TranslationConfig(train=("x.tsv",), attention="alibi").run_config().model.positions != "rotary"
    with pytest.raises(regard.InputError, match="--key_value_heads 2 and attention part multi_query are both"):
        regard.make_config("dyck", {"attention": "multi_query", "key_value_heads": 2})
    with pytest.raises(regard.InputError, match="--positions learned and attention part alibi are both"):
        regard.make_config("dyck", {"attention": "alibi", "positions": "learned"})


def test_comparison_keeps_the_mechanism_and_the_preset() -> None:
    assert _flags("dyck", ["--attention", "alibi", "--heads", "2"]) == {
        "attention": "alibi",
        "model": "decoder",
        "heads": 2,
    }
    assert _flags("translation", ["--preset", "small"])["preset"] == "small"
