"""`regard explain RUN`: how one weight came about, number by number."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.parsing import parse_of_run
from regard.cli.terminal import print_table
from regard.io import write_json
from regard.runs import SAVEPATH, load

if TYPE_CHECKING:
    from regard.runs import AnyRun


PROG = "regard explain"
DESCRIPTION = (
    "Show how a head came to its weights for one output step, number by number: query, key, score, softmax, "
    "values, context, and what the model made of them. RUN: a task's name, or a run's folder."
)


@dataclass(frozen=True, kw_only=True)
class ExplainFlags:
    """All flags of the command."""

    input: str | None = None
    """What the run answers. None: an input that is drawn, where the task draws some."""
    layer: str | None = None
    """Attention layer, such as cross or encoder.0.self_attention. None: the first in which outputs look at
    inputs."""
    head: int = 0
    """Head, from 0."""
    output: int = 0
    """Step that looks, from 0."""
    key: int | None = None
    """Step looked at, from 0. None: the one with the largest weight."""
    temperature: float = 1.0
    """What the head's scores are divided by before the softmax: above 1 its weights are more even, below 1 more
    pointed."""
    seed: int = 0
    """Random seed of the drawn input (0 or more)."""
    json: Path | None = None
    """File that all numbers are written to, as JSON."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Explain as `argv` asks."""
    name, flags = parse_of_run(ExplainFlags(), argv, prog=PROG, description=DESCRIPTION)
    loaded: AnyRun = load(
        name, savepath=flags.savepath, trust_code=flags.trust_code, trust_edited=flags.trust_edited
    )
    found = loaded.explain(
        flags.input,
        layer=flags.layer,
        head=flags.head,
        output=flags.output,
        key=flags.key,
        temperature=flags.temperature,
        seed=flags.seed,
    )
    if flags.json is not None:
        write_json(flags.json, found.json(), indent=1)
    sys.stdout.write(f"{loaded.folder}: {loaded.name}, input {found.input!r}\n")
    print_table(found.table())
