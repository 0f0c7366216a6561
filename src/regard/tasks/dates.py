"""Dates: a date as people write it, in several languages and styles, to ISO 8601.

"Donnerstag, 3. Mai 1979" has the answer "1979-05-03". The styles are those of the Unicode CLDR, as Babel ships
them. A style without the month's name, such as 05/03/1979, means different dates in different places, so its
source starts with its locale: "en 5/3/1979", "fr 03/05/1979".

A date's digits are made from the digits that they copy, where the style writes two of them; a month from the
characters of its name; both digits of "05" from a single "5". The hyphens and the weekday are made from, and go
into, nothing.
"""

import datetime
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from babel import Locale, UnknownLocaleError
from babel.dates import DateTimeFormat, parse_pattern

from regard.data import CharacterVocabulary
from regard.errors import InputError
from regard.tasks.pairs import Pair, PairTask

FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
DAYS = (LAST - FIRST).days + 1
UNSEEN = 10
"""One day in so many is never trained on."""
FORMATS = ("full", "long", "medium")
"""CLDR's styles with a full year (its short one writes two digits of it in many locales)."""
SKELETONS = ("yMd", "yMEd", "yMMMd", "yMMMEd", "yMMMMd", "yMMMMEEEEd")
FIELD = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True, kw_only=True)
class DatesConfig:
    """Which dates."""

    locales: str = "en,de,fr,es"
    """Languages, or languages with a region (en_GB), as CLDR names them; commas between them."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a locale that is unknown, unreadable or named twice."""
        names = self.names
        if not names or len(set(names)) < len(names):
            raise InputError(f"locales {self.locales!r}: name one or more, each once, with commas between them")
        for name in names:
            _styles_of(name)

    @property
    def names(self) -> list[str]:
        """The locales one by one."""
        return [name.strip() for name in self.locales.split(",") if name.strip()]


class Style(NamedTuple):
    """One way to write a date in one locale."""

    locale: str
    pieces: tuple[tuple[bool, str], ...]
    """In order: whether it is a field, and the field's CLDR letters or the text between fields."""

    @property
    def numeric(self) -> bool:
        """Whether the month is a number, so that the style alone does not say which number it is."""
        return any(is_field and text in ("M", "MM", "L", "LL") for is_field, text in self.pieces)


class Dates(PairTask):
    """Every day from 1900 to 2099 in every style of every locale, each locale and style as likely as the next."""

    name = "dates"
    summary = "a date as people write it, to ISO 8601"
    config_class = DatesConfig
    defaults = {"steps": 500}

    def __init__(self, config: DatesConfig | None = None) -> None:
        self.config = DatesConfig() if config is None else config
        self.styles = [_styles_of(name) for name in self.config.names]
        texts = [
            compose(style, FIRST + datetime.timedelta(days=day)).source
            for styles in self.styles
            for style in styles
            for day in range(366)  # every month and weekday, in lower and upper case as the style has them
        ]
        self.source_vocabulary = CharacterVocabulary("0123456789" + "".join(texts))
        self.target_vocabulary = CharacterVocabulary("0123456789-")
        self.max_source = max(map(len, texts)) + 1
        self.max_target = len("1979-05-03")

    def pair(self, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False) -> Pair:
        """Draw a date and a style; one day in ten is only ever drawn with `unseen`."""
        locale, style, day = torch.randint(2**40, (3,), generator=generator).tolist()
        while held_back(day := day % DAYS) != unseen:
            day = int(torch.randint(DAYS, (), generator=generator))
        styles = self.styles[locale % len(self.styles)]
        return compose(styles[style % len(styles)], FIRST + datetime.timedelta(days=day))

    def check_sample_len(self, sample_len: int | None) -> None:
        """Raise `InputError` for any length: a date is as long as it is."""
        if sample_len is not None:
            raise InputError(f"sample_len {sample_len} does not fit: the length of a date is not a choice")

    def known(self, source: str) -> Pair | None:
        """Return the pair of a source that one of the styles writes; None for any other."""
        for style in (style for styles in self.styles for style in styles):
            found = _reader(style).fullmatch(source)
            if not found:
                continue
            # A style writes each of the three once, so what its fields show is the whole date.
            shown = {
                name[0].replace("L", "M"): _tables(style)[name][text] for name, text in found.groupdict().items()
            }
            try:
                date = datetime.date(shown["y"], shown["M"], shown["d"])
            except ValueError:  # February 30
                continue
            pair = compose(style, date)
            if pair.source == source:  # the weekday is right too
                return pair
        return None


def held_back(day: int) -> bool:
    """Whether a day (counted from 1900-01-01) is kept from training: the same ones in every run."""
    return zlib.crc32(day.to_bytes(4, "little")) % UNSEEN == 0


def compose(style: Style, date: datetime.date) -> Pair:
    """Write a date in a style, keeping where each digit of the answer came from."""
    target = date.isoformat()
    alignment: list[tuple[int, ...]] = [()] * len(target)
    source = f"{style.locale} " if style.numeric else ""
    for is_field, text in style.pieces:
        if is_field:
            text, field = _render(style.locale, text, _value(text, date)), text
            begin, digits = _DIGITS.get(field[0], (0, 0))
            span = range(len(source), len(source) + len(text))
            for digit in range(digits):
                same = text == target[begin : begin + digits]
                alignment[begin + digit] = (span[digit],) if same else tuple(span)
        source += text
    return Pair(source, target, tuple(alignment))


_DIGITS = {"y": (0, 4), "M": (5, 2), "L": (5, 2), "d": (8, 2)}
"""By the field's first letter: the first digit of the answer that it holds, and how many."""


def _value(field: str, date: datetime.date) -> int:
    """Return what of the date a field shows."""
    return {"y": date.year, "M": date.month, "L": date.month, "d": date.day}.get(field[0], date.weekday())


@cache
def _render(locale: str, field: str, value: int) -> str:
    """Write one field of a date; `value`: what `_value` returned, a weekday from 0, Monday."""
    day = {
        "y": lambda: datetime.date(value, 1, 1),
        "M": lambda: datetime.date(2000, value, 1),
        "L": lambda: datetime.date(2000, value, 1),
        "d": lambda: datetime.date(2000, 1, value),
    }.get(field[0], lambda: datetime.date(2001, 1, 1 + value))()  # 2001 began on a Monday
    return DateTimeFormat(day, Locale.parse(locale))[field]


@cache
def _styles_of(name: str) -> tuple[Style, ...]:
    """Return the styles of a locale; raises `InputError` where it has none that can be read back."""
    try:
        locale = Locale.parse(name)
    except (UnknownLocaleError, ValueError, TypeError):
        raise InputError(f"locale {name!r} is unknown: give a CLDR name such as en, de or pt_BR") from None
    patterns = [str(locale.date_formats[style].pattern) for style in FORMATS]
    patterns += [str(locale.datetime_skeletons[s].pattern) for s in SKELETONS if s in locale.datetime_skeletons]
    found = []
    for pattern in dict.fromkeys(patterns):
        parts = FIELD.split(str(parse_pattern(pattern).format))
        pieces = tuple((bool(index % 2), text) for index, text in enumerate(parts) if text)
        fields = [text for is_field, text in pieces if is_field]
        if sorted(field[0] for field in fields if field[0] not in "EcG") in (["M", "d", "y"], ["L", "d", "y"]):
            found.append(Style(name, tuple((f, text.replace("%%", "%")) for f, text in pieces)))
    if not found:
        raise InputError(f"locale {name!r} has no style with year, month and day: choose another")
    return tuple(found)


@cache
def _tables(style: Style) -> Mapping[str, Mapping[str, int]]:
    """Return, for each field of a style, from what it may write to what that shows."""
    ranges = {"y": range(FIRST.year, LAST.year + 1), "M": range(1, 13), "L": range(1, 13), "d": range(1, 32)}
    return {
        text: {_render(style.locale, text, value): value for value in ranges.get(text[0], range(7))}
        for is_field, text in style.pieces
        if is_field
    }


@cache
def _reader(style: Style) -> re.Pattern[str]:
    """Return what reads a source of this style, a group for each field."""
    pattern = f"{style.locale} " if style.numeric else ""
    for is_field, text in style.pieces:
        options = "|".join(map(re.escape, _tables(style)[text])) if is_field else ""
        pattern += f"(?P<{text}>{options})" if is_field else re.escape(text)
    return re.compile(pattern)
