"""Tokenizers of imported models: SentencePiece, compared with the library and with Hugging Face's Marian tokenizer."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from regard.data.imported_tokenizers import ImportedTokenizer, SentencePieceVocabulary
from regard.data.prepare import read_vocabularies
from regard.data.vocabulary import BLANK, BOS, EOS, PAD, UNKNOWN
from regard.errors import InputError
from tests.german import sentences
from tests.marian import pieces_of, vocabulary_of

sentencepiece = pytest.importorskip("sentencepiece")
SPECIAL = ("</s>", "<unk>", "<pad>")
ODD = [
    *("", "  ", " a ", "\t", "</s> <pad> <unk>", "☃ Schneemann", "a\u0301 é", "😀😁 x", "日本語", "x\x00y", "ﬁ ½ ㎏"),
    *("a\u00a0b", "\u200b", "▁", "▁▁ a", "�", "\n a\nb", "Ä" * 300),
    *(">>en<< Hund", ">>xx<< Hund", ">>en Hund", "a >>en<<", ">><<", ">>", "<<>>"),
]


@pytest.fixture(scope="module")
def found() -> SentencePieceVocabulary:
    model = pieces_of(0)
    return SentencePieceVocabulary(model, [each for each in vocabulary_of(model) if each not in SPECIAL], codes=True)


def test_encode_decode_round_trip(found: SentencePieceVocabulary) -> None:
    known = [text for text, _ in sentences() if UNKNOWN not in found.encode(text)]
    assert len(known) > 20
    for text in known:
        indices = found.encode(text)
        assert found.decode([BOS, *indices, EOS, 9, PAD]) == text
        assert "".join(found.labels(indices)) == BLANK + text.replace(" ", BLANK)
        assert found.pieces(text) == found.labels(indices) and not found.unknown(text)
    assert found.encode_all(known) == [found.encode(text) for text in known]


def test_indices_equal_those_of_marians_tokenizer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("sacremoses")  # without this package, the Marian tokenizer prints a warning
    models = pieces_of(0), pieces_of(1)
    numbers = vocabulary_of(*models)
    (tmp_path / "vocab.json").write_text(json.dumps(numbers), encoding="utf-8")
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (tmp_path / name).write_bytes(model)
    theirs: Any = transformers.MarianTokenizer.from_pretrained(
        tmp_path, source_lang="de", target_lang="en", split_special_tokens=True
    )
    symbols = [each for each in numbers if each not in SPECIAL]
    order = [-1, -1, numbers["</s>"], numbers["<unk>"], *(numbers[each] for each in symbols)]
    for side, (model, name) in enumerate(zip(models, ("text", "text_target"), strict=True)):
        mine = SentencePieceVocabulary(model, symbols, codes=True)
        for text in [*ODD, *(pair[side] for pair in sentences())]:
            expected = theirs(**{name: [text]}).input_ids[0]
            assert [order[index] for index in mine.encode(text)] + [0] == expected, text
            if UNKNOWN not in mine.encode(text):
                read = theirs.decode(expected, skip_special_tokens=True, use_source_tokenizer=side == 0)
                assert mine.decode(mine.encode(text)) == read


@cache
def given_pieces() -> SentencePieceVocabulary:
    return SentencePieceVocabulary(pieces_of(0), ["▁", "▁Hund", "▁ist", "."], codes=True)


@given(st.text(alphabet=st.sampled_from("Hund ist müde. ☃ﬁ½\u0301><🐶\x00")) | st.sampled_from(ODD))
def test_every_token_has_offsets(text: str) -> None:
    mine = given_pieces()
    places, pieces = mine.offsets(text), mine.pieces(text)
    assert len(places) == len(pieces) == len(mine.encode(text))
    assert places == sorted(places) and all(0 <= begin <= end <= len(text) for begin, end in places)


def test_offsets_cover_the_words(found: SentencePieceVocabulary) -> None:
    text = ">>en<< Heute läuft ☃ der Hund."
    cut = [text[begin:end] for begin, end in found.offsets(text)]
    assert cut[0] == ">>en<<" and "".join(cut) == text.replace("< ", "<") and found.unknown(text) == ["☃"]
    assert found.pieces(text)[0] == ">>en<<" and "☃" in found.pieces(text)


def test_json_round_trip(found: SentencePieceVocabulary) -> None:
    source, target = read_vocabularies(found.to_json(), found.to_json())
    assert source is target and isinstance(source, SentencePieceVocabulary) and source.symbols == found.symbols
    assert source.encode(ODD[18]) == found.encode(ODD[18]) and source.to_json() == found.to_json()
    lower = SentencePieceVocabulary(found.model, found.symbols[4:], lowercase=True)
    again = SentencePieceVocabulary.from_json(lower.to_json())
    assert again.encode("DER Hund") == found.encode("der hund") != found.encode("DER Hund")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sentencepiece": "abc"}, "its model is not base64"),
        ({"sentencepiece": "aaaa"}, "sentencepiece cannot read its model"),
        ({"symbols": ["a", "a"]}, "it lists a piece twice"),
        ({"symbols": []}, "'symbols' has an invalid value"),
        ({"more": 1}, "'more' is unknown"),
    ],
)
def test_a_damaged_vocabulary_is_refused(found: SentencePieceVocabulary, change: dict[str, Any], message: str) -> None:
    stored = json.loads(found.to_json()) | change
    text = json.dumps(stored, separators=(",", ":"))
    with pytest.raises(InputError, match=f"^tokenizer is damaged: {message}.*; restore the model from a copy"):
        read_vocabularies(text, text)


def test_a_tokenizer_without_an_unknown_token_encodes_its_own_words() -> None:
    """The export of a task with letters has such a tokenizer."""
    tokenizer = Tokenizer(models.WordLevel({"B": 0, "C": 1}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    imported = ImportedTokenizer(tokenizer, size=2)
    assert imported.prefix == [] and imported.encode("C B") == [1, 0]
    with pytest.raises(InputError, match="tokenizers"):
        imported.encode("A")
