"""A text cut into words, and into the pieces that a model reads it in."""

from typing import NamedTuple

from regard.data.tokenization import Span, Unit, word_ids, word_spans
from regard.data.vocabulary import Vocabulary


class TokenizedText(NamedTuple):
    """A text, its words, and the pieces that a model reads it in."""

    text: str
    indices: list[int]
    word_ids: list[int]
    """For each piece the number of its word."""
    spans: list[Span]
    """Where the words stand in the text."""

    @property
    def words(self) -> list[str]:
        """The words themselves."""
        return [self.text[begin:end].strip() for begin, end in self.spans]


def tokenize(text: str, vocabulary: Vocabulary, unit: Unit) -> TokenizedText:
    """Return a text cut into words of a kind, and the pieces of a vocabulary in each."""
    indices, pieces = vocabulary.encode(text), vocabulary.offsets(text)
    if unit == "pieces":
        return TokenizedText(text, indices, list(range(len(indices))), pieces)
    places = word_spans(text, unit)
    if not places:  # of blanks alone
        return TokenizedText(text, [], [], [])
    return TokenizedText(text, indices, word_ids(text, pieces, unit), places)
