"""`regard test TASK`: test a trained model, and see what it attends to."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import runs
from regard.cli.parsing import (
    contradiction,
    first_word,
    parse,
    take_flag,
    take_flags,
    wants_help,
    with_empty_value,
)
from regard.cli.screen import open_on_screen
from regard.cli.terminal import print_table
from regard.cli.train import chosen_model, parse_config
from regard.cli.words import say
from regard.errors import InputError
from regard.fast.memory import keep_memory
from regard.io import check_writable, write_file, write_json
from regard.result import Result
from regard.runs import SAVEPATH, load
from regard.training import changed
from regard.viz import check_ending
from regard.viz.endings import PAGE

if TYPE_CHECKING:
    from regard.runs import AnswerRun, AnyRun, PairRun, TranslationRun


PROG = "regard test"
DESCRIPTION = (
    "Test a trained run: exact match, relevance of its attention, and one sample; BLEU and chrF of translations. "
    "RUN: a task's name, or a run's folder."
)


@dataclass(frozen=True, kw_only=True)
class TestFlags:
    """All flags of the command. The model and the task are the run's own."""

    input: str | None = None
    """Sequence to show, such as BCCCBAABACCCA; in the primer's tasks _ is the null character. None: draw one."""
    sample_len: int | None = None
    """Letters in each sample, 1 to max_len. None: as in training."""
    signal: str | None = None
    """Letter of the signal in each sample (or one letter for each signal). None: random, or none."""
    samples: int | None = None
    """Fresh samples to test on. None: 10,000, or 2,000 from sequence to sequence."""
    seed: int = 0
    """Random seed of the samples (0 or more)."""
    plot: str | None = None
    """Write the heatmap to this file: .png, .svg or .pdf for a picture, .html for a page, which plays back how
    attention formed if the run has snapshots. Without a name: attention.png in the run's folder. It is opened
    where there is a screen."""
    json: Path | None = None
    """File that the report is written to, as JSON."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


@dataclass(frozen=True, kw_only=True)
class TranslationTestFlags:
    """All flags of the command for a run on parallel text."""

    data: tuple[str, ...] = ()
    """Text to test on: a source and a target file, or one of tab-separated pairs. None: the run's test text."""
    beam: int = field(default_factory=lambda: runs.TranslationRun.usual_beam)
    """Prefixes kept side by side; 1 is greedy search."""
    length_penalty: float = field(default_factory=lambda: runs.TranslationRun.usual_length_penalty)
    """Exponent of the length penalty; 0 for none, above it longer answers are preferred."""
    batchsize: int = 64
    """Sentences that go through the model at once."""
    bleu_tokenize: str | None = None
    """sacrebleu's tokenizer that BLEU is worked out with: 13a, intl, zh, char, none, ja-mecab or ko-mecab. None:
    that of the run's validation, or else what fits the script of the references."""
    lenient: bool = False
    """Leave out the broken lines of files that have not as many lines, or are not UTF-8, instead of stopping."""
    output: Path | None = None
    """File that the translations are written to, one a line, each on the line of its source."""
    json: Path | None = None
    """File that the report is written to, as JSON."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Test as `argv` asks and print the report."""
    if wants_help(argv[:1]):
        parse(TestFlags(), argv, prog=f"{PROG} RUN", description=DESCRIPTION)
    name, argv = first_word(argv, what="run", prog=PROG)
    if wants_help(argv):
        flags = TranslationTestFlags() if name == "translation" else TestFlags()
        parse(flags, argv, prog=f"{PROG} {name}", description=DESCRIPTION)
    folders, _ = take_flag(argv, "--savepath")
    said = {each.replace("-", "_").removesuffix("=True") for each in argv}
    tested: Any = load(
        name,
        savepath=folders[-1] if folders else SAVEPATH,
        trust_code="__trust_code" in said,
        trust_edited="__trust_edited" in said,
    )
    argv = _without_its_own(tested, argv, TestFlags if tested.task.draws else TranslationTestFlags)
    (_test_task if tested.task.draws else _test_translation)(tested, argv, name)


def _without_its_own(run: AnyRun, argv: list[str], flags: type) -> list[str]:
    """Leave out flags of the training, which the primer's scripts want said again: they can only agree.

    Raises `InputError` where the run was trained with others.
    """
    asked = {each.name for each in dataclasses.fields(flags)}
    said, left = take_flags(argv, {each for each in run.config.flags() if each not in asked})
    try:
        chosen, _ = parse_config(run.config, said, task=run.name)
    except InputError:  # a value that no model can have
        error = contradiction(str(run.folder), run.name, run.config.flags(), said)
        if error is not None:
            raise error from None
        raise
    for flag, value in {**changed(chosen, run.config), **chosen_model(said)}.items():
        if value != (trained := run.config.flags().get(flag)):
            raise InputError(
                f"run {str(run.folder)!r} was trained with {flag} {trained}, not {value}: train another one with "
                f"that, as in `{' '.join(['regard train', run.name, *said])} --savepath other`, and test it there"
            )
    return left


def _test_translation(run: TranslationRun, argv: list[str], name: str) -> None:
    flags = parse(TranslationTestFlags(), argv, prog=f"{PROG} {name}", description=DESCRIPTION)
    for path in (flags.output, flags.json):
        if path is not None:
            check_writable(path)
    keep_memory()
    report = run.test(
        flags.data or None,
        beam=flags.beam,
        length_penalty=flags.length_penalty,
        batchsize=flags.batchsize,
        bleu_tokenize=flags.bleu_tokenize,
        lenient=flags.lenient,
    )
    for warning in report.warnings:
        say(f"warning: {warning}")
    if flags.output is not None:
        write_file(flags.output, report.output.encode())
    _write_json(flags.json, report)
    sys.stdout.write(f"{run.folder}: {run.task.name}, after {run.step} steps\n{report}\n")


def _test_task(run: AnswerRun | PairRun, argv: list[str], name: str) -> None:
    flags = parse(TestFlags(), with_empty_value(argv, "--plot"), prog=f"{PROG} {name}", description=DESCRIPTION)
    plot = None if flags.plot is None else Path(flags.plot or run.folder / "attention.png")
    if plot is not None:
        check_ending(plot)
    for path in (plot, flags.json):
        if path is not None:
            check_writable(path)
    drawn: dict[str, Any] = {"sample_len": flags.sample_len, "seed": flags.seed}
    if flags.signal is not None:
        if "signal" not in run.drawn_by:
            raise InputError(f"signal {flags.signal!r} does not fit: {run.name} has no signals")
        drawn["signal"] = flags.signal
    attention = run.attend(flags.input) if flags.input is not None else run.attend(**drawn)
    if flags.samples is not None:
        drawn["samples"] = flags.samples
    report = run.test(**drawn)
    _write_json(flags.json, report)
    steps = f"{run.step} of {run.config.training.steps} steps"
    sys.stdout.write(f"{run.folder}: {run.task.name}, {steps}\n{report}\n\n{attention}\n\n")
    print_table(attention.table())
    if plot is not None:
        if plot.suffix.lower() == PAGE and run.has_snapshots:
            from regard.viz.page import write_page

            write_page(plot, [run.with_sums(attention)], playback=run.playback(attention.input).data())
        elif plot.suffix.lower() == PAGE:
            run.with_sums(attention).to_html(plot)
        else:
            attention.save(plot)
        sys.stdout.write(f"Saved {plot}\n")
        open_on_screen(plot)


def _write_json(path: Path | None, report: Result) -> None:
    if path is not None:
        write_json(path, report.json(), indent=1)
