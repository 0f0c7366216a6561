"""What `regard translate` adds to its answers by alignment: links behind them, or the markup of their texts."""

import dataclasses
from collections.abc import Sequence

from regard.cli.words import say
from regard.data.markup import UNIT, MarkedText, parse_markup, transfer_markup
from regard.data.vocabulary import is_blank
from regard.decoding import Candidate
from regard.errors import InputError
from regard.runs import SequenceRun

Answers = list[Candidate] | None
"""To one text, best first; None where it has none."""
SEPARATOR = " ||| "


def tell_heads(run: SequenceRun) -> None:
    """Say where nobody has chosen the heads that a run aligns by."""
    if run.kept_heads() is None:
        say(
            "no heads were chosen for this run, so all are averaged: choose some with `regard align RUN SOURCE "
            "TARGET --links LINKS`, or --silver"
        )


def read_markup(line: str, which: str) -> MarkedText:
    """Return a line without its markup; one that is not well-formed is told, and read as text."""
    try:
        return parse_markup(line)
    except InputError as error:
        say(f"{which}: {error}; it is read as text")
        return MarkedText(line)


def with_links(run: SequenceRun, texts: Sequence[str], answers: Sequence[Answers]) -> list[Answers]:
    """Return answers with their links behind them, between words of the text and of the answer, from 0."""
    found = iter(run.align(_pairs(texts, answers)))
    return [
        some and [dataclasses.replace(each, text=f"{each.text}{SEPARATOR}{next(found).moses}") for each in some]
        for some in answers
    ]


def with_markup(run: SequenceRun, marked: Sequence[MarkedText], answers: Sequence[Answers]) -> list[Answers]:
    """Return answers with the markup of their texts. What is markup alone is its own answer."""
    found = iter(run.align(_pairs([each.text for each in marked], answers), unit=UNIT))
    carried: list[Answers] = []
    for text, some in zip(marked, answers, strict=True):
        if some is None and text.elements and is_blank(text.text):
            bare = transfer_markup(text, text.text, [])
            some = [Candidate(text=bare, tokens=[], log_probability=0.0, score=0.0, finished=True)]
        elif some is not None:
            some = [
                dataclasses.replace(each, text=transfer_markup(text, each.text, next(found).links))
                for each in some
            ]
        carried.append(some)
    return carried


def _pairs(texts: Sequence[str], answers: Sequence[Answers]) -> list[tuple[str, str]]:
    return [(text, each.text) for text, some in zip(texts, answers, strict=True) for each in some or ()]
