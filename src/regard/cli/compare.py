"""`regard compare TASK`: train variants over several seeds and compare them."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from regard.cli.parsing import first_word, read_command, take_flag, take_flags, wants_help
from regard.cli.terminal import EXPLORER, print_message, print_table, resumable, save_files, say_saved
from regard.cli.train import given_flags, model_choice, parse_config
from regard.errors import InputError, unknown_choice
from regard.io import check_writable, is_folder, read_text
from regard.sweep.backends import Backend, Local, Ray, Slurm
from regard.sweep.comparison import COMPARISONS, compare
from regard.tasks.all_tasks import TASKS
from regard.training.config import make_config

# Flags that choose the machines of a sweep: this machine, a Ray cluster, or a Slurm cluster.

MACHINES: dict[str, type[Local | Ray | Slurm]] = {"here": Local, "ray": Ray, "slurm": Slurm}


@dataclass(frozen=True, kw_only=True)
class MachineFlags:
    """Flags of all commands that train on several machines."""

    on: Literal["here", "ray", "slurm"] = "here"
    """Machines that run the training jobs: here (in parallel on the cores of this machine), a Ray cluster, or a
    Slurm cluster. The machines of a cluster must share the disk of --savepath."""
    address: str | None = None
    """For ray: host:port of the head node. Default: $RAY_ADDRESS, or the cluster of this machine."""
    cpus: int | None = None
    """For ray and slurm: number of cores and threads per training job. Default: 1."""
    memory: int | None = None
    """For slurm: memory per training job, in GB. Default: 4."""
    time: int | None = None
    """For slurm: minutes until an unfinished training job saves its state and is queued again. Default: 60."""
    partition: str | None = None
    """For slurm: partition. Default: the cluster's default."""


OPTIONS = tuple(option.name for option in fields(MachineFlags) if option.name != "on")
"""Names of the flags that configure the machines."""


def make_backend(flags: MachineFlags) -> Backend:
    """Return the chosen machines. Raises `InputError` for a flag that applies only to others."""
    options = {name: value for name in OPTIONS if (value := getattr(flags, name)) is not None}
    for name in options:
        accepting = [on for on, kind in MACHINES.items() if name in {option.name for option in fields(kind)}]
        if flags.on not in accepting:
            others = " or ".join(accepting)
            raise InputError(f"--{name} does not apply to --on {flags.on}: leave it out, or give --on {others}")
    return MACHINES[flags.on](**options)


PROG = "regard compare"
OWN = {"seeds", "html", "savepath", "on", *OPTIONS}
WIDEST = 200  # characters of a line of the table


@dataclass(frozen=True, kw_only=True)
class CompareFlags:
    """Train all combinations of the varied flags over several seeds, and compare them in a table, results.json,
    results.csv and curves.png. Finished training runs are not repeated. All flags of `regard train TASK` are
    accepted and apply to every variant. Given two folders of Hugging Face models instead of a task, compare the
    answers and the attention heads of the models on the same --examples."""

    vary: str | None = None
    """A flag of `regard train` and its values, such as: --vary score=dot,additive. Can be repeated. Values that
    contain commas are separated by semicolons: --vary "attention=softmax;alibi,sink"."""
    seeds: int = 5
    """Number of seeds per variant: 0, 1, and so on."""
    html: Path | None = None
    """Write the report to this HTML file: tables, curves, and links into the explorer."""
    savepath: Path = Path(COMPARISONS)
    """Directory of the comparisons. The comparison is stored in a subfolder named after its task."""
    machines: MachineFlags = field(default_factory=MachineFlags)


@dataclass(frozen=True, kw_only=True)
class FolderFlags:
    """Compare two Hugging Face models on the same texts: losses, answers, and attention of each head."""

    examples: Path | None = None
    """File of texts to compare the models on, one per line (source ||| target for encoder-decoders)."""
    json: Path | None = None
    """Write all numbers to this JSON file."""
    html: Path | None = None
    """Write a page to this HTML file that shows the attention of both models side by side."""
    trust_code: bool = False
    """Execute custom code from the models' folders. Read that code first."""


def run_compare(argv: list[str]) -> None:
    if len(argv) > 1 and all(not word.startswith("-") and is_folder(Path(word)) for word in argv[:2]):
        _compare_folders(argv[:2], argv[2:])
        return
    if wants_help(argv):
        read_command(CompareFlags, argv, f"{PROG} TASK")
    task, argv = first_word(argv, what="task", prog=PROG, example="recall")
    _check_task(task, argv)
    if take_flag(argv, "--from")[0]:
        raise InputError("--from is not available here: variants start from their seeds; use `regard train --from`")
    varied, argv = take_flag(argv, "--vary")
    own, argv = take_flags(argv, OWN)
    _, flags = read_command(CompareFlags, own, PROG)
    machines = make_backend(flags.machines)
    check_writable(flags.html)
    if not varied:
        raise InputError("no flag to vary: give a flag and its values, as in --vary score=dot,additive")
    vary = dict(map(_split, varied))
    # Each value is parsed together with the first value of every other varied flag. This combination is one of
    # the variants, so an invalid combination is refused before any training starts.
    first = {name: f"--{name}={texts[0]}" for name, texts in vary.items()}
    base = make_config(task, model_choice([*argv, *first.values()]))
    for name, texts in vary.items():
        if name not in base.flags():
            make_config(task, {"model": base.kind, name: texts[0]})  # raises, and lists the flags
    fixed = _flags(task, [*argv, *first.values()])
    if "seed" in vary or "seed" in fixed:
        raise InputError(
            "seed cannot be set: each variant is trained with seeds from 0; set the number of seeds with --seeds"
        )
    grid = {}
    for name, texts in vary.items():
        others = [flag for other, flag in first.items() if other != name]
        grid[name] = [_parse_value(task, [*argv, *others], name, text) for text in texts]
    shared: dict[str, Any] = {name: value for name, value in fixed.items() if name not in vary}
    with resumable():
        comparison = compare(task, grid, seeds=flags.seeds, savepath=flags.savepath, on=machines, **shared)
    # In a pipe, the table is as wide as its content.
    print_table(comparison.table(), WIDEST)
    saved = comparison.save()
    if flags.html is not None:
        saved.append(comparison.to_html(flags.html, explorer=EXPLORER))
    say_saved(*saved)


def _check_task(task: str, argv: list[str]) -> None:
    """Raise `InputError` if `task` is not a task; for the name of a model, explain how to compare models."""
    if task in TASKS or task.endswith(".py"):
        return
    words = [task, *(argv[:1] if argv and not argv[0].startswith("-") else [])]
    if len(words) == 1 and not is_folder(Path(task)):
        raise unknown_choice("task", task, TASKS, other="a Python file, or name two folders of models")
    missing = [word for word in words if not is_folder(Path(word))]
    problem = f"{missing[0]!r} is not a folder" if missing else f"only one folder is given, {task!r}"
    raise InputError(f"{problem}: compare models with two folders, as in `{PROG} before after --examples FILE`")


def _compare_folders(folders: list[str], argv: list[str]) -> None:
    from regard.external.loading import look  # slow to import, and not needed to compare tasks

    _, flags = read_command(FolderFlags, argv, f"{PROG}")
    if flags.examples is None:
        raise InputError("there are no texts to compare the models on: give --examples FILE")
    check_writable(flags.html)
    texts = [line for line in read_text(flags.examples, "give a file of texts").splitlines() if line.strip()]
    first, second = (look(folder, trust_code=flags.trust_code) for folder in folders)
    comparison = first.compare_with(second, texts)
    print_table(comparison.table(), WIDEST)
    save_files(comparison.json(), flags.json, flags.html, comparison.to_html)


def _split(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not equals or not values:
        raise InputError(f"vary {text!r} has no values: write it as in --vary score=dot,additive")
    name, parts = name.removeprefix("--").replace("-", "_"), values.split(";" if ";" in values else ",")
    if name == "attention" and len(parts) > 1 and not {";", "+"} & {*values}:
        print_message(
            f"attention is varied over {len(parts)} mechanisms, {', '.join(parts)}: write several parts in one "
            f"mechanism as alibi+sink, or separate the mechanisms by semicolons"
        )
    return name, parts


def _flags(task: str, argv: list[str]) -> dict[str, Any]:
    base = make_config(task, model_choice(argv))
    config, _ = parse_config(base, argv, task=task)
    return {**given_flags(argv, config, base), "model": base.kind}


def _parse_value(task: str, argv: list[str], name: str, text: str) -> Any:
    if name == "model":
        return text
    config, _ = parse_config(make_config(task, model_choice(argv)), [*argv, f"--{name}={text}"], task=task)
    return config.flags()[name]
