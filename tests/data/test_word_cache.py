"""Tokenizing word by word."""

import pytest
from hypothesis import given, strategies as st

from regard.data import corpus
from regard.data.corpus import CachedTokenizer, PlainTokenizer, corpus_tokenizer
from regard.data.subwords import SubwordVocabulary, train_subwords, vocabulary_from_symbols
from regard.data.vocabulary import BLANK, EOS, TokenizerKind

TEXT = ["der kleine Hund läuft.", "die kleinen Hunde laufen, sagt der Hund.", "İ Σας é e\u0301 “so”"] * 3
KINDS: list[TokenizerKind] = ["bpe", "unigram", "words", "characters"]


@pytest.fixture(scope="module", params=KINDS)
def subwords(request: pytest.FixtureRequest) -> SubwordVocabulary:
    return train_subwords(TEXT, kind=request.param, size=70, lowercase=request.param == "bpe")


def expected(vocabulary: SubwordVocabulary, sentences: list[str]) -> tuple[list[int], list[int]]:
    found = [[*vocabulary.encode(each), EOS] for each in sentences]
    return [index for each in found for index in each], [len(each) for each in found]


SEPARATORS = ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\0"]
ODD = [BLANK, f"{BLANK}der", f"a{BLANK}b", "\u0301", "e\u0301", "ΣΑΣ", "İ", "\u00a0"]
WORDS = st.sampled_from(["der", "Hund", "laufen,", *ODD, *SEPARATORS])
SENTENCES = st.lists(st.one_of(WORDS, st.text(max_size=5)), max_size=6).map(" ".join)


@given(sentences=st.lists(SENTENCES, max_size=8))
def test_tokens_equal_those_of_whole_sentences(subwords: SubwordVocabulary, sentences: list[str]) -> None:
    """Tokens are the same for unusual whitespace, for marks, and for letters that are changed by NFC or lower case."""
    assert isinstance(corpus_tokenizer(subwords), CachedTokenizer)
    tokens, lengths = corpus_tokenizer(subwords)(sentences)
    assert (tokens.tolist(), lengths.tolist()) == expected(subwords, sentences)


@pytest.mark.parametrize("separator", SEPARATORS)
def test_line_separators_are_ordinary_characters(subwords: SubwordVocabulary, separator: str) -> None:
    """Tokens are the same for the mark alone, in a word, beside spaces, and as the end mark of the table of words."""
    sentences = [f"{before}{separator}{after}" for before in ("", "der", "der ", " ") for after in ("", "Hund", " ")]
    sentences += ["", " "]
    for batch in (sentences, sentences[:1], [*sentences[::-1], "der Hund"]):
        tokens, lengths = corpus_tokenizer(subwords)(batch)
        assert (tokens.tolist(), lengths.tolist()) == expected(subwords, batch)


def test_a_full_table_of_words_is_cleared(subwords: SubwordVocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CAPACITY", 3)
    cut = corpus_tokenizer(subwords)
    for sentences in (TEXT, ["Hund", "läuft der"], [], TEXT[:1]):
        tokens, lengths = cut(sentences)
        assert (tokens.tolist(), lengths.tolist()) == expected(subwords, sentences)


def test_each_word_is_tokenized_once(subwords: SubwordVocabulary) -> None:
    asked: list[str] = []

    def encode(word: str) -> list[int]:
        asked.append(word)
        return subwords.encode(word)

    cut = CachedTokenizer(encode)
    cut(["der Hund der", "Hund"])
    cut(["kleine Hund"])
    assert asked == ["der", "Hund", "kleine"]


def test_other_vocabularies_tokenize_whole_sentences() -> None:
    characters = vocabulary_from_symbols("abc", words=False)
    cut = corpus_tokenizer(characters)
    assert isinstance(cut, PlainTokenizer) and isinstance(
        corpus_tokenizer(vocabulary_from_symbols(["ab"], words=True)), CachedTokenizer
    )
    tokens, lengths = cut(["ab c", "b"])
    assert (tokens.tolist(), lengths.tolist()) == expected(characters, ["ab c", "b"])
    assert cut([])[0].tolist() == []
