"""Models whose circuit is known, as subjects of explanation methods.

>>> known = compiled_model("reverse", seed=0)
>>> known.subject.attend("abc").prediction
'cba'
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple

from regard.errors import RegardError
from regard.runs.run_types import AnyRun
from regard.runs.sequence_run import PairRun
from regard.runs.tensor_run import AnswerRun, LanguageRun
from regard.training.config import FLAGS, combine
from regard_lab.programs.compiler import Circuit, Compiled, compile_program
from regard_lab.programs.language import Family
from regard_lab.programs.library import PROGRAMS
from regard_lab.programs.traps import TRAPS

Kind = Literal["compiled", "trained-in", "learned", "trap"]
RUNS: dict[Family, tuple[str, type[AnyRun]]] = {
    "encoder": ("query", AnswerRun),
    "decoder-only": ("decoder", LanguageRun),
    "encoder-decoder": ("transformer", PairRun),
}
"""Name of the model and class of the run, by family."""


class KnownModel(NamedTuple):
    """A model whose answer to the question "what does it use?" is known."""

    name: str
    kind: Kind
    family: Family
    seed: int
    subject: AnyRun
    circuit: Circuit | None
    """None for a learned model, of which only the relevant inputs are known."""


class ResistsError(RegardError):
    """Training did not make the model follow its program, so its circuit is not known."""


def run_compiled(compiled: Compiled, seed: int = 0) -> AnyRun:
    """Return a compiled model as a run in memory. Its folder does not exist, and it has no training history.

    `seed`: of the config, for untrained models of the same size.
    """
    program = compiled.program
    kind, run_class = RUNS[program.family]
    options: dict[str, Any] = {"vary_len": True} if program.family == "encoder" else {}  # all lengths are inputs
    parts = (compiled.task.config, compiled.config)
    for part in parts:
        options |= {name: getattr(part, name) for name in part.__dataclass_fields__}
    use = kind if kind in FLAGS else "tokens"
    options_class = combine(program.name, kind, type(parts[0]), type(parts[1]), use)
    config: Any = options_class(seed=seed, **options).run_config()
    folder = Path(f"compiled:{program.name}")
    task: Any = compiled.task
    model: Any = compiled.model
    return run_class(folder, config, 0, task, model)


def compiled_model(name: str, seed: int) -> KnownModel:
    """Return a compiled program of `PROGRAMS`; `seed`: of the heads that it does not need."""
    compiled = compile_program(PROGRAMS[name], seed=seed)
    return KnownModel(name, "compiled", PROGRAMS[name].family, seed, run_compiled(compiled, seed), compiled.circuit)


def trap_model(name: str, seed: int) -> KnownModel:
    trap = TRAPS[name].build(seed)
    return KnownModel(name, "trap", trap.program.family, seed, run_compiled(trap, seed), trap.circuit)
