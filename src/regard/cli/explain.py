"""`regard explain RUN`: compute one attention weight step by step."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.parsing import check_needed, read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import print_table
from regard.errors import InputError
from regard.interpret.why import DEPTH
from regard.io.writing import write_json

if TYPE_CHECKING:
    from regard.runs.run_types import AnyRun


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


def run(argv: list[str]) -> None:
    """Print the computation of one weight."""
    [name], flags = read_command(ExplainFlags, argv, "regard explain RUN")
    check_needed(flags, {"depth": "why"})
    run = flags.storage.load(name)
    if flags.why:
        _print_reasons(run, flags)
        return
    explanation = run.explain(
        flags.input,
        layer=flags.layer,
        head=flags.head,
        output=flags.output,
        key=flags.key,
        temperature=flags.temperature,
        seed=flags.seed,
    )
    if flags.json is not None:
        write_json(flags.json, explanation.json(), indent=1)
    sys.stdout.write(f"{run.folder}: {run.name}, input {explanation.input!r}\n")
    print_table(explanation.table())


def _print_reasons(run: "AnyRun", flags: ExplainFlags) -> None:
    from regard.interpret.why import why

    if flags.temperature != 1:
        raise InputError("temperature divides scores, which --why splits before that: leave out one of the two")
    weight = {"layer": flags.layer, "head": flags.head, "output": flags.output, "key": flags.key}
    reasons = why(run, flags.input, **weight, seed=flags.seed)  # type: ignore[arg-type]
    trace = reasons.trace(depth=flags.depth)
    if flags.json is not None:
        write_json(flags.json, {**reasons.json(), "trace": trace.json()["root"]}, indent=1)
    sys.stdout.write(f"{run.folder}: {run.name}, input {reasons.input!r}\n")
    print_table(reasons.table())
    sys.stdout.write("\nFollowed backwards\n")
    print_table(trace.table())
