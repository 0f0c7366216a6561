"""Commands that answer and score texts: `regard translate`, `regard generate` and `regard score`."""

import dataclasses
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import tyro

import regard
from regard.cli.lines import numbered_chunks, open_lines, read_line, read_lines
from regard.cli.parsing import read_command, take_flags
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import answer_output, print_message, save_and_print
from regard.convert.exportable import EngineName, Precision
from regard.data.markup import UNIT, MarkedText, parse_markup, transfer_markup
from regard.data.parallel import file_digest, parse_glossary
from regard.data.unknown_tokens import WARNING_SHARE, UnknownCount
from regard.data.vocabulary import is_blank
from regard.decoding.controls import Controls, encode_constraint
from regard.decoding.translation import Candidate, blank_answer
from regard.errors import InputError, plural
from regard.fast.memory import keep_memory
from regard.io import check_writable, refuse_input
from regard.runs.sequence_run import SequenceRun
from regard.viz.attention_map import check_extension

Answers = list[Candidate] | None  # Answers to one text, best first, or None if the text has no answer
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


def restore_markup(run: SequenceRun, marked: Sequence[MarkedText], answers: Sequence[Answers]) -> list[Answers]:
    """Transfer the markup of each text to its answers. A text that contains only markup is its own answer."""
    alignments = iter(run.align(_make_pairs([text.text for text in marked], answers), unit=UNIT))
    results: list[Answers] = []
    source, target = run.task.vocabularies
    for text, ranked in zip(marked, answers, strict=True):
        if ranked is None and text.elements and is_blank(text.text):
            ranked = [blank_answer(transfer_markup(text, text.text, []))]
        elif ranked is not None:
            offsets = [(source.offsets(text.text), target.offsets(answer.text)) for answer in ranked]
            ranked = [
                dataclasses.replace(answer, text=transfer_markup(text, answer.text, next(alignments).links, spans))
                for answer, spans in zip(ranked, offsets, strict=True)
            ]
        results.append(ranked)
    return results


def _make_pairs(texts: Sequence[str], answers: Sequence[Answers]) -> list[tuple[str, str]]:
    pairs = zip(texts, answers, strict=True)
    return [(text, answer.text) for text, ranked in pairs for answer in ranked or ()]


@dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """Flags of a search."""

    beam: int | None = None
    """Beam width; 1 is greedy search. Default: 5 for runs on parallel text, else 1."""
    n_best: int = 1
    """Number of answers per text, at most the beam width. Each answer has its own line, best first."""
    temperature: float = 0.0
    """If above 0, sample each token from the model's distribution at this temperature instead of searching."""
    top_k: int = 0
    """With --temperature: sample only from this number of likeliest tokens; 0: all tokens."""
    top_p: float = 1.0
    """With --temperature: sample from the fewest tokens whose total probability is at least this value."""
    seed: int = 0
    """Random seed of sampling (0 or more). The answer depends only on the text and the seed, not on the other
    texts. Use different seeds to sample different answers."""
    scores: bool = False
    """Write each answer's log-probability (nats) and a tab before it."""


SEARCH = tuple(option.name for option in fields(SearchFlags) if option.name != "scores")
"""Names of the options of a search."""


@dataclass(frozen=True, kw_only=True)
class ConstraintFlags:
    """Constraints on the answers."""

    prefix: str | None = None
    """Text with which each answer begins. It may end within a word, and --no_repeat_ngram does not limit it."""
    prefixes: Path | None = None
    """File with the prefix of each answer, one per line of the input. A blank line is no prefix."""
    min_length: int = 0
    """Minimum length of an answer in tokens."""
    max_length: int | None = None
    """Maximum length of an answer in tokens. Default: twice the length of its source, plus 50."""
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
        glossary = {} if self.glossary is None else parse_glossary(read_lines(self.glossary), str(self.glossary))
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
        same = vars(self).keys() & {option.name for option in fields(Controls)} - {"prefix", "glossary"}
        options = {name: getattr(self, name) for name in same}
        return Controls(prefix=self.prefix or "", terms=self.term, glossary=glossary, **options)

    def read_prefixes(self, texts: Path | None) -> Iterator[str] | None:
        """Return the lines of `prefixes`, and report how many of them are blank. None without such a file.

        Raises `InputError` if the file `texts` has another number of lines. Standard input and pipes are counted
        as they are read.
        """
        if self.prefixes is None:
            return None
        lines = read_lines(self.prefixes)
        if texts is not None and texts.is_file() and (count := file_digest(texts).lines) != len(lines):
            raise InputError(
                f"{str(self.prefixes)!r} has {plural(len(lines), 'line')}, but {str(texts)!r} has {count:,}: "
                "give one prefix for each line of the input; a blank line is no prefix"
            )
        if blank := sum(map(is_blank, lines)):
            print_message(f"blank lines of {str(self.prefixes)!r}: {blank}; their answers have no prefix")
        return iter(lines)


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


# The doubt of translations in the output of `regard translate`.

NO_WARNING = "-"


@dataclass(frozen=True, kw_only=True)
class DoubtFlags:
    """Doubt of the translations."""

    doubt: bool = False
    """Write before each translation its doubt (0 to 1) and the reason for a warning (or -), with tabs.
    Calibrate the run first with `regard trust`."""
    doubt_file: Path | None = None
    """Write the doubts to this file: .html (the most doubtful first, with their attention), .json or .tsv."""

    def check(self, n_best: int, inputs: Sequence[Path | None], argv: list[str]) -> None:
        """Raise `InputError` for flags that exclude each other, and for an output file that is an input."""
        if n_best > 1 and self.wanted:
            raise InputError("--doubt judges one answer per text: leave out --n_best")
        if self.doubt_file is not None:
            if not self.doubt and take_flags(argv, ["doubt"])[0]:
                raise InputError("--doubt_file writes doubts, which --no_doubt rules out: leave out one of them")
            regard.check_doubt_file(self.doubt_file)
            check_writable(self.doubt_file)
            refuse_input(self.doubt_file, inputs)

    @property
    def wanted(self) -> bool:
        return self.doubt or self.doubt_file is not None


class DoubtOutput:
    """Measures the doubts of answers as they are written, and writes them to a file at the end."""

    def __init__(self, run: SequenceRun, flags: DoubtFlags) -> None:
        self.flags = flags
        self.doubter = regard.Doubter(run) if flags.wanted else None
        self.doubts: list[regard.Doubt | None] = []

    def prefixes(self, texts: Sequence[str | None], answers: Sequence[Answers]) -> list[str]:
        """Return what precedes each answer in the output: its doubt, or nothing."""
        if self.doubter is None:
            return [""] * len(answers)
        # A text without an answer counts as blank, which has no doubt.
        pairs = [(text or "", ranked[0].text if ranked else "") for text, ranked in zip(texts, answers, strict=True)]
        doubts = self.doubter.measure(pairs, traces=[ranked[0].trace if ranked else None for ranked in answers])
        self.doubts += doubts
        if not self.flags.doubt:
            return [""] * len(answers)
        return [
            "" if doubt is None else f"{doubt.doubt:.4f}\t{doubt.reason if doubt.warned else NO_WARNING}\t"
            for doubt in doubts
        ]

    def finish(self) -> None:
        """Write the file, and print how many translations have a warning."""
        if self.doubter is None:
            return
        known = [doubt for doubt in self.doubts if doubt is not None]
        print_message(f"translations with a warning: {sum(doubt.warned for doubt in known)} of {len(known):,}")
        for note in (notes := self.doubter.notes()):
            print_message(note)
        if self.flags.doubt_file is not None:
            for path in regard.write_doubts(self.doubter.run, self.doubts, self.flags.doubt_file, notes):
                print_message(f"saved {path}")


SHOWN = 5  # Number of lines that a message names


@dataclass(frozen=True, kw_only=True)
class TranslateFlags(SearchFlags):
    """Answer texts with a trained run, one line per text, in order. The texts are TEXT, the lines of --input, or the
    lines of standard input. RUN: a task's name, or the folder of a run. A line that is blank or too long gives an empty
    line of output. Invalid UTF-8 and characters not seen in training are read as the unknown symbol. Long lines,
    unknown symbols and invalid UTF-8 give warnings with the line number on standard error."""

    input: Path | None = None
    """File of texts, one per line, in UTF-8. Default: standard input."""
    lenient: bool = False
    """Replace invalid UTF-8 and zero bytes by the unknown symbol, instead of stopping."""
    length_penalty: float | None = None
    """Exponent of the length penalty; 0 disables the penalty. Larger values favor longer answers. Default: 1
    for runs on parallel text, else 0."""
    align: bool = False
    """Write the word alignment after each answer, as ` ||| 0-0 1-2`: source and target words, counted from 0.
    The alignment uses the heads that `regard align` has chosen."""
    tags: bool = False
    """Read texts as markup, and transfer their tags (<b>, <a href="...">, <br/>) to the corresponding words of
    the answers."""
    batchsize: int = 64
    """Number of texts per batch."""
    plot: str | None = None
    """Draw the attention of the answer to TEXT, in the terminal and to this file (.png, .svg, .pdf or .html).
    Without a value: alignment.png in the run's folder. The file is opened if a display is available."""
    engine: EngineName = "auto"
    """Search engine. ctranslate2 gives the same answers faster for Transformers on text (needs the extra export), and
    stores a converted model in the run's folder. auto is ctranslate2 if it is available for the run, else regard."""
    precision: Precision = "float32"
    """Precision of the parameters in matrix products. int8 needs ctranslate2; it is faster and changes the
    output slightly."""
    words: bool = False
    """Draw whole words instead of subword tokens."""
    constraints: ConstraintFlags = field(default_factory=ConstraintFlags)
    doubts: DoubtFlags = field(default_factory=DoubtFlags)
    storage: RunFlags = field(default_factory=RunFlags)


def run_translate(argv: list[str]) -> None:
    [name, *texts], flags = read_command(
        TranslateFlags, argv, "regard translate RUN [TEXT]", example="dates", bare="--plot"
    )
    text = texts[0] if texts else None
    _check_together(text, flags)
    run = flags.storage.load_translator(name)
    keep_memory()
    flags.doubts.check(flags.n_best, [flags.input, flags.constraints.prefixes, flags.constraints.glossary], argv)
    doubts = DoubtOutput(run, flags.doubts)
    if text is not None:
        plot = None if flags.plot is None else Path(flags.plot or run.folder / "alignment.png")
        if plot is not None:
            check_extension(plot)
            check_writable(plot)
            # Only the search of Regard's own engine returns attention weights.
            if flags.engine == "ctranslate2":
                raise InputError("--plot needs the engine regard: leave out --plot or --engine ctranslate2")
            if flags.engine == "auto" and flags.precision == "float32" and run.engines.runs_in_ctranslate2:
                print_message("using the engine regard, because --plot needs attention weights")
            flags = dataclasses.replace(flags, engine="regard")
        marked = read_markup(text, "the text") if flags.tags else MarkedText(text)
        text = marked.text
        if plot is not None and is_blank(text):
            raise InputError("the text is blank, so the answer is empty, and there is nothing to draw")
        options = _search_options(run, flags)
        # A blank text is also searched, because the search checks the options.
        found = run.search([text], **options)
        answers: list[Answers] = [None] if is_blank(text) else [*found]
        doubt_prefixes = doubts.prefixes([text], answers)
        _write(_add_alignment(run, [marked], answers, flags), doubt_prefixes, flags)
        warn_missing_terms(run, options["controls"], text, answers[0], "the text")
        _warn_cut([(1, answers[0])], "")
        if plot is not None and answers[0]:
            attention = run.attend(text, answer=answers[0][0])
            save_and_print(attention.words() if flags.words else attention, plot)
        if flags.align or flags.tags or flags.constraints.replace_unknown:
            warn_unchosen_heads(run)
        if note := run.unseen_length(text):
            print_message(f"training {note}: expect errors")
        _warn_unknown(run, text, "the text")  # last: a failed write is reported without other messages
        doubts.finish()
        return
    options = _search_options(run, flags)
    run.search([], **options)  # checks the options before lines are read
    prefixes = flags.constraints.read_prefixes(flags.input)
    with open_lines(flags.input, lenient=flags.lenient) as file:
        _translate_lines(run, file, options, prefixes, doubts, flags)
    doubts.finish()


def _check_together(text: str | None, flags: TranslateFlags) -> None:
    if flags.align and flags.tags:
        raise InputError("--align numbers words without tags: leave out --align or --tags")
    if flags.words and flags.plot is None:
        raise InputError("--words changes the drawing of --plot: give --plot, or leave out --words")
    if text is None and flags.plot is not None:
        raise InputError("--plot draws one text: give the text after the run, as in `regard translate dates 'Mai 3'`")
    if text is not None and flags.constraints.prefixes is not None:
        raise InputError("--prefixes is for the lines of a file: give --prefix for one text")
    if text is not None and flags.input is not None:
        raise InputError(f"text {text!r} and --input exclude each other: leave out one of them")
    if text is not None and flags.lenient:
        raise InputError("--lenient is for the lines of a file: leave it out for one text")


def _search_options(run: SequenceRun, flags: TranslateFlags) -> dict[str, Any]:
    """Return the options of `SequenceRun.search`, and load the other runs of the ensemble."""
    check_length_penalty(run, flags.length_penalty, flags.beam, flags.temperature)
    controls = flags.constraints.controls(run)
    others = [flags.storage.load_translator(name) for name in flags.constraints.ensemble]
    folders = {other.folder.resolve() for other in (run, *others)}
    if len(folders) <= len(others):
        raise InputError("--ensemble names a run twice, or RUN itself: name only other runs")
    return {
        **{name: getattr(flags, name) for name in (*SEARCH, "length_penalty", "batchsize", "engine", "precision")},
        "scored": flags.scores,
        # Constrained answers have no traces.
        "traced": flags.doubts.wanted and flags.engine != "ctranslate2" and flags.constraints == ConstraintFlags(),
        "controls": controls,
        "ensemble": others,
    }


def _translate_lines(
    run: SequenceRun,
    file: BinaryIO,
    options: dict[str, Any],
    prefixes: Iterator[str] | None,
    doubts: DoubtOutput,
    flags: TranslateFlags,
) -> None:
    unknown, best = UnknownCount(), list[tuple[int, Answers]]()
    for lines in numbered_chunks(file):
        marked, texts = [], []
        for number, line in lines:
            read = read_line(line, number)
            marked.append(read_markup(read, f"line {number}") if flags.tags else MarkedText(read))
            texts.append(_check_text(run, marked[-1].text, number, unknown))
        if prefixes is not None:
            begins = list(islice(prefixes, len(texts)))
            if len(begins) < len(texts):
                raise InputError(f"{str(flags.constraints.prefixes)!r} has fewer lines than the input: add lines")
            wanted = [begin for begin, text in zip(begins, texts, strict=True) if text is not None]
            options["controls"] = dataclasses.replace(options["controls"], prefix=wanted)
        candidates = iter(run.search([text for text in texts if text is not None], **options))
        answers = [next(candidates) if text is not None else None for text in texts]
        for (number, _), text, ranked in zip(lines, texts, answers, strict=True):
            warn_missing_terms(run, options["controls"], text or "", ranked, f"line {number}")
            if ranked and (not ranked[0].finished or is_blank(ranked[0].text)):
                best.append((number, ranked))
        doubt_prefixes = doubts.prefixes(texts, answers)
        _write(_add_alignment(run, marked, answers, flags), doubt_prefixes, flags)
    _warn_cut(best, "line")
    if prefixes is not None and next(prefixes, None) is not None:
        raise InputError(f"{str(flags.constraints.prefixes)!r} has more lines than the input: remove lines")
    if flags.align or flags.tags or flags.constraints.replace_unknown:
        warn_unchosen_heads(run)
    if warning := unknown.warning("the input"):
        print_message(f"warning: {warning}")


def _add_alignment(
    run: SequenceRun, marked: Sequence[MarkedText], answers: Sequence[Answers], flags: TranslateFlags
) -> Sequence[Answers]:
    """Return the answers with the markup, or the word alignment with the text, that the flags request."""
    if flags.tags:
        return restore_markup(run, marked, answers)
    if not flags.align:
        return answers
    alignments = iter(run.align(_make_pairs([text.text for text in marked], answers)))
    return [
        ranked
        and [dataclasses.replace(answer, text=f"{answer.text}{SEPARATOR}{next(alignments).moses}") for answer in ranked]
        for ranked in answers
    ]


def _check_text(run: SequenceRun, text: str, number: int, unknown: UnknownCount) -> str | None:
    """Return the text of a line, or None if it is blank or too long. Print warnings."""
    if is_blank(text):
        return None
    if (reason := run.too_long(text)) is not None:
        print_message(f"line {number} {reason}: its answer is empty")
        return None
    if note := run.unseen_length(text):
        print_message(f"line {number} is longer than the training data: the model {note}")
    if number == 1 and "\t" in text:
        print_message("line 1 has a tab: give only sources, such as the output of `cut -f1 PAIRS`")
    unknown.add(run.task.source_vocabulary.encode(text))
    _warn_unknown(run, text, f"line {number}")
    return text


def _warn_cut(answers: Sequence[tuple[int, Answers]], place: str) -> None:
    """Print the number of best answers that were cut at the length limit, and of those that are empty, with the
    first numbers, if they are of a `place`."""
    cut = [number for number, ranked in answers if ranked and not ranked[0].finished]
    empty = [number for number, ranked in answers if ranked and ranked[0].finished and is_blank(ranked[0].text)]
    for numbers, problem in ((cut, "cut at the length limit (see --max_length)"), (empty, "empty")):
        if numbers:
            first = ", ".join(map(str, numbers[:SHOWN])) + ", ..." * (len(numbers) > SHOWN)
            where = f", on {place}{'s' * (len(numbers) > 1)} {first}" if place else ""
            print_message(f"{plural(len(numbers), 'answer')} {problem}{where}")


def _warn_unknown(run: SequenceRun, text: str, name: str) -> None:
    vocabulary = run.task.source_vocabulary
    if unknown := vocabulary.unknown(text):
        count = UnknownCount()
        count.add(vocabulary.encode(text))
        share = f" ({count.share:.0%} of it)" if count.share > WARNING_SHARE else ""
        print_message(f"{name} has {vocabulary.unit} not seen in training{share}: {' '.join(map(repr, unknown))}")


def _write(answers: Sequence[Answers], prefixes: Sequence[str], flags: TranslateFlags) -> None:
    """Write `n_best` lines per text, each after its prefix; lines without an answer are empty."""
    output = answer_output()
    for ranked, before in zip(answers, prefixes, strict=True):
        for rank in range(flags.n_best):
            answer = ranked[rank] if ranked is not None and rank < len(ranked) else None
            prefix = before
            prefix += f"{answer.log_probability:.4f}\t" if flags.scores and answer is not None else ""
            output.write(f"{prefix}{'' if answer is None else answer.text}\n")
    output.flush()


@dataclass(frozen=True, kw_only=True)
class GenerateFlags(SearchFlags):
    """Continue a prompt with the language model of a run. PROMPT has the form of an input of the task; see
    `regard tasks`. RUN: a task's name, or the folder of a run."""

    input: Path | None = None
    """File of prompts, one per line, instead of PROMPT."""
    new: int | None = None
    """Number of tokens to generate. Beyond the length of its training texts, a model of a text reads only the last half
    of it. Default: 200 of a text; else, and with --beam, 20, or fewer if the model has fewer positions left."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_generate(argv: list[str]) -> None:
    [name, *prompts], flags = read_command(GenerateFlags, argv, "regard generate RUN [PROMPT]", example="induction")
    if bool(prompts) == (flags.input is not None):
        raise InputError(f"give a prompt, or a file of prompts with --input: `regard generate {name} PROMPT`")
    loaded: Any = flags.storage.load(name)
    if loaded.task.answers != "tokens":
        raise InputError(f"run {name!r} is not a language model: try `regard test {name}`")
    keep_memory()
    if flags.input is not None:
        prompts = read_lines(flags.input)
        for number, prompt in enumerate(prompts, start=1):
            try:
                loaded.check(prompt)
            except InputError as error:
                raise InputError(f"line {number} of {str(flags.input)!r}: {error}") from None
    beam = 1 if flags.beam is None else flags.beam
    options = {name: getattr(flags, name) for name in SEARCH} | {"beam": beam, "new": flags.new}
    output = answer_output()
    for prompt, ranked in zip(prompts, loaded.generate(prompts, **options), strict=True):
        for best in ranked:
            score = f"{best.log_probability:.4f}\t" if flags.scores else ""
            output.write(f"{score}{prompt}{best.text}\n")
    output.flush()


@dataclass(frozen=True, kw_only=True)
class ScoreFlags:
    """Compute the log-probability (nats) of each target given its source. Each line of input gives one line
    of output, in order: the log-probability, a tab, and the mean log-probability per token. Input lines have
    the form source, tab, target, and come from --input or standard input. A line that cannot be scored gives
    nan, with a warning on standard error."""

    input: Path | None = None
    """File of pairs, one per line, source and target separated by a tab, in UTF-8. Default: standard input."""
    lenient: bool = False
    """Replace invalid UTF-8 and zero bytes by the unknown symbol, instead of stopping."""
    batchsize: int = 64
    """Number of pairs per batch."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_score(argv: list[str]) -> None:
    [name], flags = read_command(ScoreFlags, argv, "regard score RUN", example="translation")
    run = flags.storage.load_translator(name)
    run.score([], batchsize=flags.batchsize)  # checks the option before lines are read
    unknown_source, unknown_target = UnknownCount(), UnknownCount()
    with open_lines(flags.input, lenient=flags.lenient) as file:
        for chunk in numbered_chunks(file):
            pairs = [_read_pair(run, line, number) for number, line in chunk]
            for source, target in filter(None, pairs):
                unknown_source.add(run.task.source_vocabulary.encode(source))
                unknown_target.add(run.task.target_vocabulary.encode(target))
            scores = iter(run.score([pair for pair in pairs if pair is not None], batchsize=flags.batchsize))
            for pair in pairs:
                score = None if pair is None else next(scores)
                total, mean = (math.nan, math.nan) if score is None else (score.log_probability, score.per_token)
                sys.stdout.write(f"{total:.4f}\t{mean:.4f}\n")
            sys.stdout.flush()
    for side, count in (("sources", unknown_source), ("targets", unknown_target)):
        if warning := count.warning(f"the {side}"):
            print_message(f"warning: {warning}")


def _read_pair(run: SequenceRun, line: bytes, number: int) -> tuple[str, str] | None:
    """Return the source and target of a line, or print a warning and return None if the line cannot be scored."""
    source, tab, target = read_line(line, number).partition("\t")
    if not tab:
        print_message(f"line {number} has no tab between source and target")
        return None
    if (reason := run.too_long(source)) is not None:
        print_message(f"line {number} {reason}")
        return None
    if is_blank(source):
        print_message(f"line {number} has a blank source, whose answer is always empty: the pair has no score")
        return None
    if is_blank(target):
        print_message(f"line {number} has a blank target: the pair gets the score of an empty answer")
    return source, target
