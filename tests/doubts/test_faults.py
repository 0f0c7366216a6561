"""Planted faults are wrong in the way that their names say."""

import pytest
from hypothesis import given, strategies as st

from regard.doubts.faults import FAULTS, plant
from tests.german import sentences

SOURCES, TARGETS = (list(side) for side in zip(*sentences()[:60], strict=True))
TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "dog", "runs", "."]), min_size=1, max_size=14), min_size=1, max_size=9
)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_differs_from_its_translation(kind: str) -> None:
    faulty = plant(kind, SOURCES, TARGETS)
    assert len(faulty) >= (0 if kind == "omitted" else 50)  # the sentences have five words, omitted needs six
    assert all(text != TARGETS[index] for index, text in faulty.items())


@pytest.mark.parametrize("kind", FAULTS)
@given(texts=TEXTS, seed=st.integers(0, 1000))
def test_any_text_can_be_planted(kind: str, texts: list[list[str]], seed: int) -> None:
    translations = [" ".join(words) for words in texts]
    sources = [text.upper() for text in translations]
    faulty = plant(kind, sources, translations, seed)
    assert faulty == plant(kind, sources, translations, seed)
    for index, text in faulty.items():
        words, changed = translations[index].split(), text.split()
        if kind == "omitted":
            missing = 1 - len(changed) / len(words)
            assert 0.3 <= missing <= 0.5 + 1 / len(words)
        if kind == "looped":
            lengths = [length for length in range(1, 5) if _repeats(changed, length) >= 3]
            assert lengths
        if kind == "copied":
            assert text == sources[index]


def _repeats(words: list[str], length: int) -> int:
    """Return how often a phrase of `length` words occurs in a row at most."""
    best = 0
    for begin in range(len(words)):
        phrase, count = words[begin : begin + length], 1
        while words[begin + count * length : begin + (count + 1) * length] == phrase:
            count += 1
        best = max(best, count)
    return best
