"""The fraction of unknown tokens in a text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from regard.data.vocabulary import UNKNOWN, Vocabulary
from regard.io import write_json
from regard.io.reading import is_file, read_json

WARNING_SHARE = 0.1
"""Fraction of unknown tokens above which a warning is printed, because the text may have a different language
than the vocabulary."""
FILE = "unknown.json"


@dataclass
class UnknownCount:
    """The number of tokens, and the number of unknown tokens among them.

    >>> count = UnknownCount()
    >>> count.add([5, 3, 7, 3])
    >>> count.share
    0.5
    """

    tokens: int = 0
    unknown: int = 0

    def add(self, indices: Sequence[int]) -> None:
        """Count the indices of a text."""
        self.tokens += len(indices)
        self.unknown += indices.count(UNKNOWN)

    @property
    def share(self) -> float:
        """The fraction of unknown tokens, from 0 to 1."""
        return self.unknown / self.tokens if self.tokens else 0.0

    def warning(self, text: str) -> str:
        """Return a warning if more than a tenth of the tokens are unknown, otherwise the empty string.

        `text`: name of the text.
        """
        if self.share <= WARNING_SHARE:
            return ""
        counts = f"{self.share:.1%} of the tokens of {text} ({self.unknown:,} of {self.tokens:,})"
        return f"{counts} are not in the vocabulary of the model: check the language and the direction"


@dataclass(frozen=True, kw_only=True)
class UnknownShares:
    """The unknown tokens of one text of a training run."""

    text: str
    """The use of the text, such as training, and its name if there are several texts."""
    pairs: int
    """The number of counted pairs."""
    source: UnknownCount = field(default_factory=UnknownCount)
    target: UnknownCount = field(default_factory=UnknownCount)

    def __str__(self) -> str:
        source, target = f"{self.source.share:.2%} of the source", f"{self.target.share:.2%} of the target"
        return f"{source}, {target} of the {self.text} text"

    @property
    def warnings(self) -> list[str]:
        """Return a warning for each side in which more than a tenth of the tokens are unknown."""
        sides = {"source": self.source, "target": self.target}
        warnings = [count.warning(f"the {side} of the {self.text} text") for side, count in sides.items()]
        return [warning for warning in warnings if warning]


def unknown_in_pairs(
    text: str, pairs: Sequence[tuple[str, str]], vocabularies: tuple[Vocabulary, Vocabulary]
) -> UnknownShares:
    """Return the numbers of unknown tokens in pairs of source and target."""
    shares = UnknownShares(text=text, pairs=len(pairs))
    for source, target in pairs:
        shares.source.add(vocabularies[0].encode(source))
        shares.target.add(vocabularies[1].encode(target))
    return shares


def write_unknown(folder: Path, shares: Iterable[UnknownShares]) -> None:
    """Write the numbers of unknown tokens to the folder of a run. Raises `MachineError` if the disk is full."""
    if content := [msgspec.to_builtins(share) for share in shares]:
        write_json(folder / FILE, content, indent=1)


def read_unknown(folder: Path) -> list[UnknownShares]:
    """Return the numbers of unknown tokens of a run. The list is empty for a run of an earlier version."""
    path = folder / FILE
    remedy = "delete the file; the fractions of unknown tokens are then not shown"
    return read_json(path, list[UnknownShares], remedy) if is_file(path) else []
