"""Offsets of tokens, and the words to which tokens belong."""

import pytest
from hypothesis import given, strategies as st

from regard.data.subwords import train_subwords
from regard.data.tokenization import tokenize, word_ids, word_spans
from regard.data.vocabulary import TokenizerKind

TEXTS = ["Zwei große Hunde laufen, schnell!", "ein Hund läuft", "zwei Katzen und ein Hund", "  ein  Hund  "]
KINDS: list[TokenizerKind] = ["bpe", "unigram", "words", "characters"]


def test_words_and_parts() -> None:
    text = "Ja,  (zwei) Hunde!"
    assert [text[begin:end] for begin, end in word_spans(text, "words")] == ["Ja,", "(zwei)", "Hunde!"]
    parts = [text[begin:end] for begin, end in word_spans(text, "parts")]
    assert parts == ["Ja", ",", "(", "zwei", ")", "Hunde", "!"]


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


@pytest.mark.parametrize(
    ("text", "offsets", "expected"),
    [
        ("我爱你。", [(0, 1), (1, 3), (3, 4)], ["我", "爱你", "。"]),
        ("我 爱你 。", [(0, 1), (2, 3), (3, 4), (5, 6)], ["我", "爱你", "。"]),  # spaces separate words
        (
            "私はNew Yorkが好き",
            [(0, 1), (1, 2), (2, 4), (4, 5), (5, 10), (10, 11), (11, 13)],
            ["私", "は", "New", "York", "が", "好き"],
        ),
        ("ม้าเห็นหมา", [(0, 3), (3, 7), (7, 10)], ["ม้า", "เห็น", "หมา"]),
        ("Großtante", [(0, 4), (4, 9)], ["Großtante"]),
    ],
)
def test_tokens_are_the_words_of_text_without_spaces(
    text: str, offsets: list[tuple[int, int]], expected: list[str]
) -> None:
    assert [text[begin:end] for begin, end in word_spans(text, "parts", offsets)] == expected
    assert tokenize("狗", SUBWORDS["unigram"], "pieces").words == ["▁", "狗"]


def test_marks_belong_to_their_letters() -> None:
    for text in ("ผู้หญิง", "नमस्ते"):
        assert word_spans(f"{text}!", "parts") == [(0, len(text)), (len(text), len(text) + 1)]
