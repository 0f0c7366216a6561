"""`regard explain RUN`: compute one attention weight step by step."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from regard.cli.parsing import parse_of_run
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import print_table
from regard.io import write_json

PROG = "regard explain"
DESCRIPTION = (
    "Show how a head computes its attention weights at one output position: query, key, score, softmax, "
    "values, context, and the effect on the model's output. RUN: a task's name, or the folder of a run."
)


@dataclass(frozen=True, kw_only=True)
class ExplainFlags:
    """Flags of the command."""

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
    seed: int = 0
    """Random seed of the random input (0 or more)."""
    json: Path | None = None
    """Write all numbers to this JSON file."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Print the computation of one weight."""
    name, flags = parse_of_run(ExplainFlags(), argv, prog=PROG, description=DESCRIPTION)
    run = flags.storage.load(name)
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
