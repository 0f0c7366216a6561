"""Vocabularies: from text to indices and back. The first four indices have a meaning of their own."""

from collections.abc import Iterable, Sequence

PAD, BOS, EOS, UNKNOWN = range(4)
"""Past the end; begin of sequence; end of sequence; a symbol that is not in the vocabulary."""
SPECIAL = ("", "<s>", "</s>", "�")
"""How these four are shown as labels."""


class Characters:
    """A vocabulary of single characters."""

    def __init__(self, characters: Iterable[str]) -> None:
        self.symbols = [*SPECIAL, *sorted(set(characters))]
        self._indices = {symbol: index for index, symbol in enumerate(self.symbols) if index > UNKNOWN}

    def __len__(self) -> int:
        return len(self.symbols)

    def __contains__(self, character: str) -> bool:
        return character in self._indices

    def encode(self, text: str) -> list[int]:
        """Return the index of every character, `UNKNOWN` for one never seen; no end of sequence."""
        return [self._indices.get(character, UNKNOWN) for character in text]

    def decode(self, indices: Sequence[int]) -> str:
        """Return the text of indices up to the first end of sequence; special ones but `UNKNOWN` are left out."""
        indices = indices[: indices.index(EOS)] if EOS in indices else indices
        return "".join(self.symbols[index] for index in indices if index >= UNKNOWN)

    def labels(self, indices: Sequence[int]) -> list[str]:
        """Name every index, special ones included, for plots."""
        return [self.symbols[index] for index in indices]
