"""Planted faults: translations that are wrong in a known way, made from good translations.

detached    the translation of another source of similar length (a hallucination)
omitted     30 to 50 % of the words are missing in one place
looped      a phrase of 1 to 4 words occurs 3 to 7 times in a row, and the rest may be missing
copied      the source itself
foreign     another sentence in the language of the source
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

Generator = np.random.Generator
LONGEST_DIFFERENCE = 2
"""Largest difference in words between a translation and the unrelated translation that replaces it."""
SHORTEST_OMITTED = 6
"""Smallest number of words of a translation from which words are removed."""
MISSING = (0.3, 0.5)
"""Smallest and largest share of missing words."""


def detached(index: int, sources: Sequence[str], translations: Sequence[str], generator: Generator) -> str | None:
    """Return a translation of another source, of similar length."""
    own = translations[index]
    length = len(own.split())
    others = [
        other for other in translations if other != own and abs(len(other.split()) - length) <= LONGEST_DIFFERENCE
    ]
    return str(generator.choice(others)) if others else None


def omitted(index: int, sources: Sequence[str], translations: Sequence[str], generator: Generator) -> str | None:
    """Return the translation without 30 to 50 % of its words, which are consecutive."""
    words = translations[index].split()
    if len(words) < SHORTEST_OMITTED:
        return None
    least, most = (math.ceil(share * len(words)) for share in MISSING)
    count = int(generator.integers(least, most + 1))
    begin = int(generator.integers(0, len(words) - count + 1))
    return " ".join(words[:begin] + words[begin + count :])


def looped(index: int, sources: Sequence[str], translations: Sequence[str], generator: Generator) -> str | None:
    """Return the translation with a phrase that is repeated."""
    words = translations[index].split()
    if len(words) < 2:
        return None
    length = int(generator.integers(1, min(5, len(words))))
    begin = int(generator.integers(0, len(words) - length + 1))
    times = int(generator.integers(3, 8))
    rest = words[begin + length :] if generator.random() < 0.5 else []
    return " ".join([*words[:begin], *words[begin : begin + length] * times, *rest])


def copied(index: int, sources: Sequence[str], translations: Sequence[str], generator: Generator) -> str | None:
    """Return the source."""
    return sources[index] if sources[index] != translations[index] else None


def foreign(index: int, sources: Sequence[str], translations: Sequence[str], generator: Generator) -> str | None:
    """Return another source."""
    other = sources[int(generator.integers(len(sources)))]
    return other if other not in (sources[index], translations[index]) else None


Fault = Callable[[int, Sequence[str], Sequence[str], Generator], str | None]
FAULTS: dict[str, Fault] = {
    "detached": detached,
    "omitted": omitted,
    "looped": looped,
    "copied": copied,
    "foreign": foreign,
}


def plant(kind: str, sources: Sequence[str], translations: Sequence[str], seed: int = 0) -> dict[int, str]:
    """Return the faulty translations of a kind, by the index of the source.

    Translations that are too short for the kind have no faulty version. The result depends only on the texts and
    the seed.

    >>> plant("looped", ["ein Hund rennt"], ["a dog runs"], seed=3)
    {0: 'a dog a dog a dog a dog a dog'}
    """
    faulty = {}
    for index in range(len(translations)):
        generator = np.random.default_rng([seed, list(FAULTS).index(kind), index])
        text = FAULTS[kind](index, sources, translations, generator)
        if text is not None:
            faulty[index] = text
    return faulty
