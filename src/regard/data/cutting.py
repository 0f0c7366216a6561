"""A text cut into words, and into the pieces that a model reads it in."""

from typing import NamedTuple

from regard.data.tokenization import Place, Unit, places_of, words_at
from regard.data.vocabulary import Vocabulary


class Cut(NamedTuple):
    """A text, its words, and the pieces that a model reads it in."""

    text: str
    indices: list[int]
    word_of: list[int]
    """For each piece the number of its word."""
    places: list[Place]
    """Where the words stand in the text."""

    @property
    def words(self) -> list[str]:
        """The words themselves."""
        return [self.text[begin:end].strip() for begin, end in self.places]


def cut_into(text: str, vocabulary: Vocabulary, unit: Unit) -> Cut:
    """Return a text cut into words of a kind, and the pieces of a vocabulary in each."""
    indices, pieces = vocabulary.encode(text), vocabulary.places(text)
    if unit == "pieces":
        return Cut(text, indices, list(range(len(indices))), pieces)
    places = places_of(text, unit)
    if not places:  # of blanks alone
        return Cut(text, [], [], [])
    return Cut(text, indices, words_at(text, pieces, unit), places)
