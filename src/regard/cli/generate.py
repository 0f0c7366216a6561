"""`regard generate RUN [PROMPT]`: continue a prompt with a language model."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.cli.lines import open_lines, read_line
from regard.cli.parsing import first_word, parse, take_text, wants_help
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import answer_output
from regard.errors import InputError
from regard.fast.memory import keep_memory

PROG = "regard generate"
DESCRIPTION = (
    "Continue a prompt with the language model of a run. PROMPT has the form of an input of the task; see "
    "`regard tasks`. RUN: a task's name, or the folder of a run."
)


@dataclass(frozen=True, kw_only=True)
class GenerateFlags:
    """Flags of the command."""

    input: Path | None = None
    """File of prompts, one per line, instead of PROMPT."""
    new: int | None = None
    """Number of tokens to generate. None: 20, or fewer if the model has fewer positions left."""
    beam: int = 1
    """Beam width; 1 is greedy search."""
    n_best: int = 1
    """Number of continuations, at most the beam width. Each continuation has its own line, best first."""
    temperature: float = 0.0
    """If above 0, sample each token from the model's distribution at this temperature instead of searching."""
    top_k: int = 0
    """With --temperature: sample only from this number of likeliest tokens; 0: all tokens."""
    top_p: float = 1.0
    """With --temperature: sample from the fewest tokens whose total probability is at least this value."""
    seed: int = 0
    """Random seed of sampling (0 or more). The same prompt and seed give the same continuation."""
    scores: bool = False
    """Write each continuation's log-probability (nats) and a tab before it."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Continue the prompt, and print prompt and continuation."""
    if wants_help(argv[:1]):
        parse(GenerateFlags(), argv, prog=f"{PROG} RUN [PROMPT]", description=DESCRIPTION)
    name, argv = first_word(argv, what="run", prog=PROG, example="induction")
    text, argv = take_text(argv, GenerateFlags)
    flags = parse(GenerateFlags(), argv, prog=f"{PROG} {name} [PROMPT]", description=DESCRIPTION)
    if (text is None) == (flags.input is None):
        raise InputError("give a prompt, or a file of prompts with --input: `regard generate induction CADBFED`")
    loaded: Any = flags.storage.load(name)
    if loaded.task.answers != "tokens":
        raise InputError(f"run {name!r} is not a language model: try `regard test {name}`")
    keep_memory()
    prompts = _read_prompts(flags.input) if text is None else [text]
    options = {option.name: getattr(flags, option.name) for option in dataclasses.fields(flags)}
    for option in ("input", "scores", "storage"):
        del options[option]
    output = answer_output()
    for prompt, ranked in zip(prompts, loaded.generate(prompts, **options), strict=True):
        for best in ranked:
            score = f"{best.log_probability:.4f}\t" if flags.scores else ""
            output.write(f"{score}{prompt}{best.text}\n")
    output.flush()


def _read_prompts(path: Path | None) -> list[str]:
    with open_lines(path) as file:
        return [read_line(line, number) for number, line in enumerate(file, start=1)]
