"""Offsets of tokens, and the words to which tokens belong."""

import pytest
from hypothesis import given, strategies as st

from regard.data.subword_training import train_subwords
from regard.data.tokenization import tokenize, word_ids, word_spans
from regard.data.vocabulary import TokenizerKind

TEXTS = ["Zwei große Hunde laufen, schnell!", "ein Hund läuft", "zwei Katzen und ein Hund", "  ein  Hund  "]
KINDS: list[TokenizerKind] = ["bpe", "unigram", "words", "characters"]


def test_words_and_parts() -> None:
    text = "Ja,  (zwei) Hunde!"
    assert [text[begin:end] for begin, end in word_spans(text, "words")] == ["Ja,", "(zwei)", "Hunde!"]
    assert [text[begin:end] for begin, end in word_spans(text, "parts")] == [
        "Ja",
        ",",
        "(",
        "zwei",
        ")",
        "Hunde",
        "!",
    ]


def test_tokens_between_words_belong_to_the_next_word() -> None:
    assert word_ids(word_spans("ab c ", "words"), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]) == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text("abZweigroßeHund ,.!\u00e4\U0001f600\t", max_size=30))
def test_every_token_has_a_word(kind: TokenizerKind, text: str) -> None:
    vocabulary = SUBWORDS[kind]
    cut = tokenize(text, vocabulary, "words")
    assert len(cut.word_ids) == len(cut.indices)
    assert cut.word_ids == sorted(cut.word_ids)
    if text.strip():
        assert cut.words == text.split()
        assert set(cut.word_ids) == set(range(len(cut.words))) or (kind == "words" and "\t" in text)


SUBWORDS = {kind: train_subwords(TEXTS, kind=kind, size=60) for kind in KINDS}
