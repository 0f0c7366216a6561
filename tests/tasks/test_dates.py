"""Dates: formats of Babel, the source of each character, and days held out from training."""

import datetime

import pytest
import torch
from babel.dates import format_date, format_skeleton
from hypothesis import given, strategies as st

from regard.tasks.dates import DAYS, FIRST, FORMATS, LAST, SKELETONS, Dates, DatesTaskConfig, write_date
from regard.tasks.pairs import is_held_out

DATES = Dates()
STYLES = [style for styles in DATES.styles for style in styles]
a_day = st.dates(FIRST, LAST)


@given(day=a_day, locale=st.sampled_from(["en", "de", "fr", "es", "pt_BR", "hu", "ru", "ja"]))
def test_dates_equal_babels(day: datetime.date, locale: str) -> None:
    task = Dates(DatesTaskConfig(locales=locale))
    written = {write_date(style, day).source.removeprefix(f"{locale} ") for style in task.styles[0]}
    by_babel = {format_date(day, style, locale=locale) for style in FORMATS}
    by_babel |= {format_skeleton(skeleton, day, locale=locale, fuzzy=False) for skeleton in SKELETONS[:4]}
    assert by_babel <= written


def test_examples_of_the_notes() -> None:
    for source, target in (
        ("Donnerstag, 3. Mai 1979", "1979-05-03"),
        ("14 juillet 1989", "1989-07-14"),
        ("Mar 5, 2015", "2015-03-05"),
        ("en 5/3/1979", "1979-05-03"),
        ("fr 05/03/1979", "1979-03-05"),
        ("3 de mayo de 1979", "1979-05-03"),
    ):
        pair = DATES.known(source)
        assert pair is not None and pair.target == target


@pytest.mark.parametrize(
    "source", ["", "Montag, 3. Mai 1979", "30. Februar 1979", "3. Mai 79", "05/03/1979", "3. mai 1979", "nonsense"]
)
def test_unknown_formats_have_no_answer(source: str) -> None:
    assert DATES.known(source) is None


@given(day=a_day, style=st.sampled_from(STYLES))
def test_composed_dates_are_parsed(day: datetime.date, style: object) -> None:
    pair = write_date(style, day)  # type: ignore[arg-type]
    assert pair.target == day.isoformat()
    assert DATES.known(pair.source) == pair
    assert len(pair.source) <= DATES.max_source and len(pair.target) <= DATES.max_target


@given(day=a_day, style=st.sampled_from(STYLES))
def test_digits_are_linked_to_their_source(day: datetime.date, style: object) -> None:
    source, target, alignment = write_date(style, day)  # type: ignore[arg-type]
    assert len(alignment) == len(target)
    origin = ["".join(source[position] for position in positions) for positions in alignment]
    assert "".join(origin[:4]) == target[:4]  # the year, digit by digit
    assert origin[4] == origin[7] == ""  # hyphens
    for first, value in ((5, day.month), (8, day.day)):
        part = origin[first], origin[first + 1]
        if part == (target[first], target[first + 1]):
            continue
        assert part[0] == part[1], "one digit, or a name, makes both"
        assert part[0] == str(value) or (first == 5 and part[0].strip(".").isalpha())


def test_no_source_has_two_dates() -> None:
    """All styles of the default locales work for days with every month, every day and most weekdays."""
    seen: dict[str, str] = {}
    for style in STYLES:
        for day in range(0, DAYS, 7):
            pair = write_date(style, FIRST + datetime.timedelta(days=day))
            assert seen.setdefault(pair.source, pair.target) == pair.target


def test_numeric_month_style_names_its_locale() -> None:
    for style in STYLES:
        day = datetime.date(1979, 5, 13)
        by_number = any(text[0] in "ML" and len(text) < 3 for is_field, text in style.pieces if is_field)
        assert write_date(style, day).source.startswith(f"{style.locale} ") == by_number == style.numeric


def test_training_never_draws_held_out_days(generator: torch.Generator) -> None:
    trained = {pair.target for pair in DATES.pairs(3000, generator)}
    unseen = {pair.target for pair in DATES.pairs(3000, generator, unseen=True)}
    assert not trained & unseen
    held = {
        (FIRST + datetime.timedelta(days=day)).isoformat()
        for day in range(DAYS)
        if is_held_out(day.to_bytes(4, "little"))
    }
    assert unseen <= held and not trained & held
    assert 0.09 < len(held) / DAYS < 0.11


def test_all_styles_and_locales_are_drawn(generator: torch.Generator) -> None:
    sources = [pair.source for pair in DATES.pairs(4000, generator)]
    for sign in ("January", "Januar ", "janvier", "enero", "en ", "de 0", "fr ", "es ", "Mo., ", "lun. ", "lun, "):
        assert any(sign in source for source in sources), sign


def test_characters_of_every_source_are_in_the_vocabulary(generator: torch.Generator) -> None:
    for pair in DATES.pairs(500, generator, unseen=True):
        assert not DATES.source_vocabulary.unknown(pair.source)
        assert not DATES.target_vocabulary.unknown(pair.target)
