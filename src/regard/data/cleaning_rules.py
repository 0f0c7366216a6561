"""Rules that recognize pairs which are not translations: lengths, copies, scripts, and duplicates."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from regard.errors import InputError, check_range

MAX_SHORT = 20
"""Sides of up to so many characters may have any ratio of lengths: "Ja." may be "Yes, of course."."""
SCRIPT_PAIRS = 10_000
"""The number of pairs from which the scripts of a corpus are detected."""
ANY = "any"
JOINT_SCRIPTS = {"hiragana": "cjk", "katakana": "cjk", "katakana-hiragana": "cjk", "fullwidth": "latin"}
"""Scripts that occur together in one text, such as the three of Japanese."""


@dataclass(frozen=True, kw_only=True)
class CleaningRules:
    """Which pairs are kept."""

    most_characters: int = 500
    """Maximal number of characters of a side."""
    most_ratio: float = 3.0
    """Maximal ratio of the two lengths in characters. Pairs with sides of up to 20 characters are not
    compared."""
    scripts: tuple[str, ...] = ()
    """Scripts of source and target by their Unicode names, such as: latin cyrillic. A side is dropped if at least
    half of its letters have another script; any accepts all. Default: the most frequent ones of the first 10,000
    pairs."""
    keep_copies: bool = False
    """Keep pairs with equal sides."""
    keep_duplicates: bool = False
    """Keep pairs that occurred before."""

    def __post_init__(self) -> None:
        check_range("most_characters", self.most_characters, 1, 10**6)
        if not self.most_ratio >= 1:
            raise InputError(f"most_ratio {self.most_ratio} is out of range: choose 1 or more")
        if len(self.scripts) not in (0, 2):
            raise InputError(f"{len(self.scripts)} scripts: give two, as in --scripts latin cyrillic, or none")
        for name in self.scripts:
            if name != ANY and name not in _script_names():
                raise InputError(
                    f"script {name!r} is unknown: give Unicode's name, such as latin, cyrillic, greek, arabic, "
                    f"cjk (Japanese too), hangul, devanagari, or any"
                )


class PairFilter:
    """Filters pairs one by one. It stores 16 bytes of each kept pair to recognize duplicates.

    >>> pair_filter = PairFilter(CleaningRules(), ("latin", "latin"))
    >>> [pair_filter.reason(*pair) for pair in [("Hund", "dog"), ("dog", "dog"), ("Hund", "dog")]]
    [None, 'both sides the same', 'duplicate']
    """

    def __init__(self, rules: CleaningRules, scripts: tuple[str, ...]) -> None:
        self.rules, self.scripts = rules, scripts
        self.kept: set[bytes] = set()

    def reason(self, source: str, target: str) -> str | None:
        """Return the reason to drop a pair, or None to keep it."""
        short, long = sorted((len(source), len(target)))
        if long > self.rules.most_characters:
            return "too long"
        if long > MAX_SHORT and long > self.rules.most_ratio * short:
            return "lengths too different"
        if not self.rules.keep_copies and source.casefold() == target.casefold():
            return "both sides the same"
        sides = zip((source, target), self.scripts, strict=True)
        if not all(_has_script(text, script) for text, script in sides):
            return "other script"
        if self.rules.keep_duplicates:
            return None
        # A digest of 16 bytes instead of the text; a collision is practically impossible.
        digest = blake2b(f"{source}\t{target}".encode(), digest_size=16).digest()
        if digest in self.kept:
            return "duplicate"
        self.kept.add(digest)
        return None


def common_scripts(pairs: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Return the most frequent script of each side, "any" for a side without letters.

    >>> common_scripts([("Ein Hund", "Собака")])
    ('latin', 'cyrillic')
    """
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for pair in pairs:
        for count, text in zip(counts, pair, strict=True):
            count.update(_letter_scripts(text))
    source, target = (count.most_common(1)[0][0] if count else ANY for count in counts)
    return source, target


def _has_script(text: str, script: str) -> bool:
    """Return whether more than half of the letters have a script. A text without letters has every script."""
    if script == ANY:
        return True
    letters = _letter_scripts(text)
    return not letters or 2 * letters.count(script) > len(letters)


def _letter_scripts(text: str) -> list[str]:
    """Return the script of each letter of a text."""
    return [script for script in map(_script, text) if script]


@lru_cache(maxsize=1 << 16)
def _script(character: str) -> str:
    """Return the script of a letter, or the empty string for another character.

    Python has no table of scripts, but the first word of a letter's Unicode name is its script.
    """
    if not character.isalpha():
        return ""
    first = unicodedata.name(character, "").partition(" ")[0].lower()
    return JOINT_SCRIPTS.get(first, first)


@lru_cache(maxsize=1)
def _script_names() -> frozenset[str]:
    return frozenset(_script(chr(code)) for code in range(0x20000)) - {""}
