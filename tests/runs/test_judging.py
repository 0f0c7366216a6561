"""Validation: the tokenizer for BLEU, the choice between equally good models, and unknown tokens."""

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

import regard
from regard.errors import InputError
from regard.evaluation.bleu import quality
from tests.conftest import TINY, Command
from tests.german import sentences, write
from tests.toy_corpora import write_toy_corpus

SMALL: dict[str, Any] = {**TINY, "hidden": 8, "inner": 8, "average": 0.0}
CHINESE = dict(zip("abcdefgh", "天地人日月水火木", strict=True))


def write_letters(folder: Path, **counts: int) -> dict[str, Any]:
    """Write lines of 3 to 8 letters, and of the corresponding Chinese characters."""
    random, files = Random(1), dict[str, Any]()
    for part, count in counts.items():
        sources = ["".join(random.choices("abcdefgh", k=random.randint(3, 8))) for _ in range(count)]
        targets = ["".join(CHINESE[letter] for letter in source) for source in sources]
        files[part] = (str(folder / f"{part}.a"), str(folder / f"{part}.zh"))
        for file, lines in zip(files[part], (sources, targets), strict=True):
            Path(file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return files


def test_later_of_equal_models_is_kept(tmp_path: Path) -> None:
    run = regard.train(
        "translation",
        **write(tmp_path),
        **{**SMALL, "validate_every": 2, "lr": 1e-6},
        steps=6,
        savepath=tmp_path,
        progress=False,
    )
    validated = [line["bleu"] for line in run.metrics if "bleu" in line]
    assert validated == [validated[0]] * 3 and run.step == 6


def test_chinese_references_score_100_against_themselves() -> None:
    lines = ["天地人日", "月水火木", "天月地水人"]
    assert quality(lines, lines).main == pytest.approx(100) and quality(lines, lines, tokenize="13a").main == 0
    found = quality(["天地人火", *lines[1:]], lines)
    assert found.tokenizer == "zh" and "|tok:zh|" in found.signatures["bleu"] and 0 < found.main < 100
    assert found.chrf > 50 and not found.warning
    told = quality(lines, lines, tokenize="13a").warning
    assert "BLEU is 0.00 although 100.0% of the answers equal their references" in told
    assert "--bleu_tokenize char" in told
    with pytest.raises(InputError, match="needs a model that sacrebleu downloads"):
        quality(lines, lines, tokenize="spm")


def test_bleu_tokenizer_is_chosen_once_and_stored(tmp_path: Path, command: Command) -> None:
    text = write_letters(tmp_path, train=60, valid=20, test=20)
    flags = {**SMALL, "tokenizer": "characters", "validate_every": 2}
    run = regard.train("translation", **text, **flags, steps=2, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.TranslationRun) and run.config.bleu_tokenizer == "zh"
    assert run.figures().bleu_tokenizer == "zh" and run.about()["bleu_tokenizer"] == "zh"
    status, out, _ = command("test", run.folder)
    assert status == 0 and out.count("|tok:zh|") == 2
    # The stored tokenizer is used for other references, and a flag changes the tokenizer.
    latin = ("--data", text["train"][0], shutil.copy(text["train"][0], tmp_path / "copy"))
    assert command("test", run.folder, *latin)[1].count("|tok:zh|") == 2
    assert command("test", run.folder, *latin, "--bleu_tokenize", "char")[1].count("|tok:char|") == 2
    status, _, err = command("test", run.folder, "--bleu_tokenize", "flores101")
    assert status == 2 and err.count("\n") == 1 and "needs a model" in err
    other = regard.train(
        "translation", **text, **flags, steps=1, bleu_tokenize="char", savepath=tmp_path / "b", progress=False
    )
    assert other.config.bleu_tokenizer == "char"
    begun = regard.train(
        "translation", train=text["train"], start_from=other.folder, steps=1, savepath=tmp_path / "c", progress=False
    )
    assert begun.config.bleu_tokenizer is None and begun.config.task.bleu_tokenize is None


@pytest.mark.slow
def test_best_model_into_chinese_is_kept(tmp_path: Path, command: Command) -> None:
    text = write_letters(tmp_path, train=2000, valid=100, test=100)
    few: dict[str, Any] = {"hidden": 32, "heads": 4, "inner": 64, "enc_layers": 1, "dec_layers": 1, "dropout": 0.0}
    words: list[str] = []
    for part, files in text.items():
        words += [f"--{part}", *files]
    for name, value in {**few, "tokens": 1000, "lr": 0.01, "steps": 400, "validate_every": 50}.items():
        words += [f"--{name}", str(value)]
    status, out, err = command("train", "translation", *words, "--tokenizer", "characters", "--savepath", tmp_path)
    assert status == 0 and "(tokenizer zh) after" in out and "BLEU with tokenizer zh" in err
    run = regard.load(tmp_path / "translation")
    assert isinstance(run, regard.TranslationRun)
    assert run.step > 200 and run.test().quality.exact_match > 0.8


def test_unknown_tokens_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write(tmp_path)
    run = regard.train("translation", **text, **SMALL, steps=1, savepath=tmp_path)
    err = capsys.readouterr().err
    told = "% of the target of the training text; "
    assert "Unknown tokens: " in err and told in err and "warning" not in err
    russian = tmp_path / "russian.tsv"
    russian.write_text("Жук и Щука идут.\tThe dog runs today.\n" * 9, encoding="utf-8")
    other = regard.train(
        "translation", start_from=run.folder, train=(str(russian),), steps=1, savepath=tmp_path / "b", progress=True
    )
    err = capsys.readouterr().err
    assert "of the tokens of the source of the training text" in err and "warning" in err
    assert "the target of the training text (" not in err
    shares = json.loads((other.folder / "unknown.json").read_text())
    source = other.task.source_vocabulary.encode("Жук и Щука идут.")
    assert shares[0]["source"] == {"tokens": 9 * len(source), "unknown": 9 * source.count(3), "characters": 0}
    assert source.count(3) > len(source) / 2 and shares[0]["target"]["unknown"] < 20
    assert "of the source" in other.about()["unknown"][0]


def test_each_text_of_a_mixture_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write(tmp_path)
    run = regard.train("translation", **text, **SMALL, steps=1, savepath=tmp_path)
    for name, line in (("known.tsv", "\t".join(sentences()[0])), ("foreign.tsv", "Ж Щ Ю\t☃ ☂ ☁")):
        (tmp_path / name).write_text(f"{line}\n" * 5, encoding="utf-8")
    files = tuple(str(tmp_path / name) for name in ("known.tsv", "foreign.tsv"))
    capsys.readouterr()
    regard.train(
        "translation", start_from=run.folder, train=files, weights=(1.0, 1.0), steps=1, savepath=tmp_path / "b"
    )
    err = capsys.readouterr().err
    assert "0.00% of the source, 0.00% of the target of the training known.tsv text" in err
    assert err.count("warning") == 2 and "the source of the training foreign.tsv text" in err


@pytest.mark.parametrize("tokenizer", ["words", "characters", "bpe"])
def test_unknown_input_is_reported(tmp_path: Path, command: Command, tokenizer: Any) -> None:
    text = write(tmp_path)
    flags = {**SMALL, "tokenizer": tokenizer}
    run = regard.train("translation", train=text["train"], **flags, steps=1, savepath=tmp_path, progress=False)
    source, target = sentences()[0]
    (tmp_path / "in.txt").write_text(f"{source}\nЩи Жизнь\n", encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text(f"{source}\t{target}\nЩи Юля Жизнь\tЩи Юля Жизнь\n", encoding="utf-8")
    status, _, err = command("translate", run.folder, "--input", tmp_path / "in.txt", "--engine", "regard")
    assert status == 0 and "of the tokens of the input (" in err
    (tmp_path / "in.txt").write_text(f"{source}\n", encoding="utf-8")
    assert (
        command("translate", run.folder, "--input", tmp_path / "in.txt", "--engine", "regard")[2].count("not seen") == 0
    )
    status, _, err = command("translate", run.folder, "Щи", "--engine", "regard")
    assert status == 0 and err.count("not seen in training (") == 1
    status, _, err = command("score", run.folder, "--input", tmp_path / "pairs.tsv")
    assert status == 0 and "of the sources (" in err and "of the targets (" in err
    status, out, err = command("test", run.folder, "--data", tmp_path / "pairs.tsv", "--beam", "1")
    assert status == 0 and "the source of the test text (" in err and "BLEU" in out


def test_tokens_a_sentence_and_rare_symbols_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_toy_corpus(tmp_path, "thai", 150)
    flags = {
        "train": (str(tmp_path / "train.tsv"),),
        "valid": (str(tmp_path / "valid.tsv"),),
        "steps": 1,
        "vocab_size": 400,
    }
    regard.train("translation", **{**SMALL, **flags}, savepath=tmp_path)
    err = capsys.readouterr().err
    assert "thai has no spaces between words" in err and "Tokens a sentence: " in err
    assert "% of the symbols occur once or twice" in err and "warning" not in err
    regard.train("translation", **{**SMALL, **flags, "tokenizer": "words"}, savepath=tmp_path / "words")
    assert "of the symbols occur once or twice in the training text, too rarely to be" in capsys.readouterr().err
    words = tmp_path / "words.txt"
    words.write_text("".join(f"{word}\n" for word in ["the", "in", "dog", "cat"]), encoding="utf-8")
    with pytest.raises(InputError, match="100% of the target tokens of the training text are not in the vocab"):
        regard.train("translation", **{**SMALL, **flags, "tokenizer": str(words)}, savepath=tmp_path / "other")
    assert not (tmp_path / "other" / "translation").exists()
