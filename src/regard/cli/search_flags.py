"""Flags of `regard translate` that constrain the answers, and the files of these flags."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro

from regard.cli.aligned_output import Answers
from regard.cli.lines import open_lines, read_line
from regard.cli.terminal import print_message
from regard.data.glossary import parse_glossary
from regard.data.vocabulary import is_blank
from regard.decoding import Controls
from regard.decoding.controls import encode_constraint
from regard.errors import InputError
from regard.runs import SequenceRun


@dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """Constraints on the answers."""

    prefix: str | None = None
    """Text with which each answer begins. It may end within a word."""
    prefixes: Path | None = None
    """File with the prefix of each answer, one per line of the input. A blank line is no prefix."""
    min_length: int = 0
    """Minimum length of an answer in tokens."""
    max_length: int | None = None
    """Maximum length of an answer in tokens. None: twice the length of its source, plus 50."""
    no_repeat_ngram: int = 0
    """Size in tokens of the n-grams that occur at most once in an answer; 0: no limit."""
    repetition_penalty: float = 1.0
    """Penalty (1 to 100) for tokens that the answer already contains: divides positive logits and multiplies
    negative logits. 1: no penalty."""
    term: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Term that each answer must contain. Repeat the flag for several terms. Needs a beam of at least 2."""
    glossary: Path | None = None
    """File with a source term, a tab and its translation per line. If a text contains a source term as whole
    words, with the same case, its answer must contain the translation. Needs a beam of at least 2."""
    replace_unknown: bool = False
    """Allow the unknown symbol in answers, and replace it by the source word to which it is aligned by the heads
    that `regard align` has chosen."""
    ensemble: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Another run with the same vocabularies. Each token is predicted by the mean of the probabilities of all
    runs. Repeat the flag for several runs. --align, --tags and --plot use the attention of RUN."""

    def controls(self, run: SequenceRun) -> Controls:
        """Return the constraints, except those of `prefixes`. Raises `InputError` for unknown symbols."""
        if self.prefix is not None and self.prefixes is not None:
            raise InputError("--prefix and --prefixes exclude each other: leave out one of them")
        glossary = {} if self.glossary is None else parse_glossary(_read_lines(self.glossary), str(self.glossary))
        vocabulary = run.task.target_vocabulary
        if self.prefix is not None:
            encode_constraint("prefix", self.prefix, vocabulary)
        for term in (*self.term, *glossary.values()):
            encode_constraint("term", term, vocabulary)
        return Controls(
            prefix=self.prefix or "",
            min_length=self.min_length,
            max_length=self.max_length,
            no_repeat_ngram=self.no_repeat_ngram,
            repetition_penalty=self.repetition_penalty,
            terms=self.term,
            glossary=glossary,
            replace_unknown=self.replace_unknown,
        )

    def read_prefixes(self) -> Iterator[str] | None:
        """Return the lines of `prefixes`, and report how many of them are blank. None without such a file."""
        if self.prefixes is None:
            return None
        lines = _read_lines(self.prefixes)
        if blank := sum(map(is_blank, lines)):
            print_message(f"blank lines of {str(self.prefixes)!r}: {blank}; their answers have no prefix")
        return iter(lines)


def _read_lines(path: Path) -> list[str]:
    with open_lines(path) as file:
        return [read_line(line, number) for number, line in enumerate(file, start=1)]


def warn_missing_terms(run: SequenceRun, controls: Controls, text: str, answers: Answers, name: str) -> None:
    """Warn if the best answer to a text lacks a term. `name`: name of the text."""
    if answers and (missing := controls.missing(text, answers[0].tokens, run.task.target_vocabulary)):
        print_message(
            f"the answer to {name} lacks {', '.join(map(repr, missing))}: it reached its length limit or another "
            "constraint"
        )
