"""`regard train TASK`: train a model on a task."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import tyro

from regard.cli.parsing import check_needed, first_word, parse, take_flag, take_flags, wants_help
from regard.cli.terminal import print_message
from regard.errors import InputError
from regard.result import percent
from regard.runs.loading import SAVEPATH
from regard.runs.training import without_text
from regard.tasks.all_tasks import TASKS
from regard.training.config import (
    PRESETS,
    RunConfig,
    changed_config,
    check_dependent,
    find_criterion,
    has_presets,
    make_config,
    models_for,
)
from regard.training.run_folder import RunFolder, find_run
from regard.training.trainer import Interrupted, Terminated

if TYPE_CHECKING:
    from regard.runs.run_types import AnyRun


PROG = "regard train"
MODEL_TEXTS = {
    "query": "query (learned queries)",
    "pooling": "pooling (recurrent classifier)",
    "recurrent": "recurrent (encoder and decoder)",
    "transformer": "transformer",
    "decoder": "decoder (decoder-only)",
}
ON_PARALLEL_TEXT = {
    "batchsize": "Largest number of pairs in a batch; 0: limited only by tokens.",
    "validate_every": "Number of training steps between two validations, which translate all validation texts.",
}
"""Explanations of flags that mean something else on parallel text."""
UNSEEN_SAMPLES = {"numbers": 1000, "text": 300, "tokens": 1000}
"""Number of test samples after training, for each type of answer. Text answers take longer, so their number is
smaller."""


@dataclass(frozen=True, kw_only=True)
class RunChoice:
    """Folder of the run, and flags for an existing run in it."""

    savepath: Path = Path(SAVEPATH)
    """Folder of runs. The run is saved in a subfolder named after the task."""
    start_from: Annotated[str | None, tyro.conf.arg(name="from", aliases=("--start_from",))] = None
    """Start from the parameters and vocabularies of an earlier run (its folder, or its name under savepath), and
    train on other text. Model and vocabulary flags are fixed; other flags default to their values in the
    earlier run, except for text and freeze."""
    resume: bool = False
    """Continue the run in the folder with its stored flags. The result is the same as without the
    interruption. More --steps or another --lr begin a new learning-rate schedule at the last checkpoint."""
    overwrite: bool = False
    """Replace the run in the folder."""
    trust_code: bool = False
    """With --resume or --from: execute the custom code of the run, even if you have not trained with that code here."""
    trust_edited: bool = False
    """Use a run even if its files were edited or come from different runs, and print the differences."""


def run_train(argv: list[str]) -> None:
    if wants_help(argv[:1]):
        parse_config(make_config("counting"), argv, task="TASK")
    task, argv = first_word(argv, what="task", prog=PROG)
    base, place = make_config(task, model_choice(argv)), _run_choice(argv, task=task)
    folder, saved = RunFolder(place.savepath / base.name, place.trust_edited), None
    if place.resume and not wants_help(argv):
        base, saved = folder.read_config(trust_code=place.trust_code), _checkpoints(folder)
    elif place.start_from is not None:
        before = find_run(place.start_from, place.savepath, trust_edited=place.trust_edited)
        base = without_text(before.read_config(trust_code=place.trust_code))
    config, _ = parse_config(base, argv, task=task)
    from regard.runs.training import train

    given = given_flags(argv, config, base)
    if place.start_from is None:
        check_needed(place, dict.fromkeys(("trust_code", "trust_edited"), "resume"))
    if not place.resume:
        check_dependent(given, config.flags())
    try:
        trained = train(task, **vars(place), **given)
    except (Interrupted, Terminated) as stop:
        where = [] if place.savepath == Path(SAVEPATH) else ["--savepath", str(place.savepath)]
        command = shlex.join([*PROG.split(), task, "--resume", *where])
        with suppress(OSError):  # the terminal may be closed
            print_message(f"stopped and saved in {place.savepath}; continue with `{command}`")
        sys.exit(stop.code if isinstance(stop, Terminated) else 130)
    if os.environ.get("RANK", "0") != "0":  # of several processes, the first prints
        return
    step = trained.metrics[-1]["step"] if trained.metrics else trained.step  # its metrics may be lost
    done = f"Trained {trained.task.name} for {_steps(step)}"
    if saved == _checkpoints(folder):
        done = f"Nothing to train: {trained.task.name} was complete already after {_steps(step)}"
    sys.stdout.write(f"{done}: {_summary(trained)}. The run is in {trained.folder}\n")


def _steps(steps: int) -> str:
    return f"{steps} step{'s' * (steps != 1)}"


def _checkpoints(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.path.glob("trainer/step-*"))


def _summary(trained: AnyRun) -> str:
    """Return a summary of the trained run: its result on unseen samples of the lengths in training, or on its
    validation text."""
    criterion = find_criterion(trained.config.training.criterion)
    if validations := [line for line in trained.metrics if criterion.metric in line]:
        # The later of equally good models is kept.
        best = max(validations, key=lambda line: (criterion.value(line), line["step"]))
        named = f" (tokenizer {trained.config.bleu_tokenizer})" if criterion.figure == "bleu" else ""
        return f"best validation {criterion.describe(best)}{named} after {_steps(best['step'])}"
    loss = f"loss {trained.metrics[-1]['loss']:.4f}" if trained.metrics else "loss unknown"
    if trained.task.answers == "text" and not trained.task.draws:
        return f"{loss}; no validation text was given"
    samples = UNSEEN_SAMPLES[trained.task.answers]
    testable: Any = trained
    if trained.task.answers == "tokens":
        report = testable.test(samples=samples)
        perplexity = "" if trained.task.input_width else f", perplexity {report.perplexity:.3f}"
        share = f"exact match {percent(report.exact_match)} of the outputs of {samples:,} unseen sequences"
        return f"{loss}, unseen {report.measure} {report.loss:.4f}{perplexity}, {share}"
    share = testable.test(samples=samples).exact_match
    return f"{loss}, exact match {percent(share)} of {samples:,} unseen samples"


def model_choice(argv: list[str]) -> dict[str, Any]:
    values_by_name = {name: take_flag(argv, f"--{name}")[0] for name in ("model", "preset", "attention")}
    return {name: values[-1] for name, values in values_by_name.items() if values}


def given_flags(argv: list[str], config: RunConfig, base: RunConfig) -> dict[str, Any]:
    """Return the flags in `argv`, with the values of the parsed `config`.

    Values equal to those of `base` are also given: other flags may contradict them.
    """
    before, values = base.flags(), config.flags()
    given = {name: value for name, value in values.items() if take_flags(argv, [name])[0]}
    changed = {name: value for name, value in values.items() if name in before and value != before[name]}
    return {**given, **model_choice(argv), **changed}


def _run_choice(argv: list[str], *, task: str) -> RunChoice:
    """Return the flags in `argv` that name the run and its origin, which determine the defaults of the other flags."""
    names = {"from", *(option.name for option in dataclasses.fields(RunChoice))}
    words, _ = take_flags([word for word in argv if not wants_help([word])], names)
    for flag, word in itertools.pairwise(words):
        if flag == "--resume" and word[:2] != "--":
            parent = Path(word).parent
            raise InputError(f"--resume has no value: name the folder of the run as in --savepath {parent} --resume")
    return parse(RunChoice(), words, prog=f"{PROG} {task}", description="")


def parse_config(config: RunConfig, argv: list[str], *, task: str) -> tuple[RunConfig, RunChoice]:
    """Parse `argv` into a changed `config` and the choice of the run."""
    options, hints = config.options, get_type_hints(type(config.options), include_extras=True)
    kinds = " or ".join(MODEL_TEXTS[name] for name in models_for(config.task_class))
    text = f"Model: {kinds}; or a custom class, as module:Class. Name a model to see its flags."
    choices: list[Any] = [("model", Annotated[str, tyro.conf.arg(help=text)], field(default=config.kind))]
    if has_presets(config.task_class, config.kind):
        text = f"Size of the Transformer: {', '.join(PRESETS)}. Name a size to see its defaults. Default: tiny."
        choices.append(("preset", Annotated[str | None, tyro.conf.arg(help=text)], None))
    choice: Any = make_dataclass("ModelChoice", choices, frozen=True, kw_only=True)()
    texts = ON_PARALLEL_TEXT if config.training.use == "translation" else {}
    texts = {"lr": "Learning rate: the peak of the schedule, or the constant rate.", **texts}
    hints |= {name: Annotated[hints[name], tyro.conf.arg(help=text)] for name, text in texts.items()}
    fields = [(name, hints[name], field(default=getattr(options, name))) for name in options.flag_names()]
    fields += [("choice", type(choice), choice), ("run", RunChoice, RunChoice())]
    namespace = {"described_by": type(options)}
    flags_class = make_dataclass("TrainFlags", fields, namespace=namespace, frozen=True, kw_only=True)
    names = {part: options.flag_names(part) for part in options.part_classes}
    names["model"] = [option.name for option in dataclasses.fields(choice)] + names["model"]
    names["run"] = [option.name for option in dataclasses.fields(RunChoice)]
    description = f"Train a model on a task. TASK: {', '.join(TASKS)}, or a Python file that defines one."
    if task == "TASK":
        description += " The defaults below are those of counting; name another task to see its defaults."
    recipe = config.training.optimization
    deeper = f"; {recipe.encoder_lr:g} with encoder layers" * (recipe.encoder_lr != recipe.lr)
    defaults = {"lr": f"{recipe.lr:g}{deeper}"} if options.lr is None else {}
    flags: Any = parse(
        flags_class(), argv, prog=f"{PROG} {task}", description=description, groups=names, defaults=defaults
    )
    return changed_config(config, {name: getattr(flags, name) for name in options.flag_names()}), flags.run
