"""Phrases: hand-written sentences of the grammar and their parsing."""

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import InputError
from regard.tasks.pairs import is_held_out
from regard.tasks.phrases import Phrases

TASK = Phrases()


@pytest.mark.parametrize(
    ("english", "german", "alignment"),
    [
        ("the dog sees a cat", "der Hund sieht eine Katze", [0, 1, 2, 3, 4]),
        ("today my tired dog finds no key", "heute findet mein müder Hund keinen Schlüssel", [0, 4, 1, 2, 3, 5, 6]),
        ("two dogs do not find her red house", "zwei Hunde finden ihr rotes Haus nicht", [0, 1, 4, 5, 6, 7, 3]),
        ("this man has seen the old dog", "dieser Mann hat den alten Hund gesehen", [0, 1, 2, 4, 5, 6, 3]),
        (
            "she says that the birds can hear these good songs",
            "sie sagt , dass die Vögel diese guten Lieder hören können",
            [0, 1, 2, 2, 3, 4, 7, 8, 9, 6, 5],
        ),
    ],
)
def test_sentences_by_hand(english: str, german: str, alignment: list[int]) -> None:
    pair = TASK.known(english)
    assert pair is not None and pair.target == german
    assert pair.alignment == tuple((place,) for place in alignment)


@pytest.mark.parametrize(
    "text", ["", "dog", "the dog see a cat", "the dog sees", "the dog sees a cat a", "a dogs sees a cat", "he says the"]
)
def test_sentences_outside_the_grammar_are_refused(text: str) -> None:
    assert TASK.known(text) is None


@given(st.integers(0, 10**6), st.booleans())
def test_samples_are_parsed_with_known_words(seed: int, unseen: bool) -> None:
    pair = TASK.pair(torch.Generator().manual_seed(seed), unseen=unseen)
    source, target = pair.source.split(), pair.target.split()
    assert TASK.known(pair.source) == pair and is_held_out(pair.source.encode()) == unseen
    assert max(len(source), len(target)) <= TASK.max_source and len(pair.alignment) == len(target)
    assert {place for places in pair.alignment for place in places} >= {
        place for place, word in enumerate(source) if word not in ("do", "does")
    }
    assert not TASK.source_vocabulary.unknown(pair.source) and not TASK.target_vocabulary.unknown(pair.target)
    assert TASK.target_vocabulary.decode(TASK.target_vocabulary.encode(pair.target)) == pair.target


def test_vocabulary_has_hundreds_of_words_and_length_is_not_an_option() -> None:
    assert len(TASK.source_vocabulary) > 300 and len(TASK.target_vocabulary) > 400
    with pytest.raises(InputError, match="sentences have no adjustable length"):
        TASK.pair(torch.Generator(), sample_len=3)
