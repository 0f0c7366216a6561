"""Flags shared by all commands that open a stored run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.runs.loading import SAVEPATH, load, load_translator

if TYPE_CHECKING:
    from regard.runs.run_types import AnyRun
    from regard.runs.sequence_run import SequenceRun


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """Location of the runs, and checks on their files."""

    savepath: Path = Path(SAVEPATH)
    """Directory of the runs."""
    trust_code: bool = False
    """Execute the custom code of the run (task, model, score). Read that code first."""
    trust_edited: bool = False
    """Use the run even if its files were edited or come from different runs. The differences are printed."""

    def load(self, name: str) -> AnyRun:
        """Load the run `name`: a task's name under `savepath`, or the path of a run."""
        return load(name, **vars(self))

    def load_translator(self, name: str) -> SequenceRun:
        """Load the run `name`. Raises `InputError` unless the run maps sequences to sequences."""
        return load_translator(name, **vars(self))

    def load_reverse(self, name: str | None, run: SequenceRun) -> SequenceRun | None:
        """Load the run that translates in the opposite direction of `run`; None without a name.

        Raises `InputError` for a run of another task, for `run` itself, and for a run on equal text.
        """
        if name is None:
            return None
        reverse = self.load_translator(name)
        text = run.config.text.get("train")
        # The text in the opposite direction has other digests.
        same = text is not None and reverse.config.text.get("train") == text
        if reverse.name != run.name or reverse.folder.resolve() == run.folder.resolve() or same:
            raise InputError(f"reverse {name!r} must be another run of task {run.name}, in the opposite direction")
        return reverse
