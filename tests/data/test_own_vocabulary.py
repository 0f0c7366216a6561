"""Vocabularies from files of the user: SentencePiece models, vocabularies of runs, lists of words."""

from pathlib import Path
from typing import Any

import pytest

import regard
from regard.data.prepare import read_own_vocabulary
from regard.data.subwords import train_subwords
from regard.data.vocabulary import UNKNOWN
from regard.errors import InputError
from regard.tasks.translation import TranslationTaskConfig
from tests.conftest import TINY
from tests.german import sentences, write

FLAGS: dict[str, Any] = {**TINY, "hidden": 8, "inner": 8, "steps": 2, "validate_every": 2, "progress": False}
TEXT = [side for pair in sentences()[:60] for side in pair]


def write_model(folder: Path, **options: Any) -> Path:
    """Train a SentencePiece model with a tag and, by default, byte fallback."""
    sentencepiece = pytest.importorskip("sentencepiece")
    (folder / "text").write_text("\n".join(TEXT), encoding="utf-8")
    settings = {
        "vocab_size": 360,
        "hard_vocab_limit": False,
        "byte_fallback": True,
        "user_defined_symbols": ["<2en>"],
        **options,
    }
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "own"), minloglevel=2, **settings
    )
    return folder / "own.model"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece_model(tmp_path: Path, kind: str) -> None:
    path = write_model(tmp_path, model_type=kind)
    vocabulary = read_own_vocabulary(path)
    processor = pytest.importorskip("sentencepiece").SentencePieceProcessor(str(path))
    for text in (*TEXT[:10], "<2en> Der Hund 漢字 schläft €"):
        assert vocabulary.pieces(text) == [
            piece if piece in vocabulary.symbols else piece.strip("▁") for piece in processor.EncodeAsPieces(text)
        ]
        indices = vocabulary.encode(text)
        assert UNKNOWN not in indices and vocabulary.decode(indices) == text
    assert "<2en>" in vocabulary.symbols and "<unk>" not in vocabulary.symbols
    again = read_own_vocabulary(path, lowercase=True)
    assert again.decode(again.encode("Der HUND")) == "der hund"


def test_training_with_a_model_stores_it_in_the_run(tmp_path: Path) -> None:
    path = write_model(tmp_path)
    run = regard.train("translation", **write(tmp_path), **FLAGS, tokenizer=str(path), savepath=tmp_path)
    assert isinstance(run, regard.TranslationRun)
    path.unlink()
    loaded = regard.load(run.folder)
    assert isinstance(loaded, regard.TranslationRun)
    source = loaded.task.source_vocabulary
    assert source is loaded.task.target_vocabulary and source.decode(source.encode("漢字")) == "漢字"
    assert len(loaded.translate(["<2en> Heute singt der Hahn."])) == 1
    resumed = regard.train("translation", resume=True, steps=3, savepath=tmp_path, progress=False)
    assert resumed.step == 3


def test_two_files_without_a_joint_vocabulary(tmp_path: Path) -> None:
    text = write(tmp_path)
    for side, name in enumerate(("source.txt", "target.txt")):
        words = dict.fromkeys(word for pair in sentences() for word in pair[side].split())
        (tmp_path / name).write_text("".join(f"{word} 1\n" for word in ["<s>", *words]), encoding="utf-8")
    files = f"{tmp_path / 'source.txt'},{tmp_path / 'target.txt'}"
    run = regard.train("translation", **text, **FLAGS, tokenizer=files, joint=False, savepath=tmp_path)
    assert isinstance(run, regard.TranslationRun)
    source, target = run.task.source_vocabulary, run.task.target_vocabulary
    for line, other in sentences()[:5]:
        assert source.decode(source.encode(line)) == line and UNKNOWN not in source.encode(line)
        assert target.decode(target.encode(other)) == other and UNKNOWN in target.encode(line)


def test_vocabulary_of_another_run(tmp_path: Path) -> None:
    vocabulary = train_subwords(TEXT, kind="bpe", size=90, symbols=["<2en>"], lowercase=True)
    (tmp_path / "source.json").write_text(vocabulary.to_json(), encoding="utf-8")
    again = read_own_vocabulary(tmp_path / "source.json", lowercase=True)
    assert again.to_json() == vocabulary.to_json()
    with pytest.raises(InputError, match=r"source.json' lowercases text: add --lowercase"):
        read_own_vocabulary(tmp_path / "source.json")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("own.model", b"no model", "own.model' is damaged: sentencepiece cannot read its model; restore a copy"),
        ("own.json", b"{}", "tokenizer is damaged"),
        ("own.txt", b"\n<s>\n", "own.txt' has no words: give one word a line"),
        ("own.txt", b"\xff\xfe", "own.txt"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    if name.endswith("model"):
        pytest.importorskip("sentencepiece")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        read_own_vocabulary(tmp_path / name)
    assert "\n" not in str(raised.value)


def test_normalizations_are_separated_by_commas() -> None:
    assert TranslationTaskConfig(normalize=("nfkc,quotes",)).normalize == ("nfkc", "quotes")
