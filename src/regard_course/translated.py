"""Translations of the course: a folder of texts, compared with the English originals.

    words.json             texts of the pages, of their scripts, of the pictures and of the checker: English text ->
                           translation
    challenges.md          the end of the index
    lessons/NAME.md        a lesson
    exercises/NAME.md      the title, statement, hints and solution of an exercise

Every file may be missing. A Markdown file begins with a line `original: DIGEST`, its English original's.
"""

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from regard.errors import InputError
from regard.io import read_json, read_text

ENGLISH = "en"
PACKAGED = Path(__file__).parent / "translations"
State = Literal["", "missing", "older", "outdated"]
"""Empty: the translation is up to date. Older: the English text is newer. Outdated: the English text is newer and
has other code or parts, so that the English text is used."""
DIGEST = re.compile(r"original: ([0-9a-f]{12})\n+")
FENCE = r"^```.*?^```$"
PIECES = {
    "command or code": r"`[^`\n]+`",
    "link": r"\]\([^)\s]*\)",
    "path": r"\bdocs/[\w/.-]+\w",
    "item of a list": r"^(?:-|\d+\.) ",
}
"""What a translation has in common with its original outside of code blocks."""
PLACEHOLDER = r"\{\d\}|[{}]|</?\w+[^>]*>"
"""Pattern of values, braces and HTML tags in a text of a page."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Language:
    """A language of the course."""

    name: str
    folder: Path | None
    """None: English."""
    words: dict[str, dict[str, str]]
    """The content of `words.json`."""

    def say(self, text: str, *values: object) -> str:
        found = next((part[text] for part in self.words.values() if part.get(text)), text)
        return found.format(*values) if values else found

    def translate(self, file: str, original: str) -> tuple[str, State]:
        """Return the translation of a Markdown text with the original's headings, or the original. file: the path
        in the folder, without suffix. Raises `InputError` if the translation lacks a part or changes code."""
        if self.folder is None:
            return original, ""
        path = self.folder / f"{file}.md"
        if not path.is_file():
            return original, "missing"
        text = read_text(path, "write it again as UTF-8")
        digest = make_digest(original)
        head = DIGEST.match(text)
        if head is None:
            raise InputError(f"{str(path)!r} does not begin with the line 'original: {digest}': add this line")
        text = text[head.end() :]
        if text.strip() == original.strip():
            return original, "missing"
        fault = self._find_fault(original, text)
        if fault and head[1] == digest:
            raise InputError(f"{str(path)!r}: {fault}")
        if fault:
            return original, "outdated"
        titles = iter(part_titles(original))
        text = re.sub("^## .*$", lambda _: f"## {next(titles)}", text, flags=re.MULTILINE)
        return text, "" if head[1] == digest else "older"

    def _find_fault(self, original: str, translation: str) -> str:
        """Return the first difference in parts or code as a sentence, or an empty text."""
        titles, others = part_titles(original), part_titles(translation)
        translated = [self.say(title) for title in titles]
        if len(others) != len(titles):
            return f"the parts are {', '.join(others) or 'missing'}, but must be {', '.join(translated)}"
        for title, word, other in zip(titles, translated, others, strict=True):
            if other not in (title, word):
                missing = "" if word != title else f", or add it to words.json as the translation of {title!r}"
                return f"the heading {other!r} must be {word!r}{missing}"
        for title, first, second in zip(
            ("title", *titles), _split_parts(original), _split_parts(translation), strict=True
        ):
            if fault := _compare_code(first, second):
                return f"part {title!r} {fault}"
            prose = [re.sub(FENCE, "", text, flags=re.MULTILINE | re.DOTALL) for text in (first, second)]
            for name, pattern in PIECES.items():
                left, right = (Counter(re.findall(pattern, text, re.MULTILINE)) for text in prose)
                for piece in left - right:
                    return f"part {title!r} lacks the {name} {piece.strip('`')!r} of the original"
                for piece in right - left:
                    return f"part {title!r} has the {name} {piece.strip('`')!r}, which the original lacks"
        return ""


def part_titles(text: str) -> list[str]:
    return [title.strip() for title in re.findall(r"^## (.*)$", text, re.MULTILINE)]


def _split_parts(text: str) -> list[str]:
    """Return the title and the parts of a Markdown text, without headings."""
    return re.split(r"^## .*$", text, flags=re.MULTILINE)


def _compare_code(original: str, translation: str) -> str:
    """Return the first difference in the code blocks of a part, or an empty text."""
    firsts, seconds = (re.findall(FENCE, text, re.MULTILINE | re.DOTALL) for text in (original, translation))
    if len(firsts) != len(seconds):
        return f"has {len(seconds)} code blocks, but the original has {len(firsts)}"
    for first, second in zip(firsts, seconds, strict=True):
        for left, right in zip_longest(first.splitlines(), second.splitlines()):
            if left is None or right is None:
                return f"has another number of lines in a code block: {left or right!r}"
            if left != right:
                return f"has the line {right!r} in a code block, which must be {left!r}"
    return ""


def make_digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def known_languages() -> list[str]:
    return [ENGLISH, *sorted(item.name for item in PACKAGED.iterdir() if item.is_dir())]


@functools.cache
def find_language(name: str = ENGLISH) -> Language:
    """Return a language of the package, or the translation in a folder.

    Raises `InputError` if there is none, or if its `words.json` is invalid.

    >>> find_language("de").say("Predict")
    'Vorhersage'
    """
    if name == ENGLISH:
        return Language(name=name, folder=None, words={})
    folder = PACKAGED / name if name in known_languages() else Path(name)
    if not folder.is_dir():
        raise InputError(
            f"language {name!r} is unknown: choose {', '.join(known_languages())}, or a folder with a translation"
            f" (begin one with `regard learn --texts {name}`)"
        )
    path = folder / "words.json"
    words: dict[str, dict[str, str]] = {}
    if path.is_file():
        words = read_json(path, dict[str, dict[str, str]], "compare it with: regard learn --texts NEW_FOLDER")
    for text, translation in ((text, part[text]) for part in words.values() for text in part):
        wanted, found = (sorted(re.findall(PLACEHOLDER, string)) for string in (text, translation))
        if translation and wanted != found:
            raise InputError(
                f"{str(path)!r}: the translation of {text!r} must contain {' '.join(wanted) or 'no braces'},"
                f" not {' '.join(found) or 'none'}"
            )
    return Language(name=name, folder=folder, words=words)


# The language of the checker's sentences, which are made in many places, some of them in the learner's process.

LANGUAGE = ContextVar("LANGUAGE", default=ENGLISH)


@contextmanager
def speak(language: str) -> Iterator[None]:
    """Use a language for all sentences of the checker. Raises `InputError` if it is unknown."""
    token = LANGUAGE.set(find_language(language).name)
    try:
        yield
    finally:
        LANGUAGE.reset(token)


def say(text: str, *values: object) -> str:
    """Return a sentence of the checker in the language of `speak`."""
    return find_language(LANGUAGE.get()).say(text, *values)
