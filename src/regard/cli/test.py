"""`regard test RUN`: test a trained model and show its attention."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.parsing import contradiction, first_word, read_command, take_flag, take_flags, wants_help
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import open_on_screen, print_message, print_table, say_saved
from regard.cli.translate import check_length_penalty
from regard.errors import InputError, RegardError
from regard.fast.memory import keep_memory
from regard.io import check_writable, refuse_input, write_file, write_json
from regard.runs.loading import SAVEPATH, load
from regard.training.run_folder import RunFolder
from regard.viz.attention_map import PAGE, check_extension
from regard.viz.terminal import describe_answer, describe_weights

if TYPE_CHECKING:
    from regard.runs.sequence_run import PairRun, TranslationRun
    from regard.runs.tensor_run import AnswerRun, LanguageRun


PROG = "regard test"


@dataclass(frozen=True, kw_only=True)
class TestFlags:
    """Test a trained run, and print the exact match, the fraction of attention on relevant inputs and one
    sample. For translation, print BLEU and chrF. RUN: a task's name, or the folder of a run."""

    input: str | None = None
    """Sequence to show, such as BCCCBAABACCCA; _ is the null character. Default: a random sample."""
    sample_len: int | None = None
    """Number of letters per sample, 1 to max_len. Default: as in training."""
    signal: str | None = None
    """Signal letter of all samples (or one letter per signal). Default: random signals."""
    samples: int | None = None
    """Number of new samples to test on. Default: 10,000; 2,000 for sequence-to-sequence tasks; 1,000 for
    language models."""
    seed: int = 0
    """Random seed of the samples that are tested and of the sample that is shown (0 or more). The seed of the
    training does not matter here."""
    plot: str | None = None
    """Write the heatmap to this file: .png, .svg or .pdf for a picture, .html for a page. If the run has
    snapshots, the page replays how attention formed during training. Without a value: attention.png in the
    run's folder. The file is opened if a display is available."""
    weights: bool = False
    """Print all weights of the sample as numbers, too."""
    json: Path | None = None
    """Write the report to this JSON file."""
    storage: RunFlags = field(default_factory=RunFlags)


@dataclass(frozen=True, kw_only=True)
class TranslationTestFlags:
    """Test a trained translator, and print BLEU and chrF. RUN: a task's name, or the folder of a run."""

    data: tuple[str, ...] = ()
    """Text to test on: a source and a target file, or one file of tab-separated pairs. Default: the run's test text."""
    beam: int = 5
    """Beam width; 1 is greedy search."""
    length_penalty: float | None = None
    """Exponent of the length penalty; 0 disables the penalty. Larger values favor longer answers. Default: 1."""
    batchsize: int = 64
    """Number of sentences per batch."""
    bleu_tokenize: str | None = None
    """sacrebleu tokenizer for BLEU: 13a, intl, zh, char, none, ja-mecab or ko-mecab. Default: the tokenizer of
    the run's validation, or a tokenizer for the writing system of the references."""
    lenient: bool = False
    """Skip lines with invalid UTF-8 and lines without a counterpart, instead of stopping."""
    output: Path | None = None
    """Write the translations to this file, one per line, in the order of the sources."""
    json: Path | None = None
    """Write the report to this JSON file."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_test(argv: list[str]) -> None:
    if wants_help(argv):
        parallel = argv[0] == "translation" or _has_parallel_text(argv[0])
        read_command(TranslationTestFlags if parallel else TestFlags, argv, f"{PROG} RUN")
    name, argv = first_word(argv, what="run", prog=PROG)
    folders, _ = take_flag(argv, "--savepath")
    words = {word.replace("-", "_").removesuffix("=True") for word in argv}
    tested: Any = load(
        name,
        savepath=folders[-1] if folders else SAVEPATH,
        trust_code="__trust_code" in words,
        trust_edited="__trust_edited" in words,
    )
    parallel = tested.task.answers == "text" and not tested.task.draws
    if parallel:
        _refuse_generated(argv, name)
    # The primer's scripts repeat training flags. These flags are ignored if their values are those of the run.
    own = {option.name for option in dataclasses.fields(TranslationTestFlags if parallel else TestFlags)}
    trained = tested.config.flags()
    repeated, argv = take_flags(argv, trained.keys() - own)
    if (error := contradiction(str(tested.folder), tested.name, trained, repeated)) is not None:
        raise error
    (_test_translation if parallel else _test_task)(tested, argv)


def _has_parallel_text(name: str) -> bool:
    try:
        return RunFolder(Path(name)).read_config().on == "translation"
    except RegardError:
        return False


def _refuse_generated(argv: list[str], name: str) -> None:
    """Raise `InputError` for a flag that applies only to runs whose samples are generated."""
    test_others = "to test other or fewer pairs, give their files with --data SOURCE TARGET"
    draw_one = f"draw one translation with `regard translate {name} TEXT --plot`"
    advices = {
        **dict.fromkeys(("samples", "sample_len", "signal"), test_others),
        "seed": "all pairs are tested, so leave it out",
        "input": draw_one,
        "plot": draw_one,
    }
    for flag, advice in advices.items():
        if take_flags(argv, [flag])[0]:
            raise InputError(f"--{flag} is for generated samples, but {name} has parallel text: {advice}")


def _test_translation(run: TranslationRun, argv: list[str]) -> None:
    _, flags = read_command(TranslationTestFlags, argv, PROG)
    for path in (flags.output, flags.json):
        if path is not None:
            check_writable(path)
            refuse_input(path, map(Path, flags.data or (*run.task.config.test, *run.task.config.valid)))
    if flags.output is not None and flags.json is not None and flags.output.resolve() == flags.json.resolve():
        raise InputError(f"--output and --json are both {str(flags.json)!r}: name two files")
    check_length_penalty(run, flags.length_penalty, flags.beam)
    keep_memory()
    names = ("beam", "length_penalty", "batchsize", "bleu_tokenize", "lenient")
    report = run.test(flags.data or None, **{name: getattr(flags, name) for name in names})
    for warning in report.warnings:
        print_message(f"warning: {warning}")
    if flags.output is not None:
        write_file(flags.output, report.output.encode())
    if flags.json is not None:
        write_json(flags.json, report.json(), indent=1)
    sys.stdout.write(f"{run.folder}: {run.task.name}, after {run.step} step{'s' * (run.step != 1)}\n{report}\n")


def _test_task(run: AnswerRun | PairRun | LanguageRun, argv: list[str]) -> None:
    _, flags = read_command(TestFlags, argv, PROG, bare="--plot")
    plot = None if flags.plot is None else Path(flags.plot or run.folder / "attention.png")
    if plot is not None:
        check_extension(plot)
    check_writable(plot, flags.json)
    drawn: dict[str, Any] = {"sample_len": flags.sample_len, "seed": flags.seed}
    if flags.signal is not None:
        if "signal" not in run.drawn_by:
            raise InputError(f"signal {flags.signal!r} does not apply: {run.name} has no signals")
        drawn["signal"] = flags.signal
    attention = run.attend(flags.input) if flags.input is not None else run.attend(**drawn)
    if flags.samples is not None:
        drawn["samples"] = flags.samples
    report = run.test(**drawn)
    if flags.json is not None:
        write_json(flags.json, report.json(), indent=1)
    steps = f"{run.step} of {run.config.training.steps} steps"
    sys.stdout.write(f"{run.folder}: {run.task.name}, {steps}\n\n")
    print_table(attention.table())
    sys.stdout.write(f"\n{describe_answer(attention)}\n\n{report}\n")
    if flags.weights:
        sys.stdout.write(f"\n{describe_weights(attention)}\n")
    if plot is not None:
        if plot.suffix.lower() == PAGE and run.has_snapshots:
            from regard.viz.page import write_page

            write_page(plot, [run.with_sums(attention)], playback=vars(run.playback(attention.input)))
        elif plot.suffix.lower() == PAGE:
            run.with_sums(attention).to_html(plot)
        else:
            attention.save(plot)
        say_saved(plot)
        open_on_screen(plot)
