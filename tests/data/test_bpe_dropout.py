"""BPE-dropout."""

from collections import Counter

import numpy as np
import pytest

from regard.data.subwords import BpeDropout, train_subwords
from regard.data.vocabulary import EOS, UNKNOWN
from regard.errors import InputError
from tests.german import sentences

TEXT = [side for pair in sentences() for side in pair]
SUBWORDS = train_subwords(TEXT, kind="bpe", size=150)


def encode(text: str) -> np.ndarray:
    return np.array([*SUBWORDS.encode(text), EOS], dtype=np.uint16)


def test_rate_zero_equals_the_tokenizers_library() -> None:
    """The segmentations equal those of an independent implementation, the `tokenizers` library."""
    recut, random = BpeDropout(SUBWORDS, 0.0, 0), np.random.default_rng(0)
    for text in [*TEXT, "läuft, schläft - „oft“!", "☃ Hund", "springt-singt  heute"]:
        found = recut(encode(text), random)
        assert found.tolist() == encode(SUBWORDS.decode(encode(text).tolist())).tolist() and found.dtype == np.uint16


def test_segmentations_vary_and_keep_the_text() -> None:
    recut, random = BpeDropout(SUBWORDS, 0.3, 0), np.random.default_rng(0)
    for text in TEXT[:50]:
        ways = [recut(encode(text), random) for _ in range(20)]
        assert all(SUBWORDS.decode(way.tolist()) == text for way in ways)
        assert all(way[-1] == EOS and UNKNOWN not in way for way in ways)
        assert len({tuple(way.tolist()) for way in ways}) > 5


def test_merges_are_dropped_at_the_given_rate() -> None:
    """For a word with one merge, the fraction of unmerged occurrences equals the rate."""
    recut = BpeDropout(SUBWORDS, 0.25, 0)
    recut.ranks = {("a", "b"): 0}
    random = np.random.default_rng(0)
    found = Counter(len(recut.split("ab", random)) for _ in range(4000))
    assert found[2] / 4000 == pytest.approx(0.25, abs=0.03)
    assert all(len(BpeDropout(SUBWORDS, 0.999, 0).split("Hund", random)) >= 3 for _ in range(20))


def test_segmentations_depend_on_the_seed_and_not_on_the_order_of_words() -> None:
    texts = TEXT[:30]
    one, other = BpeDropout(SUBWORDS, 0.3, 5), BpeDropout(SUBWORDS, 0.3, 5)
    for text in reversed(texts):
        other(encode(text), np.random.default_rng(9))
    for index, text in enumerate(texts):
        assert np.array_equal(
            one(encode(text), np.random.default_rng(index)), other(encode(text), np.random.default_rng(index))
        )


def test_other_vocabularies_are_refused() -> None:
    for kind in ("unigram", "words", "characters"):
        with pytest.raises(InputError, match="merge_dropout skips merges: use it with --tokenizer bpe"):
            BpeDropout(train_subwords(TEXT, kind=kind, size=100), 0.1, 0)
    with pytest.raises(InputError, match="merge_dropout 1.0 is out of range"):
        BpeDropout(SUBWORDS, 1.0, 0)
