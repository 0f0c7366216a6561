"""Measures of how well a vocabulary suits a text: unknown tokens, tokens per sentence, and rare symbols."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from regard.data.vocabulary import UNKNOWN, Vocabulary
from regard.errors import InputError
from regard.io import is_file, read_json, write_json

WARNING_SHARE = 0.1
"""Fraction of unknown tokens above which a warning is printed, because the text may have a different language
than the vocabulary."""
MAX_UNKNOWN = 0.9  # Fraction of unknown tokens in a training text above which training is refused
RARE = 2  # Largest number of occurrences of a rare symbol
RARE_SHARE = 0.5  # Fraction of rare symbols above which a warning is printed
LONGER = 1.5  # Ratio of the lengths of tokens in training and in validation text above which a warning is printed
FEW_PAIRS = 100  # Number of pairs below which symbols are rare in any vocabulary
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
    characters: int = 0  # The number of characters of the known tokens; 0 if it was not counted

    def add(self, indices: Sequence[int]) -> None:
        self.tokens += len(indices)
        self.unknown += indices.count(UNKNOWN)

    @property
    def share(self) -> float:
        return self.unknown / self.tokens if self.tokens else 0.0

    def warning(self, text: str) -> str:
        """Return a warning if more than a tenth of the tokens are unknown, else the empty string. `text`: its name."""
        if self.share <= WARNING_SHARE:
            return ""
        counts = f"{self.share:.1%} of the tokens of {text} ({self.unknown:,} of {self.tokens:,})"
        return f"{counts} are not in the vocabulary of the model: check the language and the direction"


@dataclass(frozen=True, kw_only=True)
class UnknownShares:
    """The unknown tokens of one text of a training run."""

    text: str  # The use of the text, such as training, and its name if there are several texts
    pairs: int  # The number of counted pairs
    source: UnknownCount = field(default_factory=UnknownCount)
    target: UnknownCount = field(default_factory=UnknownCount)

    def __str__(self) -> str:
        source, target = f"{self.source.share:.2%} of the source", f"{self.target.share:.2%} of the target"
        return f"{source}, {target} of the {self.text} text"

    @property
    def lengths(self) -> str:
        source, target = (side.tokens / max(self.pairs, 1) for side in (self.source, self.target))
        return f"{source:.1f} of the source, {target:.1f} of the target of the {self.text} text"

    @property
    def warnings(self) -> list[str]:
        sides = {"source": self.source, "target": self.target}
        warnings = (count.warning(f"the {side} of the {self.text} text") for side, count in sides.items())
        return list(filter(None, warnings))


def unknown_in_pairs(
    text: str, pairs: Sequence[tuple[str, str]], vocabularies: tuple[Vocabulary, Vocabulary]
) -> UnknownShares:
    shares = UnknownShares(text=text, pairs=len(pairs))
    for pair in pairs:
        for count, vocabulary, sentence in zip((shares.source, shares.target), vocabularies, pair, strict=True):
            indices = vocabulary.encode(sentence)
            count.add(indices)
            count.characters += sum(len(vocabulary.symbols[index]) for index in indices if index > UNKNOWN)
    return shares


def check_known(shares: UnknownShares) -> None:
    """Raise `InputError` if nearly all tokens of one side of a training text are unknown."""
    for side, count in (("source", shares.source), ("target", shares.target)):
        if count.share > MAX_UNKNOWN:
            raise InputError(
                f"{count.share:.0%} of the {side} tokens of the {shares.text} text are not in the vocabulary, so "
                f"there is nothing to learn: give the vocabulary of this text with --tokenizer, or leave it out"
            )


def describe_splitting(
    shares: Sequence[UnknownShares], counts: Sequence[np.ndarray], vocabularies: tuple[Vocabulary, Vocabulary]
) -> tuple[str, list[str]]:
    """Return a line about tokens per sentence and rare symbols, and warnings about unsuitable vocabularies.
    `shares`: the training texts, then the validation texts with their characters. `counts`: number of
    occurrences of each symbol in the sources and in the targets of the training texts."""
    joint = vocabularies[0] is vocabularies[1]
    rare = []
    for side in [counts[0] + counts[1]] if joint else counts:
        used = side[UNKNOWN + 1 :]
        rare.append(float((used[used > 0] <= RARE).mean()) if used.any() else 0.0)
    sides = [""] if joint else [" of the source", " of the target"]
    shown = ", ".join(f"{share:.0%} of the symbols{side}" for share, side in zip(rare, sides, strict=True))
    line = f"Tokens a sentence: {'; '.join(text.lengths for text in shares)}; {shown} occur once or twice"
    warnings = [
        f"{share:.0%} of the symbols{side} occur once or twice in the training text, too rarely to be learned: "
        f"choose --tokenizer bpe or characters, or a smaller --vocab_size"
        for share, side in zip(rare, sides, strict=True)
        if share > RARE_SHARE and shares[0].pairs >= FEW_PAIRS
    ]
    for side, vocabulary, symbols in zip(("source", "target"), vocabularies, counts, strict=True):
        lengths = np.array([len(symbol) for symbol in vocabulary.symbols])
        lengths[: UNKNOWN + 1] = 0
        length = float(symbols @ lengths) / max(int(symbols[UNKNOWN + 1 :].sum()), 1)
        for text in shares:
            count: UnknownCount = getattr(text, side)
            other = count.characters / max(count.tokens - count.unknown, 1)
            if count.characters and length > LONGER * other:
                warnings.append(
                    f"a {side} token has {length:.1f} characters in the training text, but {other:.1f} in the "
                    f"{text.text} text: the vocabulary has phrases of the training text; choose --tokenizer "
                    f"characters or a smaller --vocab_size, or check the {text.text} text"
                )
    return line, warnings


def write_unknown(folder: Path, shares: Iterable[UnknownShares]) -> None:
    """Write the numbers of unknown tokens to the folder of a run."""
    if content := [msgspec.to_builtins(share) for share in shares]:
        write_json(folder / FILE, content, indent=1)


def read_unknown(folder: Path) -> list[UnknownShares]:
    path = folder / FILE
    remedy = "delete the file; the fractions of unknown tokens are then not shown"
    return read_json(path, list[UnknownShares], remedy) if is_file(path) else []
