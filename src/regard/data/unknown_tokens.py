"""The share of a text that a vocabulary does not know."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from regard.data.vocabulary import UNKNOWN, Vocabulary
from regard.io import write_json
from regard.io.reading import is_file, read_json

WARNING_SHARE = 0.1
"""Share from which on a text may be in another language than the vocabulary."""
FILE = "unknown.json"


@dataclass
class UnknownCount:
    """Tokens that were counted, and how many of them are unknown."""

    tokens: int = 0
    unknown: int = 0

    def add(self, indices: Sequence[int]) -> None:
        """Count the indices of a text."""
        self.tokens += len(indices)
        self.unknown += indices.count(UNKNOWN)

    @property
    def share(self) -> float:
        """Share of unknown tokens, 0 to 1."""
        return self.unknown / self.tokens if self.tokens else 0.0

    def warning(self, what: str) -> str:
        """Return what to say where more than a tenth is unknown; empty where it is less."""
        if self.share <= WARNING_SHARE:
            return ""
        counted = f"{self.share:.1%} of the tokens of {what} ({self.unknown:,} of {self.tokens:,})"
        return f"{counted} are unknown to the model's vocabulary: is it the right language and direction?"


@dataclass(frozen=True, kw_only=True)
class UnknownShares:
    """Unknown tokens of one text of a training."""

    text: str
    """What the text is for, and its name where there are several."""
    pairs: int
    """Pairs that were counted."""
    source: UnknownCount = field(default_factory=UnknownCount)
    target: UnknownCount = field(default_factory=UnknownCount)

    def __str__(self) -> str:
        source, target = f"{self.source.share:.2%} of the source", f"{self.target.share:.2%} of the target"
        return f"{source}, {target} of the {self.text} text"

    @property
    def warnings(self) -> list[str]:
        """What to say of sides of which more than a tenth is unknown."""
        sides = {"source": self.source, "target": self.target}
        found = [count.warning(f"the {side} of the {self.text} text") for side, count in sides.items()]
        return [each for each in found if each]


def unknown_in_pairs(
    text: str, pairs: Sequence[tuple[str, str]], vocabularies: tuple[Vocabulary, Vocabulary]
) -> UnknownShares:
    """Return the unknown tokens of pairs of source and target."""
    found = UnknownShares(text=text, pairs=len(pairs))
    for source, target in pairs:
        found.source.add(vocabularies[0].encode(source))
        found.target.add(vocabularies[1].encode(target))
    return found


def write_unknown(folder: Path, shares: Iterable[UnknownShares]) -> None:
    """Keep the shares of a training in its run's folder; raises `MachineError` where the disk refuses."""
    if found := [msgspec.to_builtins(each) for each in shares]:
        write_json(folder / FILE, found, indent=1)


def read_unknown(folder: Path) -> list[UnknownShares]:
    """Return the shares of a run; none for a run that was trained before they were kept."""
    path = folder / FILE
    return read_json(path, list[UnknownShares], "delete it, and the shares are not told") if is_file(path) else []
