"""`regard train TASK`: train a model on a task."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from regard import runs
from regard.cli.parsing import first_word, parse, take_flag, take_flags, wants_help
from regard.cli.words import say
from regard.runs import SAVEPATH, without_text
from regard.tasks import TASKS
from regard.training import PARTS, Interrupted, RunConfig, RunFolder, changed, find_run, make_config, sized

if TYPE_CHECKING:
    from regard.runs import AnyRun


PROG = "regard train"
UNSEEN = {"numbers": 1000, "text": 300}
"""Samples that the last line tells of, by what the answers are: these take a moment, texts longer."""


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which model."""

    model: str
    """query (learned queries), pooling (a recurrent classifier): for tasks with a number for each output step.
    recurrent (encoder and decoder), transformer: for tasks from sequence to sequence. Or a class of your own, as
    module:Class. Name it to see its flags."""


@dataclass(frozen=True, kw_only=True)
class TransformerChoice(ModelChoice):
    """Which model, and how large."""

    preset: str | None = None
    """Defaults of the Transformer's size: tiny, small, base or big. Name one to see them. None: tiny."""


@dataclass(frozen=True, kw_only=True)
class WhereConfig:
    """Where the run is kept."""

    savepath: Path = Path(SAVEPATH)
    """Folder of runs; this one goes into a folder of its task's name there."""
    start_from: Annotated[str | None, tyro.conf.arg(name="from", aliases=("--start_from",))] = None
    """Begin with the parameters and vocabularies of this run (its folder, or its name under savepath), on other
    text. Flags that are not given are as they were there, but for text and freeze; those of the model and of the
    vocabularies cannot be others."""
    resume: bool = False
    """Continue the run that is there, exactly as if it had not stopped. It keeps its flags."""
    overwrite: bool = False
    """Replace the run that is there."""
    trust_code: bool = False
    """With resume, or from: run the code of its own that the run names, which nobody has trained with here."""
    trust_edited: bool = False
    """Use a run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Train as `argv` asks, and say where the run is."""
    if wants_help(argv[:1]):
        parse_config(make_config("counting"), argv, task="TASK")
    task, argv = first_word(argv, what="task", prog=PROG)
    chosen = chosen_model(argv)
    base, where = make_config(task, chosen), chosen_place(argv, task=task)
    if where.resume and not wants_help(argv):
        base = RunFolder(where.savepath / base.name, where.trust_edited).read_config(trust_code=where.trust_code)
    elif where.start_from is not None:
        before = find_run(where.start_from, where.savepath, trust_edited=where.trust_edited)
        base = without_text(before.read_config(trust_code=where.trust_code))
    config, _ = parse_config(base, argv, task=task)
    given: dict[str, Any] = {**chosen, **changed(config, base)}
    try:
        trained = runs.train(
            task,
            savepath=where.savepath,
            start_from=where.start_from,
            resume=where.resume,
            overwrite=where.overwrite,
            trust_code=where.trust_code,
            trust_edited=where.trust_edited,
            **given,
        )
    except Interrupted:
        again = shlex.join([*PROG.split(), task, "--resume", *_savepath_flag(where.savepath)])
        say(f"stopped and saved in {where.savepath}; continue with `{again}`")
        sys.exit(130)
    if os.environ.get("RANK", "0") != "0":  # of several processes, one tells
        return
    step = trained.metrics[-1]["step"] if trained.metrics else trained.step  # its metrics may be lost
    sys.stdout.write(
        f"Trained {trained.task.name} for {step} steps: {_found(trained)}. The run is in {trained.folder}\n"
    )


def _found(trained: AnyRun) -> str:
    """Say what a training came to: on unseen samples of all lengths that it is for, or on its validation text."""
    validated = [line for line in trained.metrics if "bleu" in line]
    if validated:
        best = max(validated, key=lambda line: (line["bleu"], line["step"]))  # of several, the one that is kept
        tokenizer = trained.config.bleu_tokenizer or "13a"  # which it was before it was stored
        return f"best validation BLEU {best['bleu']:.2f} (tokenizer {tokenizer}) after {best['step']} steps"
    loss = f"loss {trained.metrics[-1]['loss']:.4f}" if trained.metrics else "loss unknown"
    if not trained.task.draws:
        return f"{loss}; no validation text was given"
    samples = UNSEEN[trained.task.answers]
    tested: Any = trained
    share = tested.test(samples=samples).exact_match
    return f"{loss}, exact match {share:.1%} of {samples:,} unseen samples"


def chosen_model(argv: list[str]) -> dict[str, Any]:
    """Return the flags `model` and `preset` where `argv` gives them: other flags and their defaults depend on
    them."""
    given = {name: take_flag(argv, f"--{name}")[0] for name in ("model", "preset")}
    return {name: values[-1] for name, values in given.items() if values}


def chosen_place(argv: list[str], *, task: str) -> WhereConfig:
    """Return where the run is kept, and what it begins from: the defaults of other flags depend on that."""
    names = {"from", *(each.name for each in dataclasses.fields(WhereConfig))}
    words, _ = take_flags([word for word in argv if not wants_help([word])], names)
    return parse(WhereConfig(), words, prog=f"{PROG} {task}", description="")


def parse_config(config: RunConfig, argv: list[str], *, task: str) -> tuple[RunConfig, WhereConfig]:
    """Read `argv` as flags over `config`, and where the run is kept."""
    parts = config.parts()
    has_sizes = sized(config.task_class, config.kind)
    choice = TransformerChoice(model=config.kind) if has_sizes else ModelChoice(model=config.kind)
    fields = [(name, type(part)) for name, part in {**parts, "choice": choice, "run": WhereConfig()}.items()]
    flags = make_dataclass("TrainFlags", fields, frozen=True, kw_only=True)
    described = f"Train a model on a task. TASK: {', '.join(TASKS)}, or a Python file that defines one. " + (
        "The defaults below are those of counting; name a task to see its own." if task == "TASK" else ""
    )
    found: Any = parse(
        flags(**parts, choice=choice, run=WhereConfig()), argv, prog=f"{PROG} {task}", description=described
    )
    return dataclasses.replace(config, **{part: getattr(found, part) for part in PARTS}), found.run


def _savepath_flag(savepath: Path) -> list[str]:
    """Return the flag that says where the runs are, nothing for the usual place."""
    return [] if savepath == Path(SAVEPATH) else ["--savepath", str(savepath)]
