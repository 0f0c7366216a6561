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
from regard.cli.terminal import print_message
from regard.runs import SAVEPATH, without_text
from regard.tasks import TASKS
from regard.training import PARTS, Interrupted, RunConfig, RunFolder, changed, find_run, make_config, sized

if TYPE_CHECKING:
    from regard.runs import AnyRun


PROG = "regard train"
UNSEEN = {"numbers": 1000, "text": 300}
"""Number of samples for the exact match in the last line, by type of answer; text takes longer to generate."""


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Choice of the model."""

    model: str
    """Model: query (learned queries) or pooling (recurrent classifier) for tasks with numeric answers; recurrent
    (encoder-decoder) or transformer for sequence-to-sequence tasks; or a custom class, as module:Class. Name it
    to see its flags."""


@dataclass(frozen=True, kw_only=True)
class TransformerChoice(ModelChoice):
    """Choice of the model and its size."""

    preset: str | None = None
    """Default sizes of the Transformer: tiny, small, base or big. Name one to see its flags. Default: tiny."""


@dataclass(frozen=True, kw_only=True)
class WhereConfig:
    """Location of the run."""

    savepath: Path = Path(SAVEPATH)
    """Directory of the runs. This one is stored in a subfolder named after its task."""
    start_from: Annotated[str | None, tyro.conf.arg(name="from", aliases=("--start_from",))] = None
    """Start from the parameters and vocabularies of this run (its folder, or its name under savepath), on other
    text. Model and vocabulary flags are fixed; other flags default to the earlier run's, except for text and
    freeze."""
    resume: bool = False
    """Continue an interrupted run exactly where it stopped, with the same flags."""
    overwrite: bool = False
    """Replace an existing run."""
    trust_code: bool = False
    """With --resume or --from: execute the custom code that the run names. Read that code first."""
    trust_edited: bool = False
    """Use a run even if its files were edited or mixed. The differences are printed."""


def run(argv: list[str]) -> None:
    """Train a model, then print its result and folder."""
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
        print_message(f"stopped and saved in {where.savepath}; continue with `{again}`")
        sys.exit(130)
    if os.environ.get("RANK", "0") != "0":  # only one of several processes prints
        return
    step = trained.metrics[-1]["step"] if trained.metrics else trained.step  # the metrics file may be missing
    sys.stdout.write(
        f"Trained {trained.task.name} for {step} steps: {_found(trained)}. The run is in {trained.folder}\n"
    )


def _found(trained: AnyRun) -> str:
    """Return the result of a training: exact match on unseen samples of all lengths, or validation BLEU."""
    validated = [line for line in trained.metrics if "bleu" in line]
    if validated:
        best = max(validated, key=lambda line: (line["bleu"], line["step"]))  # the last of equal ones is kept
        tokenizer = trained.config.bleu_tokenizer or "13a"  # the default before it was stored
        return f"best validation BLEU {best['bleu']:.2f} (tokenizer {tokenizer}) after {best['step']} steps"
    loss = f"loss {trained.metrics[-1]['loss']:.4f}" if trained.metrics else "loss unknown"
    if not trained.task.draws:
        return f"{loss}; no validation text was given"
    samples = UNSEEN[trained.task.answers]
    tested: Any = trained
    share = tested.test(samples=samples).exact_match
    return f"{loss}, exact match {share:.1%} of {samples:,} unseen samples"


def chosen_model(argv: list[str]) -> dict[str, Any]:
    """Return the flags `model` and `preset` in `argv`; they determine the other flags and defaults."""
    given = {name: take_flag(argv, f"--{name}")[0] for name in ("model", "preset")}
    return {name: values[-1] for name, values in given.items() if values}


def chosen_place(argv: list[str], *, task: str) -> WhereConfig:
    """Return the location flags in `argv`; they determine the defaults of other flags."""
    names = {"from", *(each.name for each in dataclasses.fields(WhereConfig))}
    words, _ = take_flags([word for word in argv if not wants_help([word])], names)
    return parse(WhereConfig(), words, prog=f"{PROG} {task}", description="")


def parse_config(config: RunConfig, argv: list[str], *, task: str) -> tuple[RunConfig, WhereConfig]:
    """Parse `argv` with the defaults of `config`; return the new config and the location of the run."""
    parts = config.parts()
    has_sizes = sized(config.task_class, config.kind)
    choice = TransformerChoice(model=config.kind) if has_sizes else ModelChoice(model=config.kind)
    fields = [(name, type(part)) for name, part in {**parts, "choice": choice, "run": WhereConfig()}.items()]
    flags = make_dataclass("TrainFlags", fields, frozen=True, kw_only=True)
    described = f"Train a model on a task. TASK: {', '.join(TASKS)}, or a Python file that defines one. " + (
        "The defaults below are those of counting; name a task to see its defaults." if task == "TASK" else ""
    )
    found: Any = parse(
        flags(**parts, choice=choice, run=WhereConfig()), argv, prog=f"{PROG} {task}", description=described
    )
    return dataclasses.replace(config, **{part: getattr(found, part) for part in PARTS}), found.run


def _savepath_flag(savepath: Path) -> list[str]:
    """Return the flag --savepath, or nothing for the default."""
    return [] if savepath == Path(SAVEPATH) else ["--savepath", str(savepath)]
