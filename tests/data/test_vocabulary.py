"""Vocabularies and batches of text."""

from hypothesis import given, strategies as st

from regard.data.batch import PairBatch, collate, read_source
from regard.data.vocabulary import BOS, EOS, PAD, UNKNOWN, CharacterVocabulary


@given(text=st.text(), others=st.text())
def test_encode_decode_round_trip(text: str, others: str) -> None:
    vocabulary = CharacterVocabulary(text + others)
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert vocabulary.labels(vocabulary.encode(text)) == list(text)
    assert all(UNKNOWN < index < len(vocabulary) for index in vocabulary.encode(text))
    assert not vocabulary.unknown(text) and vocabulary.pieces(text) == list(text)


def test_special_indices() -> None:
    vocabulary = CharacterVocabulary("ba")
    assert vocabulary.encode("ab?") == [4, 5, UNKNOWN] and vocabulary.unknown("ab?") == ["?"]
    assert len(vocabulary) == 6
    assert vocabulary.decode([BOS, 4, PAD, 5, EOS, 4]) == "ab"
    assert vocabulary.decode([UNKNOWN, 4]) == "�a"
    assert vocabulary.labels([BOS, EOS, UNKNOWN]) == ["<s>", "</s>", "�"]


def test_equal_characters_give_equal_vocabularies() -> None:
    assert CharacterVocabulary("bca").symbols == CharacterVocabulary("cabbage"[0:3] + "abc").symbols


def test_batches() -> None:
    source = read_source(["ab", "", "b"], CharacterVocabulary("ab"))
    assert source.tolist() == [[4, 5, EOS], [EOS, PAD, PAD], [5, EOS, PAD]]
    pairs = PairBatch(source, collate([[4], [5, 5], []]))
    assert pairs.target.tolist() == [[4, EOS, PAD], [5, 5, EOS], [EOS, PAD, PAD]]
    assert pairs.target_in.tolist() == [[BOS, 4, EOS], [BOS, 5, 5], [BOS, EOS, PAD]]
    assert pairs.source_mask.sum(1).tolist() == [3, 1, 2]
