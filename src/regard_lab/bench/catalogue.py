"""All models of the bench: compiled programs, traps, trained-in programs and learned tasks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import unknown_choice
from regard_lab.bench.known_models import Kind, KnownModel, compiled_model, trap_model
from regard_lab.bench.learned import LEARNED, learned_model
from regard_lab.bench.trained_in import TRAINED_IN, trained_in_model
from regard_lab.programs.library import PROGRAMS
from regard_lab.programs.traps import TRAPS

ALL = "all"
NAMES: dict[Kind, Iterable[str]] = {
    "compiled": PROGRAMS, "trap": TRAPS, "trained-in": TRAINED_IN, "learned": LEARNED
}  # fmt: skip
"""Names of the models of each kind."""
QUICK = (
    "trained-in/previous",
    "learned/counting",
    "learned/difference",
    "learned/signal",
    "learned/induction",
)
"""Trained models of the quick bench, besides all compiled models and traps: those that train quickly. With five
seeds, two cores need about 10 minutes."""


@dataclass(frozen=True)
class KnownModelChoice:
    """One model of the bench, which is built when it is measured."""

    name: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    def build(self, seed: int, folder: Path) -> KnownModel:
        """Return the model; a model that is trained is stored in `folder`, and read from there if it exists."""
        if self.kind == "learned":
            return learned_model(self.name, seed, folder / "models")
        if self.kind == "trained-in":
            return trained_in_model(self.name, seed, folder / "models")
        return (trap_model if self.kind == "trap" else compiled_model)(self.name, seed)


def choose_models(choice: str | Sequence[str] | None = None, *, quick: bool = False) -> list[KnownModelChoice]:
    """Return the chosen models, each once. None: all models, or with `quick` all except most trained models.

    A choice is "all", a kind (compiled, trap, trained-in, learned), the name of a model, KIND/NAME, or several of
    these separated by commas. A name that several kinds have chooses all of them. Raises `InputError` for an
    unknown name.

    >>> [str(model) for model in choose_models("learned/signal,dates")]
    ['learned/signal', 'learned/dates']
    """
    known = [KnownModelChoice(name, kind) for kind, names in NAMES.items() for name in names]
    if choice is None:
        return [
            model for model in known if not quick or model.kind in ("compiled", "trap") or str(model) in QUICK
        ]
    texts = [text for part in ([choice] if isinstance(choice, str) else choice) for text in part.split(",")]
    chosen: dict[KnownModelChoice, None] = {}
    for text in texts:
        fitting = [model for model in known if text in (ALL, model.kind, model.name, str(model))]
        if not fitting:
            raise unknown_choice("model", text, [ALL, *NAMES, *dict.fromkeys(model.name for model in known)])
        chosen |= dict.fromkeys(fitting)
    return list(chosen)
