"""Dates: convert dates of several languages and styles to ISO 8601.

"Donnerstag, 3. Mai 1979" has the answer "1979-05-03". The styles are those of the Unicode CLDR, as in Babel. A
style without the name of the month, such as 05/03/1979, is ambiguous, so the source starts with the locale: "en
5/3/1979", "fr 03/05/1979".

Alignment: if a style writes all digits of a field, each digit of the answer is aligned with the digit that it
copies. A month is aligned with all characters of its name, and both digits of "05" are aligned with a single
"5". Hyphens and the weekday have no alignment.
"""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import torch
from babel import Locale, UnknownLocaleError
from babel.dates import DateTimeFormat, parse_pattern

from regard.data.vocabulary import CharacterVocabulary
from regard.errors import InputError
from regard.tasks.pairs import Pair, PairTask, is_held_out

FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
DAYS = (LAST - FIRST).days + 1
FORMATS = ("full", "long", "medium")
"""CLDR styles with a full year. In many locales, the short style has a year of two digits."""
SKELETONS = ("yMd", "yMEd", "yMMMd", "yMMMEd", "yMMMMd", "yMMMMEEEEd")
FIELD = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True, kw_only=True)
class DatesTaskConfig:
    """Locales of the task."""

    locales: str = "en,de,fr,es"
    """CLDR names of languages, with or without a region (en_GB), separated by commas."""

    def __post_init__(self) -> None:
        names = self.names
        if not names or len(set(names)) < len(names):
            raise InputError(f"locales {self.locales!r}: give one or more different locales, separated by commas")
        for name in names:
            _find_styles(name)

    @property
    def names(self) -> list[str]:
        return [name.strip() for name in self.locales.split(",") if name.strip()]


class Style(NamedTuple):
    """One way to write a date in one locale."""

    locale: str
    pieces: tuple[tuple[bool, str], ...]
    """Pieces in order: whether the piece is a field, and the CLDR letters of the field or the literal text."""

    @property
    def numeric(self) -> bool:
        """Whether the month is a number, so that the order of day and month is ambiguous."""
        return any(is_field and text in ("M", "MM", "L", "LL") for is_field, text in self.pieces)


class Dates(PairTask):
    """Converts days from 1900 to 2099 in all styles. All locales, and all styles of a locale, are equally likely."""

    name = "dates"
    summary = "convert a written date to ISO 8601"
    config_class = DatesTaskConfig
    defaults = {"steps": 500}

    max_target = len("1979-05-03")
    fixed = "dates"

    @cached_property
    def styles(self) -> list[tuple[Style, ...]]:
        return [_find_styles(name) for name in self.config.names]

    @cached_property
    def _year(self) -> list[str]:
        days = [FIRST + datetime.timedelta(days=day) for day in range(366)]
        return [write_date(style, day).source for styles in self.styles for style in styles for day in days]

    @cached_property
    def source_vocabulary(self) -> CharacterVocabulary:  # type: ignore[override]
        return CharacterVocabulary("0123456789" + "".join(self._year))

    @cached_property
    def target_vocabulary(self) -> CharacterVocabulary:  # type: ignore[override]
        return CharacterVocabulary("0123456789-")

    @cached_property
    def max_source(self) -> int:  # type: ignore[override]
        return max(map(len, self._year)) + 1

    def pair(self, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False) -> Pair:
        """Sample a date and a style. One day in ten is sampled only with `unseen`."""
        locale, style, day = torch.randint(2**40, (3,), generator=generator).tolist()
        while is_held_out((day := day % DAYS).to_bytes(4, "little")) != unseen:
            day = int(torch.randint(DAYS, (), generator=generator))
        styles = self.styles[locale % len(self.styles)]
        return write_date(styles[style % len(styles)], FIRST + datetime.timedelta(days=day))

    def known(self, source: str) -> Pair | None:
        for style in (style for styles in self.styles for style in styles):
            match = _pattern(style).fullmatch(source)
            if not match:
                continue
            # Every style contains year, month and day exactly once.
            values = {
                name[0].replace("L", "M"): _render_table(style)[name][text] for name, text in match.groupdict().items()
            }
            try:
                date = datetime.date(values["y"], values["M"], values["d"])
            except ValueError:  # February 30
                continue
            pair = write_date(style, date)
            if pair.source == source:  # false if the weekday is incorrect
                return pair
        return None


def write_date(style: Style, date: datetime.date) -> Pair:
    """Write a date in a style, with the alignment of each digit of the answer. Example:
    `write_date(Dates().styles[0][0], datetime.date(1979, 5, 3)).target == "1979-05-03"`."""
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
"""Position and number of digits in the answer, by the first letter of a field."""


def _value(field: str, date: datetime.date) -> int:
    return {"y": date.year, "M": date.month, "L": date.month, "d": date.day}.get(field[0], date.weekday())


@cache
def _render(locale: str, field: str, value: int) -> str:
    """Write one field of a date. `value` is the result of `_value`, where Monday is weekday 0."""
    parts = {"y": (value, 1, 1), "M": (2000, value, 1), "L": (2000, value, 1), "d": (2000, 1, value)}
    day = datetime.date(*parts.get(field[0], (2001, 1, 1 + value)))  # 2001 began on a Monday
    return DateTimeFormat(day, Locale.parse(locale))[field]


@cache
def _find_styles(name: str) -> tuple[Style, ...]:
    """Return the styles of a locale."""
    try:
        locale = Locale.parse(name)
    except (UnknownLocaleError, ValueError, TypeError):
        raise InputError(f"locale {name!r} is unknown: give a CLDR name such as en, de or pt_BR") from None
    patterns = [str(locale.date_formats[style].pattern) for style in FORMATS]
    patterns += [str(locale.datetime_skeletons[s].pattern) for s in SKELETONS if s in locale.datetime_skeletons]
    styles = []
    for pattern in dict.fromkeys(patterns):
        parts = FIELD.split(str(parse_pattern(pattern).format))
        pieces = tuple((bool(index % 2), text) for index, text in enumerate(parts) if text)
        fields = [text for is_field, text in pieces if is_field]
        if sorted(field[0] for field in fields if field[0] not in "EcG") in (["M", "d", "y"], ["L", "d", "y"]):
            styles.append(Style(name, tuple((f, text.replace("%%", "%")) for f, text in pieces)))
    if not styles:
        raise InputError(f"locale {name!r} has no style with year, month and day: choose another locale")
    return tuple(styles)


@cache
def _render_table(style: Style) -> Mapping[str, Mapping[str, int]]:
    """Return the value for every possible text of each field of a style."""
    ranges = {"y": range(FIRST.year, LAST.year + 1), "M": range(1, 13), "L": range(1, 13), "d": range(1, 32)}
    return {
        text: {_render(style.locale, text, value): value for value in ranges.get(text[0], range(7))}
        for is_field, text in style.pieces
        if is_field
    }


@cache
def _pattern(style: Style) -> re.Pattern[str]:
    """Return a regular expression for the sources of a style, with one group per field."""
    pattern = f"{style.locale} " if style.numeric else ""
    for is_field, text in style.pieces:
        options = "|".join(map(re.escape, _render_table(style)[text])) if is_field else ""
        pattern += f"(?P<{text}>{options})" if is_field else re.escape(text)
    return re.compile(pattern)
