"""Text cut into tokens word by word."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import EOS, wordwise
from regard.data.subwords import Subwords, given_symbols, train_subwords
from regard.data.vocabulary import BLANK, TokenizerKind
from regard.data.word_cache import OneByOne, WordByWord, cutter_of

TEXT = ["der kleine Hund läuft.", "die kleinen Hunde laufen, sagt der Hund.", "İ Σας é e\u0301 “so”"] * 3
KINDS: list[TokenizerKind] = ["bpe", "unigram", "words", "characters"]


@pytest.fixture(scope="module", params=KINDS)
def subwords(request: pytest.FixtureRequest) -> Subwords:
    return train_subwords(TEXT, kind=request.param, size=70, lowercase=request.param == "bpe")


def expected(vocabulary: Subwords, sentences: list[str]) -> tuple[list[int], list[int]]:
    found = [[*vocabulary.encode(each), EOS] for each in sentences]
    return [index for each in found for index in each], [len(each) for each in found]


SEPARATORS = ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\0"]
WORDS = st.sampled_from(
    [
        "der",
        "Hund",
        "laufen,",
        BLANK,
        f"{BLANK}der",
        f"a{BLANK}b",
        "\u0301",
        "e\u0301",
        "ΣΑΣ",
        "İ",
        "\u00a0",
        *SEPARATORS,
    ]
)
SENTENCES = st.lists(st.one_of(WORDS, st.text(max_size=5)), max_size=6).map(" ".join)


@settings(max_examples=300)
@given(sentences=st.lists(SENTENCES, max_size=8))
def test_tokens_are_those_of_whole_sentences(subwords: Subwords, sentences: list[str]) -> None:
    """Also with blanks and marks at odd places, and whatever NFC or lower case make of letters."""
    assert isinstance(cutter_of(subwords), WordByWord)
    tokens, lengths = cutter_of(subwords)(sentences)
    assert (tokens.tolist(), lengths.tolist()) == expected(subwords, sentences)


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_separator_of_lines_is_a_character_as_any_other(subwords: Subwords, separator: str) -> None:
    """Alone, in a word, beside blanks, and as what ends a sentence in the table of words."""
    sentences = [
        separator,
        f"der{separator}Hund",
        f"der {separator} Hund",
        f"{separator} ",
        f" {separator}",
        "",
        " ",
    ]
    for batch in (sentences, sentences[:1], [*sentences[::-1], "der Hund"]):
        tokens, lengths = cutter_of(subwords)(batch)
        assert (tokens.tolist(), lengths.tolist()) == expected(subwords, batch)


def test_a_table_of_words_begins_anew_when_it_is_full(
    subwords: Subwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wordwise, "MOST", 3)
    cut = cutter_of(subwords)
    for sentences in (TEXT, ["Hund", "läuft der"], [], TEXT[:1]):
        tokens, lengths = cut(sentences)
        assert (tokens.tolist(), lengths.tolist()) == expected(subwords, sentences)


def test_each_word_is_cut_once(subwords: Subwords) -> None:
    asked: list[str] = []

    def encode(word: str) -> list[int]:
        asked.append(word)
        return subwords.encode(word)

    cut = WordByWord(encode)
    cut(["der Hund der", "Hund"])
    cut(["kleine Hund"])
    assert asked == ["der", "Hund", "kleine"]


def test_vocabularies_that_look_at_more_than_a_word_cut_whole_sentences() -> None:
    characters = given_symbols("abc", words=False)
    cut = cutter_of(characters)
    assert isinstance(cut, OneByOne) and isinstance(cutter_of(given_symbols(["ab"], words=True)), WordByWord)
    tokens, lengths = cut(["ab c", "b"])
    assert (tokens.tolist(), lengths.tolist()) == expected(characters, ["ab c", "b"])
    assert cut([])[0].tolist() == []
