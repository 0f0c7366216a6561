"""Flags of `regard translate` that constrain the answers, and the files of these flags."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro

from regard.cli.aligned_output import Answers
from regard.cli.lines import open_lines, read_line
from regard.cli.terminal import print_message
from regard.data.parallel import file_digest, parse_glossary
from regard.data.vocabulary import is_blank
from regard.decoding.controls import Controls, encode_constraint
from regard.errors import InputError, plural
from regard.runs.sequence_run import SequenceRun


@dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """Constraints on the answers."""

    prefix: str | None = None
    """Text with which each answer begins. It may end within a word, and --no_repeat_ngram does not limit it."""
    prefixes: Path | None = None
    """File with the prefix of each answer, one per line of the input. A blank line is no prefix."""
    min_length: int = 0
    """Minimum length of an answer in tokens."""
    max_length: int | None = None
    """Maximum length of an answer in tokens. None: twice the length of its source, plus 50."""
    no_repeat_ngram: int = 0
    """Size in tokens of the n-grams that occur at most once in an answer, apart from its prefix; 0: no limit."""
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
        for term in self.term:
            if "\t" in term:
                raise InputError(
                    f"term {term!r} contains a tab: give one term of the target language, or a file of source "
                    "terms and translations with --glossary"
                )
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

    def read_prefixes(self, texts: Path | None) -> Iterator[str] | None:
        """Return the lines of `prefixes`, and report how many of them are blank. None without such a file.

        Raises `InputError` if the file `texts` has another number of lines. Standard input and pipes are counted
        as they are read.
        """
        if self.prefixes is None:
            return None
        lines = _read_lines(self.prefixes)
        if texts is not None and texts.is_file() and (count := file_digest(texts).lines) != len(lines):
            raise InputError(
                f"{str(self.prefixes)!r} has {plural(len(lines), 'line')}, but {str(texts)!r} has {count:,}: "
                "give one prefix for each line of the input; a blank line is no prefix"
            )
        if blank := sum(map(is_blank, lines)):
            print_message(f"blank lines of {str(self.prefixes)!r}: {blank}; their answers have no prefix")
        return iter(lines)


def _read_lines(path: Path) -> list[str]:
    with open_lines(path) as file:
        return [read_line(line, number) for number, line in enumerate(file, start=1)]


def warn_missing_terms(run: SequenceRun, controls: Controls, text: str, answers: Answers, name: str) -> None:
    """Warn if answers to a text lack a term. `name`: name of the text."""
    vocabulary = run.task.target_vocabulary
    missing = [controls.missing(text, answer.tokens, vocabulary) for answer in answers or ()]
    if lacking := [terms for terms in missing if terms]:
        which = "the answer" if len(missing) == 1 else f"{len(lacking)} of the {len(missing)} answers"
        terms = ", ".join(map(repr, dict.fromkeys(term for terms in lacking for term in terms)))
        print_message(
            f"{which} to {name} {'lacks' if len(lacking) == 1 else 'lack'} {terms}: the length limit or another "
            "constraint was reached"
        )
    if misplaced := dict.fromkeys(term for answer in answers or () for term in answer.misplaced):
        print_message(
            f"the answer to {name} has {', '.join(map(repr, misplaced))}, but not where its source term is "
            "translated: check it"
        )


def check_length_penalty(
    run: SequenceRun, length_penalty: float | None, beam: int | None, temperature: float = 0.0
) -> None:
    """Raise `InputError` for a length penalty without a beam, whose answers it would rank."""
    beam = (1 if temperature else run.usual_beam) if beam is None else beam
    if length_penalty is not None and 0 < length_penalty < math.inf and beam == 1:
        raise InputError(f"--length_penalty {length_penalty:g} ranks answers of a beam: give --beam 2 or more")
