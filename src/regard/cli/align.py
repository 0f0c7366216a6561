"""`regard align RUN SOURCE TARGET`: align words by attention."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from regard.cli.lines import numbered_chunks, open_lines, read_line
from regard.cli.parsing import read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import answer_output, print_message, print_table, save_and_print
from regard.cli.translate import SEPARATOR, warn_unchosen_heads
from regard.data.parallel import check_files
from regard.data.tokenization import Unit
from regard.data.word_alignment import Link, Symmetrization, WordAlignment, check_eflomal, read_links
from regard.errors import InputError, check_range, plural
from regard.fast.memory import keep_memory
from regard.interpret.alignment import By
from regard.io import check_writable
from regard.runs.sequence_run import SequenceRun
from regard.viz.attention_map import check_extension

SAMPLES = 500  # Default number of pairs to choose heads on
STORED = "Stored in {}: `regard align`, `regard translate --align` and the explorer now use these heads\n"
REPLACED = "These heads replace the earlier choice, {}; --no-keep evaluates without storing\n"


@dataclass(frozen=True, kw_only=True)
class AlignFlags:
    """Align the words of sentence pairs by attention, and write one line of links per pair. RUN: a task's name, or the
    folder of a run. SOURCE and TARGET: files with one sentence per line, or - for standard input. Without TARGET, each
    line of SOURCE is a tab-separated pair or a single sentence. Single sentences are translated first, and the
    translation precedes its links in the output. With --links or --silver, alignment heads are chosen on one half of
    the pairs, evaluated on the other half, and stored with the run. Without SOURCE, the pairs come from the run's
    validation text, or the task generates them with their true links."""

    links: Path | None = None
    """File of true links, used to choose alignment heads: in Moses format (0-0 1-2, with 1?2 for a possible
    link) or in NAACL format (sentence, source word and target word, counted from 1, and S or P)."""
    silver: bool = False
    """Choose alignment heads by the links of eflomal (extra align), which also learns from the run's training
    text. With --links: also evaluate the links of eflomal."""
    keep: bool = True
    """Store the chosen heads with the run; --no-keep: only evaluate them."""
    samples: int | None = None
    """Maximum number of pairs to choose and evaluate heads on; later pairs are ignored. Default: 500."""
    by: By | None = None
    """Heads used for the alignment: the best head, the best set of heads, or all heads. Default: the choice
    with the lowest error rate."""
    unit: Unit | None = None
    """Unit of alignment: words (separated by whitespace), parts (words with punctuation separated), or pieces
    (tokens of the vocabulary). In text without spaces, such as Chinese or Thai, each token of the vocabulary is a
    word. Default: words, or characters for tasks on characters."""
    reverse: str | None = None
    """Run that translates in the opposite direction. The links of the two runs are merged."""
    symmetrise: Symmetrization | None = None
    """Method of merging with --reverse: the product of the weights of both directions, or a combination of
    their links. Default: product."""
    format: Literal["moses", "json"] = "moses"
    """Output format. moses: 0-0 1-2, source and target words counted from 0. json: one object per line, with
    words, links and weights."""
    lenient: bool = False
    """Accept invalid UTF-8, and stop at the end of the shorter file."""
    plot: Path | None = None
    """Draw the first pair to this file (.png, .svg, .pdf or .html) and in the terminal, and write no links."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_align(argv: list[str]) -> None:
    [name, *files], flags = read_command(AlignFlags, argv, "regard align RUN [SOURCE] [TARGET]", example="translation")
    source, target = [*files, None, None][:2]
    if flags.plot is not None:
        check_extension(flags.plot)
        check_writable(flags.plot)
    if source == target == "-":
        raise InputError("SOURCE and TARGET are both standard input: give one of them as a file")
    choosing = flags.links is not None or flags.silver or source is None
    _check_together(flags, choosing=choosing)
    run = flags.storage.load_translator(name)
    reverse = flags.storage.load_reverse(flags.reverse, run)
    keep_memory()
    if choosing:
        _choose(run, reverse, source, target, flags)
        return
    with ExitStack() as stack:
        _align_lines(run, reverse, _open(stack, source, target, lenient=flags.lenient), flags)


def _check_together(flags: AlignFlags, *, choosing: bool) -> None:
    if flags.samples is not None:
        check_range("samples", flags.samples, 1, 10**6)
    if not choosing and (flags.samples is not None or not flags.keep):
        name = "--no-keep" if flags.samples is None else "--samples"
        raise InputError(f"{name} is for choosing heads: give --links or --silver, or leave out {name}")
    if choosing and (flags.format == "json" or flags.by is not None):
        name = "--by" if flags.by is not None else "--format json"
        raise InputError(f"{name} is for aligning pairs, not for choosing heads: leave out {name}, or align later")
    if flags.plot is not None and (choosing or flags.format == "json"):
        conflict = "--format json" if flags.format == "json" else "choosing heads"
        raise InputError(f"--plot draws a pair and cannot be combined with {conflict}: leave out one of them")
    if flags.symmetrise is not None and flags.reverse is None:
        raise InputError("--symmetrise needs two directions: give the opposite run with --reverse")


def _open(stack: ExitStack, source: str | None, target: str | None, *, lenient: bool) -> list[BinaryIO]:
    names = [name for name in (source, target) if name is not None]
    if not lenient and len(names) == 2 and all(map(os.path.exists, names)):
        check_files(names)
    paths = [None if name == "-" else Path(name) for name in names]
    return [stack.enter_context(open_lines(path, lenient=lenient)) for path in paths]


def _choose(
    run: SequenceRun, reverse: SequenceRun | None, source: str | None, target: str | None, flags: AlignFlags
) -> None:
    samples = SAMPLES if flags.samples is None else flags.samples
    known: Sequence[WordAlignment]
    others: dict[str, Sequence[frozenset[Link]]] = {}
    if source is None:
        if flags.links is not None:
            raise InputError("--links needs the sentences that the links refer to: give SOURCE and TARGET")
        pairs, known = run.known_links(samples)
        against = "the task's own links"
        if not known and not flags.silver:
            raise InputError(f"task {run.name} has no true links: give SOURCE, TARGET and --links LINKS, or --silver")
    else:
        pairs, known, against = _read_pairs(source, target, flags), [], ""
    if flags.links is not None:
        known, against = read_links(flags.links, len(pairs)), f"the links of {str(flags.links)!r}"
        if bare := sum(not links.possible for links in known):
            print_message(f"{bare:,} of {plural(len(known), 'pair')} have no links: their words count as not aligned")
    given, pairs, known = len(pairs), pairs[:samples], known[:samples]
    if flags.silver:
        check_eflomal()
        print_message("aligning with eflomal, about one minute per 30,000 pairs")
        silver = run.silver_links(pairs)
        others = {"eflomal": silver} if known else {}
        if not known:
            known, against = [WordAlignment.of(pair_links) for pair_links in silver], "eflomal's links"
    before = run.kept_heads()
    choice = run.choose_alignment(
        pairs, known, against=against, reverse=reverse, others=others, unit=flags.unit, keep=flags.keep
    )
    if given > samples:
        print_message(f"the heads were chosen on the first {samples:,} of {given:,} pairs (--samples)")
    print_table(choice.table())
    if flags.keep:
        sys.stdout.write(STORED.format(run.folder / "alignment.json"))
        if before is not None and before.ways[before.best] != choice.ways[choice.best]:
            sys.stdout.write(REPLACED.format(before.ways[before.best]))


def _read_pairs(source: str, target: str | None, flags: AlignFlags) -> list[tuple[str, str]]:
    with ExitStack() as stack:
        files = _open(stack, source, target, lenient=flags.lenient)
        pairs = []
        for number, lines in _lines(files, lenient=flags.lenient):
            texts = _texts(lines, number)
            if len(texts) == 1:
                raise InputError(f"line {number} has no tab between source and target")
            pairs.append((texts[0], texts[1]))
    return pairs


def _lines(files: Sequence[BinaryIO], *, lenient: bool) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the lines of one file, or of two files in parallel, with their line number. If one of two files ends
    early, print a warning and stop if `lenient`, else raise `InputError`."""
    if len(files) == 1:
        for chunk in numbered_chunks(files[0]):
            yield from ((number, [line]) for number, line in chunk)
        return
    number = 0
    while True:
        number += 1
        lines = [file.readline() for file in files]
        if not any(lines):
            return
        if not all(lines):
            ended, going = ("SOURCE", "TARGET") if not lines[0] else ("TARGET", "SOURCE")
            mismatch = f"{ended} ends before line {number}, but {going} does not"
            if lenient:
                print_message(f"{mismatch}: the remaining lines are ignored")
                return
            raise InputError(
                f"{mismatch}: give files with the same number of lines, or ignore the remaining lines with --lenient"
            )
        yield number, lines


def _texts(lines: Sequence[bytes], number: int) -> list[str]:
    texts = [read_line(line, number) for line in lines]
    if len(texts) == 1 and "\t" in texts[0]:
        source, _, target = texts[0].partition("\t")
        return [source, target.partition("\t")[0]]
    return texts


def _align_lines(run: SequenceRun, reverse: SequenceRun | None, files: Sequence[BinaryIO], flags: AlignFlags) -> None:
    # Batches of sentences of similar length are faster. In a terminal, the user waits for the links of each line.
    size = 1 if files[0].isatty() else 512
    waiting: list[list[str] | None] = []
    for number, lines in _lines(files, lenient=flags.lenient):
        texts = _texts(lines, number)
        reason = run.too_long(texts[0]) or (run.too_long(texts[1], target=True) if len(texts) > 1 else None)
        if reason is not None:
            print_message(f"line {number} {reason}: its links are omitted")
        waiting.append(texts if reason is None else None)
        if len(waiting) == size or flags.plot is not None:
            _write(run, reverse, waiting, flags)
            waiting = []
            if flags.plot is not None:
                break
    else:
        if flags.plot is not None:
            raise InputError("the input has no pairs, so there is nothing to draw: give a pair")
    _write(run, reverse, waiting, flags)
    warn_unchosen_heads(run)  # last, so that warnings about single lines come first


def _write(run: SequenceRun, reverse: SequenceRun | None, lines: Sequence[list[str] | None], flags: AlignFlags) -> None:
    accepted = [texts for texts in lines if texts is not None]
    untranslated = [texts[0] for texts in accepted if len(texts) == 1]
    answers = iter(run.translate(untranslated))
    pairs = [(texts[0], texts[1] if len(texts) > 1 else next(answers)) for texts in accepted]
    method = flags.symmetrise or "product"
    alignments = iter(run.align(pairs, by=flags.by, unit=flags.unit, reverse=reverse, symmetrise=method))
    for texts in lines:
        pair = None if texts is None else next(alignments)
        if flags.plot is not None:
            if pair is None or not pair.source or not pair.target:
                raise InputError("the first pair is blank or too long to draw: put another pair first")
            save_and_print(run.map_of_links(pair), flags.plot)
            return
        if flags.format == "json":
            line = json.dumps({} if pair is None else pair.json(), ensure_ascii=False)
        elif pair is None:
            line = ""
        else:  # the target precedes the links if the command translated the source
            translated = pair.target and texts is not None and len(texts) == 1
            line = f"{' '.join(pair.target)}{SEPARATOR}{pair.moses}" if translated else pair.moses
        answer_output().write(f"{line}\n")
    answer_output().flush()
