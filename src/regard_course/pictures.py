"""The picture of each lesson: an SVG file with translated texts and a label for readers who do not see it. Colors are
CSS variables with a fallback, for all pages and notebooks; at most 340 pixels are wide."""

import html
import re
from importlib.resources import files
from itertools import pairwise

from regard_course.translated import ENGLISH, find_language

TEXT = re.compile(r"(?<=>)[^<>]+(?=</text>)|(?<=aria-label=\")[^\"]+")


def picture(lesson: str, language: str = ENGLISH) -> str:
    """Return the picture of a lesson as SVG, with its texts in a language.

    >>> picture("counting")[:4]
    '<svg'
    """
    say = find_language(language).say
    return TEXT.sub(lambda text: html.escape(say(html.unescape(text[0]))), _read(lesson))


def picture_texts(lesson: str) -> list[str]:
    """Return the English texts of a picture that a translation may change, first its description."""
    texts = dict.fromkeys(map(html.unescape, TEXT.findall(_read(lesson))))
    return [text for text in texts if any(map(str.isalpha, map("".join, pairwise(text))))]


def _read(lesson: str) -> str:
    """Return the picture in English, without the line breaks between its shapes."""
    path = files("regard_course").joinpath("lessons", "pictures", f"{lesson}.svg")
    return "".join(path.read_text(encoding="utf-8").splitlines())
