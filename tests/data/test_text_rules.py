"""Whole symbols, normalization and bytes in vocabularies that are learned from text."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.data.corpus import corpus_tokenizer
from regard.data.prepare import TokenizerConfig, parse_vocabulary
from regard.data.subwords import BpeDropout, SubwordVocabulary, check_symbols, make_normalizer, train_subwords
from regard.data.vocabulary import BLANK, EOS, UNKNOWN, TokenizerKind
from regard.errors import InputError

SYMBOLS = ("<2en>", "<2e", "__NUM__", "ﬁ", "„X“")
TEXT = ["Der Hund läuft, oft.", "<2en> der „alte“ Wolf __NUM__ schläft", "Ein Fisch (ﬁ) singt"] * 3
KINDS: list[TokenizerKind] = ["bpe", "unigram", "words", "characters"]
RULES = make_normalizer(normalize=["nfkc", "quotes"], symbols=SYMBOLS)


def learn(kind: TokenizerKind, **options: object) -> SubwordVocabulary:
    return train_subwords(TEXT, kind=kind, size=400, **{"symbols": SYMBOLS, **options})  # type: ignore[arg-type]


LEARNED = {
    kind: learn(kind, lowercase=True, normalize=["nfkc", "quotes"], byte_fallback=kind in ("bpe", "unigram"))
    for kind in KINDS
}
words = st.lists(st.text(st.sampled_from("HundläuftX漢<2e>_NUM“„\u0301\u00a0ﬁ\U000f0000(.,")), max_size=4)
before_and_after = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@pytest.mark.parametrize("kind", KINDS)
@given(before=before_and_after, symbol=st.sampled_from(["<2en>", "__NUM__"]), after=before_and_after)
def test_symbols_stay_whole_anywhere(kind: TokenizerKind, before: str, symbol: str, after: str) -> None:
    vocabulary = LEARNED[kind]
    text = f"{before}{symbol}{after}"
    pieces = vocabulary.pieces(text)
    assert sum(piece.lstrip(BLANK) == symbol for piece in pieces) >= 1
    indices = vocabulary.encode(text)
    assert symbol in vocabulary.decode(indices) and len(indices) == len(pieces)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_at_the_beginning_is_one_token(kind: TokenizerKind) -> None:
    vocabulary = LEARNED[kind]
    first, *others = vocabulary.encode("<2en> Der Hund.")
    assert vocabulary.symbols[first] == f"{BLANK}<2en>"
    assert others == vocabulary.encode("Der Hund.")
    assert vocabulary.decode([first, *others]) == "<2en> der hund."
    assert sorted(vocabulary.whole) == sorted(SYMBOLS)


@given(text=st.text())
def test_normalization_is_idempotent(text: str) -> None:
    once = RULES.normalize_str(text)
    assert RULES.normalize_str(once) == once


@given(words)
def test_normalization_of_words_is_that_of_the_text(parts: list[str]) -> None:
    vocabulary = LEARNED["bpe"]
    text = " ".join(parts)
    tokens, lengths = corpus_tokenizer(vocabulary)([text, "Der Hund"])
    assert vocabulary.splits_at_blanks
    assert tokens[: lengths[0]].tolist() == [*vocabulary.encode(text), EOS]


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_leave_no_character_unknown(text: str) -> None:
    vocabulary = train_subwords(TEXT, kind="bpe", size=400, byte_fallback=True)
    indices = vocabulary.encode(text)
    assert UNKNOWN not in indices
    # Decoding restores the normalized text. A space at its beginning is the space of the first word.
    normalized = make_normalizer().normalize_str(text)
    assert vocabulary.decode(indices).strip(f" {BLANK}") == normalized.replace(BLANK, " ").strip(f" {BLANK}")


def test_rules_travel_in_json() -> None:
    for kind, vocabulary in LEARNED.items():
        again = parse_vocabulary(vocabulary.to_json())
        for text in (*TEXT, "“__NUM__”—\uff21\uff22\uff23 <0x41>"):
            assert again.encode(text) == vocabulary.encode(text), kind
        assert isinstance(again, SubwordVocabulary) and again.lowercase and again.whole == vocabulary.whole
    assert LEARNED["bpe"].decode(LEARNED["bpe"].encode("“\uff21\uff22” <0x41>")) == '"ab" <0x41>'


def test_without_options_nothing_changes() -> None:
    plain = train_subwords(TEXT, kind="bpe", size=60)
    options = train_subwords(TEXT, kind="bpe", size=60, normalize=())
    assert plain.to_json() == options.to_json() and not plain.whole and not plain.lowercase
    stored = json.loads(plain.to_json())
    assert stored["normalizer"] == {"type": "Sequence", "normalizers": [{"type": "NFC"}]}
    assert [step["type"] for step in stored["pre_tokenizer"]["pretokenizers"]] == ["Metaspace", "Punctuation"]
    old, new = (
        TokenizerConfig(kind="bpe", size=60, joint=True, lowercase=False, symbols=symbols) for symbols in ((), ("a",))
    )
    assert new.digest(None) != old.digest(None)


def test_dropout_keeps_symbols_and_bytes() -> None:
    dropout = BpeDropout(LEARNED["bpe"], 0.5, 0)
    vocabulary = LEARNED["bpe"]
    sentence = np.array([*vocabulary.encode("<2en> der Hund__NUM__漢 läuft"), EOS], dtype=np.uint16)
    for seed in range(20):
        cut = dropout(sentence, np.random.default_rng(seed))
        assert vocabulary.decode(cut.tolist()) == "<2en> der hund__NUM__漢 läuft"
        assert cut[0] == sentence[0] and UNKNOWN not in cut


@pytest.mark.parametrize(
    ("symbols", "problem"),
    [
        (["a b"], "has a space or an invisible character"),
        (["\u200b"], "has a space or an invisible character"),
        ([""], "has a space or an invisible character"),
        (["</s>"], "is the name of a special token"),
        (["<0x41>"], "is the name of a special token"),
        (["a", "a"], "is given twice"),
        (["\U000f0001"], "has a"),
        ([f"s{number}" for number in range(1001)], "symbols has 1,001 entries: give at most 1,000"),
    ],
)
def test_invalid_symbols_are_refused(symbols: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        check_symbols(symbols)


def test_symbols_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "symbols").write_text("<2en>\n<2de>\n\n", encoding="utf-8")
    assert check_symbols([str(tmp_path / "symbols")]) == ("<2en>", "<2de>")
    (tmp_path / "symbols").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="give a UTF-8 file with one symbol a line"):
        check_symbols([str(tmp_path / "symbols")])


def test_bytes_need_subwords_and_room() -> None:
    with pytest.raises(InputError, match="byte_fallback needs subwords: choose --tokenizer bpe or unigram"):
        train_subwords(TEXT, kind="words", size=400, byte_fallback=True)
    with pytest.raises(InputError, match="vocab_size 200 leaves no room for symbols besides the 260 special"):
        train_subwords(TEXT, kind="bpe", size=200, byte_fallback=True)
