"""Glossaries: terms of the source language with the translations that must be used."""

from collections.abc import Iterable

from regard.data.vocabulary import is_blank
from regard.errors import InputError


def parse_glossary(lines: Iterable[str], name: str) -> dict[str, str]:
    """Return the translation of each term from lines with a source term, a tab and its translation.

    Blank lines are skipped. `name`: name of the file, for errors. Raises `InputError` for a line without two
    terms, for a source term with two translations, and if there are no terms.

    >>> parse_glossary(["Hund\\tdog", "", "alter Hund\\told dog"], "glossary.tsv")
    {'Hund': 'dog', 'alter Hund': 'old dog'}
    """
    glossary: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if is_blank(line):
            continue
        terms = [part.strip() for part in line.split("\t")]
        if len(terms) != 2 or any(map(is_blank, terms)):
            raise InputError(
                f"line {number} of {name!r} is {line!r}: give a source term, a tab and its translation"
            )
        source, target = terms
        if glossary.setdefault(source, target) != target:
            raise InputError(
                f"line {number} of {name!r} translates {source!r} by {target!r}, but an earlier line by "
                f"{glossary[source]!r}: leave out one of them"
            )
    if not glossary:
        raise InputError(f"{name!r} has no terms: give lines with a source term, a tab and its translation")
    return glossary
