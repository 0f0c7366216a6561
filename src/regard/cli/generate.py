"""`regard generate RUN [PROMPT]`: continue a prompt with a language model."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.cli.lines import open_lines, read_line
from regard.cli.parsing import read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import answer_output
from regard.cli.translate import SEARCH, SearchFlags
from regard.errors import InputError
from regard.fast.memory import keep_memory


@dataclass(frozen=True, kw_only=True)
class GenerateFlags(SearchFlags):
    """Continue a prompt with the language model of a run. PROMPT has the form of an input of the task; see
    `regard tasks`. RUN: a task's name, or the folder of a run."""

    input: Path | None = None
    """File of prompts, one per line, instead of PROMPT."""
    new: int | None = None
    """Number of tokens to generate. None: 20, or fewer if the model has fewer positions left."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Continue the prompt, and print prompt and continuation."""
    [name, *prompts], flags = read_command(
        GenerateFlags, argv, "regard generate RUN [PROMPT]", example="induction"
    )
    if bool(prompts) == (flags.input is not None):
        raise InputError("give a prompt, or a file of prompts with --input: `regard generate induction CADBFED`")
    loaded: Any = flags.storage.load(name)
    if loaded.task.answers != "tokens":
        raise InputError(f"run {name!r} is not a language model: try `regard test {name}`")
    keep_memory()
    prompts = prompts or _read_prompts(flags.input)
    beam = 1 if flags.beam is None else flags.beam
    options = {name: getattr(flags, name) for name in SEARCH} | {"beam": beam, "new": flags.new}
    output = answer_output()
    for prompt, ranked in zip(prompts, loaded.generate(prompts, **options), strict=True):
        for best in ranked:
            score = f"{best.log_probability:.4f}\t" if flags.scores else ""
            output.write(f"{score}{prompt}{best.text}\n")
    output.flush()


def _read_prompts(path: Path | None) -> list[str]:
    with open_lines(path) as file:
        return [read_line(line, number) for number, line in enumerate(file, start=1)]
