"""`regard align RUN SOURCE TARGET`: which words of a target come from which words of its source."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from regard.cli.carrying import SEPARATOR, tell_heads
from regard.cli.lines import numbered_chunks, open_lines, read_line
from regard.cli.parsing import first_word, parse, take_text, wants_help
from regard.cli.screen import open_on_screen
from regard.cli.terminal import answer_output, print_table
from regard.cli.words import say
from regard.data.parallel import check_files
from regard.data.tokenization import Unit
from regard.data.word_alignment import Link, Symmetrization, WordAlignment, check_eflomal, read_links
from regard.errors import InputError, check_range
from regard.fast.memory import keep_memory
from regard.interpret import By
from regard.runs import SAVEPATH, LinkedPair, SequenceRun, load_translator
from regard.viz import check_ending

PROG = "regard align"
DESCRIPTION = (
    "Say which words of each target come from which words of its source, a line for each pair: by the heads "
    "that were chosen for that, or by all. RUN: a task's name, or a run's folder. SOURCE and TARGET: files of a "
    "sentence a line, or - for standard input. Without TARGET the lines of SOURCE are pairs with a tab between "
    "them, or sentences that are translated first; then the translation stands before its links. With --links or "
    "--silver, heads are chosen: on one half of the pairs, and how well they do is reported on the other; the "
    "choice is kept with the run. Without SOURCE, the pairs are the run's own validation text, or drawn with the "
    "links that the task knows."
)
REPORTED = "Kept in {}: `regard align`, `regard translate --align` and the explorer use it from now on\n"
REPLACED = "They replace {}, which were chosen before; --no-keep reports, and leaves the choice as it is\n"


@dataclass(frozen=True, kw_only=True)
class AlignFlags:
    """All flags of the command."""

    links: Path | None = None
    """Choose the heads by these links of the pairs: a file in Moses' format (0-0 1-2, 1?2 for a possible one) or
    NAACL's (sentence, source and target word from 1, S or P)."""
    silver: bool = False
    """Choose the heads by the links that eflomal finds (extra align), which learns from the run's training text
    as well. With --links: report eflomal's beside."""
    keep: bool = True
    """Keep the heads that are chosen with the run; --no-keep: only report."""
    samples: int = 500
    """Pairs that heads are chosen by and reported on, at most: the first ones."""
    by: By | None = None
    """Which of the chosen heads to align by: the best head, the best set of heads, or all heads. None: what had
    the lowest error rate."""
    unit: Unit | None = None
    """What is aligned: words between blanks, these with punctuation apart (parts), or the vocabulary's pieces.
    None: words; for tasks of characters, characters."""
    reverse: str | None = None
    """Run of the other direction, with whose links these are made one."""
    symmetrise: Symmetrization | None = None
    """How, with --reverse: from both directions' weights, multiplied (product); or from the links of each. None:
    product."""
    format: Literal["moses", "json"] = "moses"
    """moses: 0-0 1-2, source and target word from 0. json: an object a line, with words, links and weights."""
    lenient: bool = False
    """Read files that are not UTF-8, and stop at the end of the shorter one of two, instead of refusing them."""
    plot: Path | None = None
    """Draw the first pair into this file (.png, .svg, .pdf or .html), and on the terminal, instead."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Align, or choose heads, as `argv` asks."""
    if wants_help(argv[:1]):
        parse(AlignFlags(), argv, prog=f"{PROG} RUN [SOURCE] [TARGET]", description=DESCRIPTION)
    name, argv = first_word(argv, what="run", prog=PROG, example="translation")
    source, argv = take_text(argv, AlignFlags)
    target, argv = take_text(argv, AlignFlags)
    flags = parse(AlignFlags(), argv, prog=f"{PROG} {name} [SOURCE] [TARGET]", description=DESCRIPTION)
    if flags.plot is not None:
        check_ending(flags.plot)
    if source == target == "-":
        raise InputError("SOURCE and TARGET are both standard input: give one of them as a file")
    choosing = flags.links is not None or flags.silver or source is None
    _check_together(flags, choosing=choosing)
    run = load_translator(
        name, savepath=flags.savepath, trust_code=flags.trust_code, trust_edited=flags.trust_edited
    )
    reverse = None
    if flags.reverse is not None:
        reverse = load_translator(
            flags.reverse, savepath=flags.savepath, trust_code=flags.trust_code, trust_edited=flags.trust_edited
        )
        if reverse.name != run.name or reverse.folder.resolve() == run.folder.resolve():
            raise InputError(
                f"reverse {flags.reverse!r} is to be another run of task {run.name}, of the other direction"
            )
    keep_memory()
    if choosing:
        _choose(run, reverse, source, target, flags)
        return
    with ExitStack() as stack:
        files = _open(stack, source, target, lenient=flags.lenient)
        _align_lines(run, reverse, files, flags)


def _check_together(flags: AlignFlags, *, choosing: bool) -> None:
    """Raise `InputError` for flags of which one would have no effect."""
    check_range("samples", flags.samples, 1, 10**6)
    if flags.plot is not None and (choosing or flags.format == "json"):
        what = "--format json" if flags.format == "json" else "choosing heads"
        raise InputError(f"--plot draws a pair and goes not with {what}: leave out one of them")
    if flags.symmetrise is not None and flags.reverse is None:
        raise InputError("--symmetrise is for two directions: give a run of the other one by --reverse")


def _open(stack: ExitStack, source: str | None, target: str | None, *, lenient: bool) -> list[BinaryIO]:
    """Open one file, or two, which are to have as many lines."""
    names = [each for each in (source, target) if each is not None]
    if not lenient and len(names) == 2 and all(map(os.path.exists, names)):
        check_files(names)
    paths = [None if each == "-" else Path(each) for each in names]
    return [stack.enter_context(open_lines(each, lenient=lenient)) for each in paths]


def _choose(
    run: SequenceRun, reverse: SequenceRun | None, source: str | None, target: str | None, flags: AlignFlags
) -> None:
    """Choose heads, and say how well they do."""
    known: Sequence[WordAlignment]
    others: dict[str, Sequence[frozenset[Link]]] = {}
    if source is None:
        if flags.links is not None:
            raise InputError("--links are of no known text: give SOURCE and TARGET, whose links they are")
        pairs, known = run.known_links(flags.samples)
        against = "the links that the task knows"
        if not known and not flags.silver:
            raise InputError(f"{run.name} knows no links: give SOURCE, TARGET and --links LINKS, or --silver")
    else:
        pairs, known, against = _given(source, target, flags), [], ""
    if flags.links is not None:
        known, against = read_links(flags.links, len(pairs)), f"the links of {str(flags.links)!r}"
    pairs, known = pairs[: flags.samples], known[: flags.samples]
    if flags.silver:
        check_eflomal()
        say("eflomal is aligning, which takes a minute for 30,000 pairs")
        silver = run.silver_links(pairs)
        others = {"eflomal": silver} if known else {}
        if not known:
            known, against = [WordAlignment.of(each) for each in silver], "eflomal's links"
    before = run.kept_heads()
    choice = run.choose_alignment(
        pairs, known, against=against, reverse=reverse, others=others, unit=flags.unit, keep=flags.keep
    )
    print_table(choice.table())
    if flags.keep:
        sys.stdout.write(REPORTED.format(run.folder / "alignment.json"))
        if before is not None and before.ways[before.best] != choice.ways[choice.best]:
            sys.stdout.write(REPLACED.format(before.ways[before.best]))


def _given(source: str, target: str | None, flags: AlignFlags) -> list[tuple[str, str]]:
    with ExitStack() as stack:
        files = _open(stack, source, target, lenient=flags.lenient)
        pairs = []
        for number, lines in _lines(files, lenient=flags.lenient):
            texts = _texts(lines, number)
            if len(texts) == 1:
                raise InputError(f"line {number} has no tab: it is to separate source and target")
            pairs.append((texts[0], texts[1]))
    return pairs


def _lines(files: Sequence[BinaryIO], *, lenient: bool) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the lines of one file, or of two side by side, with their number; raises `InputError` where one of
    two ends before the other, or where `lenient` says so and stops."""
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
            told = f"{ended} ends before line {number}, {going} goes on"
            if lenient:
                say(f"{told}: what is left of it has no partner")
                return
            raise InputError(f"{told}: give as many lines of both, or stop there with --lenient")
        yield number, lines


def _texts(lines: Sequence[bytes], number: int) -> list[str]:
    texts = [read_line(line, number) for line in lines]
    if len(texts) == 1 and "\t" in texts[0]:
        source, _, target = texts[0].partition("\t")
        return [source, target.partition("\t")[0]]
    return texts


def _align_lines(
    run: SequenceRun, reverse: SequenceRun | None, files: Sequence[BinaryIO], flags: AlignFlags
) -> None:
    """Write the links of every line, in order, some lines at a time."""
    size = 1 if files[0].isatty() else 512
    waiting: list[list[str] | None] = []
    for number, lines in _lines(files, lenient=flags.lenient):
        waiting.append(_checked(run, _texts(lines, number), number))
        if len(waiting) == size or flags.plot is not None:
            _write(run, reverse, waiting, flags)
            waiting = []
            if flags.plot is not None:
                break
    _write(run, reverse, waiting, flags)
    tell_heads(run)  # once links stand: what cannot be aligned is told alone


def _checked(run: SequenceRun, texts: list[str], number: int) -> list[str] | None:
    """Return the texts of a line; None, and told, where they are too long."""
    reason = run.too_long(texts[0]) or (run.too_long(texts[1], target=True) if len(texts) > 1 else None)
    if reason is None:
        return texts
    say(f"line {number} {reason}: its links are left out")
    return None


def _write(
    run: SequenceRun, reverse: SequenceRun | None, lines: Sequence[list[str] | None], flags: AlignFlags
) -> None:
    known = [texts for texts in lines if texts is not None]
    alone = [texts[0] for texts in known if len(texts) == 1]
    answers = iter(run.translate(alone))
    pairs = [(texts[0], texts[1] if len(texts) > 1 else next(answers)) for texts in known]
    how = flags.symmetrise or "product"
    found = iter(run.align(pairs, by=flags.by, unit=flags.unit, reverse=reverse, symmetrise=how))
    for texts in lines:
        each = None if texts is None else next(found)
        if flags.plot is not None:
            if each is None or not each.source or not each.target:
                raise InputError("the first pair is blank, or too long to be drawn: give another")
            _draw(run, each, flags.plot)
            return
        translated = texts is not None and len(texts) == 1
        answer_output().write(f"{_told(each, flags, translated=translated)}\n")
    answer_output().flush()


def _told(found: LinkedPair | None, flags: AlignFlags, *, translated: bool) -> str:
    """Return the links of a pair, behind its target where nobody has that yet."""
    if flags.format == "moses":
        before = f"{' '.join(found.target)}{SEPARATOR}" if found and found.target and translated else ""
        return "" if found is None else f"{before}{found.moses}"
    told: dict[str, Any] = {} if found is None else found.json()
    return json.dumps(told, ensure_ascii=False)


def _draw(run: SequenceRun, found: LinkedPair, plot: Path) -> None:
    attention = run.map_of_links(found)
    attention.save(plot)
    print_table(attention.table())
    sys.stdout.write(f"Saved {plot}\n")
    open_on_screen(plot)
