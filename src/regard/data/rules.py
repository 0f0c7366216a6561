"""What tells, of a pair alone, that it is no translation: lengths, copies, scripts; and pairs that were there
before."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from regard.errors import InputError, check_range

SHORT = 20
"""Characters up to which lengths may differ as they like: "Ja." may be "Yes, of course."."""
SEEN = 10_000
"""Pairs from which the languages' scripts are told."""
ANY = "any"
TOGETHER = {"hiragana": "cjk", "katakana": "cjk", "katakana-hiragana": "cjk", "fullwidth": "latin"}
"""Scripts that are written in one text: Japanese mixes three."""


@dataclass(frozen=True, kw_only=True)
class CleaningRules:
    """Which pairs are kept."""

    most_characters: int = 500
    """Characters of a side, at most."""
    most_ratio: float = 3.0
    """How many times as long as the other a side may be, in characters; sides of up to 20 are not compared."""
    scripts: tuple[str, ...] = ()
    """Unicode's names of the scripts of source and target, such as: latin cyrillic. A side of which half of the
    letters or more are of others is dropped; any takes all. None: the commonest of the first 10,000 pairs."""
    keep_copies: bool = False
    """Keep pairs of which both sides are the same."""
    keep_duplicates: bool = False
    """Keep pairs that were there before."""

    def __post_init__(self) -> None:
        check_range("most_characters", self.most_characters, 1, 10**6)
        if not self.most_ratio >= 1:
            raise InputError(f"most_ratio {self.most_ratio} is out of range: choose 1 or more")
        if len(self.scripts) not in (0, 2):
            raise InputError(f"{len(self.scripts)} scripts: give two, as in --scripts latin cyrillic, or none")
        for name in self.scripts:
            if name != ANY and name not in _names():
                raise InputError(
                    f"script {name!r} is unknown: give Unicode's name, such as latin, cyrillic, greek, arabic, "
                    f"cjk (Japanese too), hangul, devanagari, or any"
                )


class PairFilter:
    """Says of one pair after the other why it is dropped; remembers 16 bytes of each that it has kept."""

    def __init__(self, rules: CleaningRules, scripts: tuple[str, ...]) -> None:
        self.rules, self.scripts = rules, scripts
        self.kept: set[bytes] = set()

    def reason(self, source: str, target: str) -> str | None:
        """Return why a pair is dropped; None for one that is kept."""
        short, long = sorted((len(source), len(target)))
        if long > self.rules.most_characters:
            return "too long"
        if long > SHORT and long > self.rules.most_ratio * short:
            return "lengths too different"
        if not self.rules.keep_copies and source.casefold() == target.casefold():
            return "both sides the same"
        if not all(_is_written_in(*each) for each in zip((source, target), self.scripts, strict=True)):
            return "other script"
        if self.rules.keep_duplicates:
            return None
        digest = blake2b(f"{source}\t{target}".encode(), digest_size=16).digest()
        if digest in self.kept:
            return "there before"
        self.kept.add(digest)
        return None


def common_scripts(pairs: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Return the commonest script of each side, "any" for a side without letters."""
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for pair in pairs:
        for count, text in zip(counts, pair, strict=True):
            count.update(_scripts(text))
    source, target = (count.most_common(1)[0][0] if count else ANY for count in counts)
    return source, target


def _is_written_in(text: str, script: str) -> bool:
    """Whether more than half of the letters are of a script; so is what has no letters."""
    if script == ANY:
        return True
    letters = _scripts(text)
    return not letters or 2 * sum(each == script for each in letters) > len(letters)


def _scripts(text: str) -> list[str]:
    """Return the script of each letter of a text."""
    return [script for script in map(_script, text) if script]


@lru_cache(maxsize=1 << 16)
def _script(character: str) -> str:
    """Return the script of a letter, empty for anything else: Python knows it by the first word of its name."""
    if not character.isalpha():
        return ""
    first = unicodedata.name(character, "").partition(" ")[0].lower()
    return TOGETHER.get(first, first)


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(_script(chr(code)) for code in range(0x20000)) - {""}
