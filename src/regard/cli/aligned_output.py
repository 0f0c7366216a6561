"""Word alignment and markup in the output of `regard translate`."""

import dataclasses
from collections.abc import Sequence

from regard.cli.terminal import print_message
from regard.data.markup import UNIT, MarkedText, parse_markup, transfer_markup
from regard.data.vocabulary import is_blank
from regard.decoding.translation import Candidate, blank_answer
from regard.errors import InputError
from regard.runs.sequence_run import SequenceRun

Answers = list[Candidate] | None
"""Answers to one text, best first, or None if the text has no answer."""
SEPARATOR = " ||| "


def warn_unchosen_heads(run: SequenceRun) -> None:
    """Warn if no alignment heads have been chosen for the run."""
    if run.kept_heads() is None:
        print_message(
            "this run has no chosen alignment heads, so all heads are averaged: choose heads with `regard align "
            "RUN SOURCE TARGET --links LINKS`, or --silver"
        )


def read_markup(line: str, name: str) -> MarkedText:
    """Parse the markup of a line. If the markup is ill-formed, the line is read as text, with a warning."""
    try:
        return parse_markup(line)
    except InputError as error:
        print_message(f"{name}: {error}; the line is read as text")
        return MarkedText(line)


def append_links(run: SequenceRun, texts: Sequence[str], answers: Sequence[Answers]) -> list[Answers]:
    """Append to each answer its word alignment with the text; words are counted from 0."""
    alignments = iter(run.align(_make_pairs(texts, answers)))

    def append(answer: Candidate) -> Candidate:
        return dataclasses.replace(answer, text=f"{answer.text}{SEPARATOR}{next(alignments).moses}")

    return [ranked and [append(answer) for answer in ranked] for ranked in answers]


def restore_markup(run: SequenceRun, marked: Sequence[MarkedText], answers: Sequence[Answers]) -> list[Answers]:
    """Transfer the markup of each text to its answers. A text that contains only markup is its own answer."""
    alignments = iter(run.align(_make_pairs([text.text for text in marked], answers), unit=UNIT))
    results: list[Answers] = []
    source, target = run.task.source_vocabulary, run.task.target_vocabulary
    for text, ranked in zip(marked, answers, strict=True):
        if ranked is None and text.elements and is_blank(text.text):
            ranked = [blank_answer(transfer_markup(text, text.text, []))]
        elif ranked is not None:
            offsets = [(source.offsets(text.text), target.offsets(answer.text)) for answer in ranked]
            ranked = [
                dataclasses.replace(
                    answer, text=transfer_markup(text, answer.text, next(alignments).links, spans)
                )
                for answer, spans in zip(ranked, offsets, strict=True)
            ]
        results.append(ranked)
    return results


def _make_pairs(texts: Sequence[str], answers: Sequence[Answers]) -> list[tuple[str, str]]:
    pairs = zip(texts, answers, strict=True)
    return [(text, answer.text) for text, ranked in pairs for answer in ranked or ()]
