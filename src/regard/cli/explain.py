"""Commands that explain and test attention: `regard explain`, `examine`, `circuit` and `timeline`."""

import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.parsing import check_needed, read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import EXPLORER, print_paragraphs, print_table, report_width, resumable, save_files, say_saved
from regard.errors import InputError, check_range
from regard.interpret.circuits import PAIRS, THRESHOLD as EFFECT, CircuitScores, Loss, faithfulness, find_circuit
from regard.interpret.timeline import SAMPLE_COUNT, THRESHOLD
from regard.interpret.why import DEPTH, why
from regard.io import check_writable, write_json

if TYPE_CHECKING:
    from regard.interpret.examination import Examination
    from regard.runs.seeds import ExaminedRuns


@dataclass(frozen=True, kw_only=True)
class ExplainFlags:
    """Show how a head computes its attention weights at one output position: query, key, score, softmax,
    values, context, and the effect on the model's output. With --why, show instead what earlier parts of the
    model wrote into query and key. RUN: a task's name, or the folder of a run."""

    input: str | None = None
    """Input of the model. Default: a random sample, if the task generates its samples."""
    layer: str | None = None
    """Attention layer, such as cross or encoder.0.self_attention. Default: the first layer in which output
    positions attend to input positions."""
    head: int = 0
    """Head, from 0."""
    output: int = 0
    """Query step, from 0."""
    key: int | None = None
    """Key step, from 0. Default: the input position with the largest weight."""
    temperature: float = 1.0
    """Divide the head's scores by this value before the softmax. Values above 1 make the weights more uniform,
    and values below 1 more concentrated."""
    why: bool = False
    """Split the score of the weight into what was written into its query and its key: token embedding, position,
    earlier heads, feed-forward layers, biases."""
    depth: int = DEPTH
    """With --why: number of levels of the tree that follows the largest contributions backwards (1 or more)."""
    seed: int = 0
    """Random seed of the random input (0 or more)."""
    json: Path | None = None
    """Write all numbers to this JSON file."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_explain(argv: list[str]) -> None:
    [name], flags = read_command(ExplainFlags, argv, "regard explain RUN")
    check_needed(flags, {"depth": "why"})
    run = flags.storage.load(name)
    place: dict[str, Any] = {name: getattr(flags, name) for name in ("layer", "head", "output", "key", "seed")}
    if flags.why and flags.temperature != 1:
        raise InputError("temperature divides scores, which --why splits before that: leave out one of the two")
    reasons = why(run, flags.input, **place) if flags.why else None
    result = reasons or run.explain(flags.input, temperature=flags.temperature, **place)
    trace = None if reasons is None else reasons.trace(depth=flags.depth)
    if flags.json is not None:
        traced = {} if trace is None else {"trace": trace.json()["root"]}
        write_json(flags.json, {**result.json(), **traced}, indent=1)
    sys.stdout.write(f"{run.folder}: {run.name}, input {result.input!r}\n")
    print_table(result.table())
    if trace is not None:
        sys.stdout.write("\nFollowed backwards\n")
        print_table(trace.table())


@dataclass(frozen=True, kw_only=True)
class ExamineFlags:
    """Test whether the attention of a run is meaningful. Is the attention on the inputs that the answer depends on?
    Does the attention rank the inputs like the effect of replacing them? Which heads does the model need? The result is
    printed and saved as examined.json in the run's folder. Several runs that differ only in their seed are compared:
    how many heads of each layer get each sentence, and on how many runs. RUN: a task's name, or the folder of a run."""

    samples: int = 200
    """Number of unseen samples (2 or more; confidence intervals need 50)."""
    all: bool = False
    """Print all tables and sentences; without this flag, the report of one run has at most 25 lines."""
    html: Path | None = None
    """Write the report to this HTML file: tables and text, and for one run plots and links into the explorer."""
    json: Path | None = None
    """Write all measurements and sentences to this JSON file."""
    seed: int = 0
    """Random seed of the samples (0 or more)."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_examine(argv: list[str]) -> None:
    from regard.interpret.examination import FILE  # slow to import, and not needed to explain a weight
    from regard.runs.seeds import examine_runs

    names, flags = read_command(ExamineFlags, argv, "regard examine RUN...")
    check_writable(flags.html, flags.json)
    result: Examination | ExaminedRuns
    if len(names) == 1:
        run = flags.storage.load(names[0])
        result = examination = run.examine(samples=flags.samples, seed=flags.seed)
        saved, links = [examination.save(run.folder / FILE)], {"explorer": EXPLORER}
    else:
        with resumable():
            result = runs = examine_runs(names, samples=flags.samples, seed=flags.seed, **vars(flags.storage))
        saved, links = [Path(folder) / FILE for folder in runs.runs], {}
    width = report_width(110)
    print_table(examination.details() if len(names) == 1 and flags.all else result.table(), width)
    if len(names) > 1 or flags.all:
        sys.stdout.write("\n")
        print_paragraphs(result.sentences, width)
    sys.stdout.write("\n")
    say_saved(*saved)
    save_files(result.json(), flags.json, flags.html, partial(result.to_html, **links))


@dataclass(frozen=True, kw_only=True)
class CircuitFlags:
    """Score the edges between the parts of a model, or search a circuit, and measure its faithfulness over its size:
    CPR and CMD, as in MIB (Mueller et al. 2025). The model runs on pairs of a clean and a corrupted input of equal
    length; by default, pairs are drawn. RUN: a task's name, or the folder of a run."""

    method: str = "eap_ig"
    """eap_ig, eap, edge_patching (exact and slow), or acdc (slower), which also decides which edges are kept."""
    scores: Path | None = None
    """Measure this file instead: JSON of MIB and EAP-IG, or a list of InterpBench's edges."""
    threshold: float = EFFECT
    """With --method acdc: smallest increase of the loss for which an edge is kept (above 0)."""
    loss: Loss = "kl"
    """With --method acdc: kl (divergence from the prediction of the model) or difference (of the logits of answers)."""
    clean: str | None = None
    """Clean input. Default: drawn pairs."""
    corrupted: str | None = None
    """Corrupted input, with as many tokens."""
    answers: tuple[str, str] | None = None
    """Answers to the clean and to the corrupted input, whose logits are compared. Default: those of the model."""
    pairs: int = PAIRS
    """Number of drawn pairs (1 or more)."""
    write: Path | None = None
    """Write the circuit to this file, in the form of MIB and EAP-IG."""
    json: Path | None = None
    """Write all numbers to this JSON file."""
    seed: int = 0
    """Random seed of the drawn pairs (0 or more)."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_circuit(argv: list[str]) -> None:
    [name], flags = read_command(CircuitFlags, argv, "regard circuit RUN", example="induction")
    check_writable(flags.write, flags.json)
    if (flags.clean is None) != (flags.corrupted is None):
        raise InputError("--clean and --corrupted are one pair of inputs: give both, or none")
    if flags.answers is not None and flags.clean is None:
        raise InputError("--answers are those of one pair of inputs: give --clean and --corrupted, too")
    check_range("pairs", flags.pairs, 1, 10**5)
    stored = CircuitScores.read(flags.scores) if flags.scores is not None else None
    run = flags.storage.load(name)
    pairs = flags.pairs if flags.clean is None else [(flags.clean, flags.corrupted)]
    options = {"pairs": pairs, "answers": flags.answers, "seed": flags.seed, "progress": True}
    search = {"method": flags.method, "threshold": flags.threshold, "loss": flags.loss}
    circuit = find_circuit(run, **options, **search) if stored is None else stored  # type: ignore[arg-type]
    result = faithfulness(run, circuit, **options)  # type: ignore[arg-type]
    print_table(circuit.table(), 80)
    sys.stdout.write("\n")
    print_table(result.table(), 80)
    if flags.write is not None:
        circuit.write(flags.write)
    if flags.json is not None:
        write_json(flags.json, {"circuit": circuit.json(), "faithfulness": result.json()})
    say_saved(*filter(None, (flags.write, flags.json)))


@dataclass(frozen=True, kw_only=True)
class TimelineFlags:
    """Follow every head through the snapshots of one or more runs that differ only in their seed. Which role does it
    take (previous token, duplicate token, induction, first token, ...), at which training step, and in which order do
    roles form? RUN: the folder of a run with snapshots (regard train ... --snapshots 50), or a task's name; or a
    folder with the checkpoints (checkpoint-500, ...) of a language model that transformers trained, or one that
    regard.watch wrote."""

    samples: int = SAMPLE_COUNT
    """Number of samples on which every snapshot is measured (2 or more)."""
    threshold: float = THRESHOLD
    """Score from which a head has a role (above 0, below 1). 0: uniform attention; 1: attention to only the
    role's keys."""
    html: Path | None = None
    """Write a page to this HTML file: strips of roles and heads, the loss, and the tables."""
    json: Path | None = None
    """Write all measurements, by run, snapshot and head, to this JSON file."""
    seed: int = 0
    """Random seed of the samples (0 or more)."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_timeline(argv: list[str]) -> None:
    from regard.runs.seeds import timeline

    names, flags = read_command(
        TimelineFlags, argv, "regard timeline RUN...", example="seed0/induction seed1/induction"
    )
    check_writable(flags.html, flags.json)
    result = timeline(names, samples=flags.samples, threshold=flags.threshold, seed=flags.seed, **vars(flags.storage))
    width = report_width(120)
    print_paragraphs(result.sentences, width)
    sys.stdout.write("\n")
    print_table(result.role_table(), width)
    sys.stdout.write("\n")
    print_paragraphs(result.notes, width)
    save_files(result.json(), flags.json, flags.html, result.to_html)
