"""`regard test TASK`: test a trained model, and show its attention on one input."""

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
from regard.cli.train import model_choice, parse_config
from regard.cli.words import say
from regard.errors import InputError
from regard.io import check_writable, write_file, write_json
from regard.memory import keep_memory
from regard.result import Result
from regard.runs import SAVEPATH, load
from regard.training import changed_flags
from regard.viz import check_extension
from regard.viz.attention_map import PAGE

if TYPE_CHECKING:
    from regard.runs import AnswerRun, AnyRun, PairRun, TranslationRun


PROG = "regard test"
DESCRIPTION = (
    "Test a trained run: exact match, relevance of its attention, and one sample; BLEU and chrF of translations. "
    "RUN: a task's name, or a run's folder."
)


@dataclass(frozen=True, kw_only=True)
class TestFlags:
    """Flags of the command. Model and task are those of the run."""

    input: str | None = None
    """Input to show, such as BCCCBAABACCCA; in the primer's tasks, _ is the null character. None: a drawn one."""
    sample_len: int | None = None
    """Letters in each sample, 1 to max_len. None: as in training."""
    signal: str | None = None
    """Signal of each sample: one letter, or a letter per signal. None: random signals."""
    samples: int | None = None
    """Number of fresh samples. None: 10,000, or 2,000 for tasks from sequence to sequence."""
    seed: int = 0
    """Random seed of the samples (0 or more)."""
    plot: str | None = None
    """File for the heatmap: .png, .svg or .pdf for a picture, .html for a page, which also plays back the
    training if the run has snapshots. Without a name: attention.png in the run's folder. The file is opened if
    there is a screen."""
    json: Path | None = None
    """File for the report as JSON."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the custom code that the run names (task, model, score), although you have not trained with it here."""
    trust_edited: bool = False
    """Use a run whose files were edited or mixed with another run's, and report the differences."""


@dataclass(frozen=True, kw_only=True)
class TranslationTestFlags:
    """Flags of the command for a run on parallel text."""

    data: tuple[str, ...] = ()
    """Text to test on: a source and a target file, or a file of tab-separated pairs. None: the run's test
    text."""
    beam: int = field(default_factory=lambda: runs.TranslationRun.usual_beam)
    """Beam size; 1 is greedy search."""
    length_penalty: float = field(default_factory=lambda: runs.TranslationRun.usual_length_penalty)
    """Exponent of the length penalty. 0: no penalty; above 0: longer answers are preferred."""
    batchsize: int = 64
    """Sentences per batch."""
    bleu_tokenize: str | None = None
    """sacrebleu's tokenizer for BLEU: 13a, intl, zh, char, none, ja-mecab or ko-mecab. None: the tokenizer of the
    run's validation, or else the one that fits the script of the references."""
    lenient: bool = False
    """Leave out lines without a partner and lines that are not UTF-8, instead of stopping."""
    output: Path | None = None
    """File for the translations, each on the line of its source."""
    json: Path | None = None
    """File for the report as JSON."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the custom code that the run names (task, model, score), although you have not trained with it here."""
    trust_edited: bool = False
    """Use a run whose files were edited or mixed with another run's, and report the differences."""


def run(argv: list[str]) -> None:
    """Test with the flags in `argv`, and print the report."""
    if wants_help(argv[:1]):
        parse(TestFlags(), argv, prog=f"{PROG} RUN", description=DESCRIPTION)
    name, argv = first_word(argv, what="run", prog=PROG)
    if wants_help(argv):
        flags = TranslationTestFlags() if name == "translation" else TestFlags()
        parse(flags, argv, prog=f"{PROG} {name}", description=DESCRIPTION)
    folders, _ = take_flag(argv, "--savepath")
    words = {word.replace("-", "_").removesuffix("=True") for word in argv}
    tested: Any = load(
        name,
        savepath=folders[-1] if folders else SAVEPATH,
        trust_code="__trust_code" in words,
        trust_edited="__trust_edited" in words,
    )
    argv = _without_run_flags(tested, argv, TestFlags if tested.task.draws else TranslationTestFlags)
    (_test_task if tested.task.draws else _test_translation)(tested, argv, name)


def _without_run_flags(run: AnyRun, argv: list[str], flags: type) -> list[str]:
    """Return `argv` without flags of the training, which the primer's scripts repeat.

    Raises `InputError` for a value that differs from the run's.
    """
    own = {option.name for option in dataclasses.fields(flags)}
    repeated, left = take_flags(argv, {name for name in run.config.flags() if name not in own})
    try:
        config, _ = parse_config(run.config, repeated, task=run.name)
    except InputError:  # a value that is not valid for any model
        error = contradiction(str(run.folder), run.name, run.config.flags(), repeated)
        if error is not None:
            raise error from None
        raise
    for flag, value in {**changed_flags(config, run.config), **model_choice(repeated)}.items():
        if value != (trained := run.config.flags().get(flag)):
            raise InputError(
                f"run {str(run.folder)!r} was trained with {flag} {trained}, not {value}: train another one with "
                f"that, as in `{' '.join(['regard train', run.name, *repeated])} --savepath other`, and test it "
                f"there"
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
        check_extension(plot)
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
