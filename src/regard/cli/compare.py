"""`regard compare TASK`: train variants over several seeds, and compare them."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from regard.cli.examine import EXPLORER
from regard.cli.parsing import first_word, parse, take_flag, wants_help
from regard.cli.terminal import print_table
from regard.cli.train import chosen_model, parse_config
from regard.cli.words import say
from regard.errors import InputError, unknown
from regard.io import check_writable, write_json
from regard.io.reading import is_folder, read_text
from regard.sweep import COMPARISONS, Backend, Local, Ray, Slurm, compare
from regard.tasks import TASKS
from regard.training import changed, make_config

PROG = "regard compare"
DESCRIPTION = (
    "Train every combination of the flags that vary, over several seeds, and compare them: a table, "
    "results.json, results.csv and curves.png. What is measured already is not trained again. All flags of "
    "`regard train TASK` may be given too; they hold for every variant. With two folders of models of Hugging "
    "Face's instead of a task: what both answer to the same --texts, and what their heads do."
)
FOLDERS = (
    "Compare two models of Hugging Face's over the same texts: losses, answers, and head by head what they do."
)

PLACED = ("address", "cpus", "memory", "time", "partition")
"""Flags that say more of where trainings run."""
OWN = tuple(f"--{name}" for name in ("seeds", "html", "explorer", "savepath", "on", *PLACED))
MACHINES: dict[str, type[Local | Ray | Slurm]] = {"here": Local, "ray": Ray, "slurm": Slurm}
PIPED = 200
"""Columns of the table where it does not go to a terminal."""


@dataclass(frozen=True, kw_only=True)
class CompareFlags:
    """All flags of the command."""

    vary: str | None = None
    """A flag of `regard train` and its values, as in --vary score=dot,additive; may be given several times."""
    seeds: int = 5
    """Seeds that each variant is trained with, from 0."""
    html: Path | None = None
    """File that the report is written to as a page: tables, curves, and links into the explorer."""
    explorer: str = EXPLORER
    """Where `regard show` serves runs: what the page's links lead to."""
    savepath: Path = Path(COMPARISONS)
    """Folder of comparisons; this one goes into a folder of its task's name there."""
    on: Literal["here", "ray", "slurm"] = "here"
    """Where trainings run: here, side by side over the cores of this machine; ray, on a Ray cluster; slurm, on a
    Slurm cluster."""
    address: str | None = None
    """With ray: host:port of the cluster's head. None: $RAY_ADDRESS, or the cluster of this machine."""
    cpus: int | None = None
    """With ray, slurm: cores, and threads, of each training. None: 1."""
    memory: int | None = None
    """With slurm: memory of each training, in GB. None: 4."""
    time: int | None = None
    """With slurm: minutes after which a training that is not done saves, and is put into the queue again. None:
    60."""
    partition: str | None = None
    """With slurm: the partition. None: the cluster's default."""


@dataclass(frozen=True, kw_only=True)
class FolderFlags:
    """All flags of comparing two models of Hugging Face's."""

    texts: Path | None = None
    """File of texts, one a line (source ||| target where there are two), that both are asked over."""
    json: Path | None = None
    """File that all figures go to, as JSON."""
    html: Path | None = None
    """File that a page goes to, on which both attend to the texts beside each other."""
    trust_code: bool = False
    """Run code of their own that the folders bring, which you have read."""


def run(argv: list[str]) -> None:
    """Compare as `argv` asks, and print the table."""
    if len(argv) > 1 and all(not word.startswith("-") and is_folder(Path(word)) for word in argv[:2]):
        _compare_folders(argv[:2], argv[2:])
        return
    if wants_help(argv):
        parse(CompareFlags(), ["--help"], prog=f"{PROG} TASK", description=DESCRIPTION)
    task, argv = first_word(argv, what="task", prog=PROG, example="recall")
    _check_task(task, argv)
    if take_flag(argv, "--from")[0]:
        raise InputError(
            "from cannot be given: what is compared begins from its seeds; use `regard train --from`"
        )
    varied, argv = take_flag(argv, "--vary")
    own: list[str] = []
    for flag in OWN:
        given, argv = take_flag(argv, flag)
        own += [word for value in given for word in (flag, value)]
    flags = parse(CompareFlags(), own, prog=f"{PROG} {task}", description=DESCRIPTION)
    machines = _machines(flags)
    if flags.html is not None:
        check_writable(flags.html)
    if not varied:
        raise InputError("nothing varies: name a flag and its values, as in --vary score=dot,additive")
    vary = dict(_split(each) for each in varied)
    # Each value is read beside the first value of every other flag: a combination that will be trained, so that
    # what is refused here could not have been.
    first = {name: f"--{name}={texts[0]}" for name, texts in vary.items()}
    base = make_config(task, chosen_model([*argv, *first.values()]))
    for name, texts in vary.items():
        if name not in base.flags():
            make_config(task, {"model": base.kind, name: texts[0]})  # says what there is
    fixed = _flags(task, [*argv, *first.values()])
    if "seed" in vary or "seed" in fixed:
        raise InputError(
            "seed cannot be set: each variant is trained with seeds from 0; choose how many by --seeds"
        )
    values = {}
    for name, texts in vary.items():
        others = [flag for other, flag in first.items() if other != name]
        values[name] = [_value(task, [*argv, *others], name, text) for text in texts]
    shared: dict[str, Any] = {name: value for name, value in fixed.items() if name not in vary}
    try:
        comparison = compare(task, values, seeds=flags.seeds, savepath=flags.savepath, on=machines, **shared)
    except KeyboardInterrupt:
        say("stopped; the same command goes on where it stopped")
        sys.exit(130)
    # What reads a pipe has room for the widest table.
    print_table(comparison.table(), None if sys.stdout.isatty() else PIPED)
    saved = comparison.save()
    if flags.html is not None:
        saved.append(comparison.to_html(flags.html, explorer=flags.explorer))
    sys.stdout.write("".join(f"Saved {path}\n" for path in saved))


def _machines(flags: CompareFlags) -> Backend:
    """Return what trainings are to run on; raises `InputError` for a flag that is not for that."""
    chosen = MACHINES[flags.on]
    takes = {each.name for each in fields(chosen)}
    given = {name: value for name in PLACED if (value := getattr(flags, name)) is not None}
    for name in given:
        if name not in takes:
            fits = " or ".join(
                on for on, kind in MACHINES.items() if name in {each.name for each in fields(kind)}
            )
            raise InputError(f"{name} is not for --on {flags.on}: leave it out, or give --on {fits}")
    return chosen(**given)


def _check_task(task: str, argv: list[str]) -> None:
    """Refuse what is no task; who names a model is told how models are compared."""
    if task in TASKS or task.endswith(".py"):
        return
    words = [task, *(argv[:1] if argv and not argv[0].startswith("-") else [])]
    if len(words) == 1 and not is_folder(Path(task)):
        raise unknown("task", task, TASKS, other="a Python file, or name two folders of models")
    wrong = [each for each in words if not is_folder(Path(each))]
    found = f"{wrong[0]!r} is no folder" if wrong else f"folder {task!r} is given alone"
    raise InputError(f"{found}: models are compared by two folders, as in `{PROG} before after --texts FILE`")


def _compare_folders(folders: list[str], argv: list[str]) -> None:
    """Look at two models of Hugging Face's over the same texts, and print how they differ."""
    from regard.external import look  # which comparing tasks need not wait for

    flags = parse(FolderFlags(), argv, prog=f"{PROG} {' '.join(folders)}", description=FOLDERS)
    if flags.texts is None:
        raise InputError("no texts are given to compare the models over: give --texts FILE")
    if flags.html is not None:
        check_writable(flags.html)
    texts = [line for line in read_text(flags.texts, "give a file of texts").splitlines() if line.strip()]
    one, other = (look(each, trust_code=flags.trust_code) for each in folders)
    found = one.compare_with(other, texts)
    print_table(found.table(), None if sys.stdout.isatty() else PIPED)
    if flags.json is not None:
        write_json(flags.json, found.json())
        sys.stdout.write(f"Saved {flags.json}\n")
    if flags.html is not None:
        sys.stdout.write(f"Saved {found.to_html(flags.html)}\n")


def _split(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not equals or not values:
        raise InputError(f"vary {text!r} has no values: write it as in --vary score=dot,additive")
    return name.removeprefix("--").replace("-", "_"), values.split(",")


def _flags(task: str, argv: list[str]) -> dict[str, Any]:
    """Return what `argv` changes of a task's flags, and the model."""
    base = make_config(task, chosen_model(argv))
    config, _ = parse_config(base, argv, task=task)
    return {"model": base.kind, **changed(config, base)}


def _value(task: str, argv: list[str], name: str, text: str) -> Any:
    """Read one value of a flag that varies, as `regard train` would."""
    if name == "model":
        return text
    config, _ = parse_config(make_config(task, chosen_model(argv)), [*argv, f"--{name}={text}"], task=task)
    return config.flags()[name]
