"""Checkpoint of a run: weights to use, and the training state to resume from.

    checkpoint = Checkpoint.load(folder)          # weights, checked against their digest and the config
    Checkpoint(step=500, weights=weights, training=training).save(folder)

Saving replaces the weights first, then writes the training state, then removes older states. Each file is
replaced atomically, so at any moment there is a model to use and a state to resume from. A training that is
interrupted between the two repeats the steps since its last state, and arrives at the same model. Nothing is
unpickled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import InputError
from regard.io import explain_missing_folder, refuse_links, remove_quietly, write_inside
from regard.io.reading import DamageError, is_file, is_folder, list_steps
from regard.training.digests import config_mismatch, is_intact
from regard.training.run_folder import RunFolder
from regard.training.tensor_file import Expected, pack_tensors, read_tensors


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Tensors of a run after `step` training steps."""

    step: int
    """Training steps of the training state, or of the weights without such a state."""
    weights: Mapping[str, Tensor] | None = None
    """Weights to use; None keeps the stored ones."""
    training: Mapping[str, Tensor] | None = None
    """Parameters, optimizer moments, generator, position in the data, validation history; None for a run that
    cannot be resumed."""

    def save(self, folder: RunFolder | str | Path) -> None:
        """Write the checkpoint into a run's folder; raises `MachineError` and leaves the last one intact."""
        folder = _as_folder(folder)
        if self.weights is not None:
            self.save_weights(folder)
        if self.training is not None:
            self.save_training(folder)

    def save_weights(self, folder: RunFolder) -> None:
        """Replace the weights to use."""
        assert self.weights is not None
        self._write(folder, folder.model_file, self.weights)

    def save_training(self, folder: RunFolder) -> None:
        """Write the training state, then remove older ones."""
        assert self.training is not None
        self._write(folder, folder.path / "trainer" / f"step-{self.step}.safetensors", self.training)
        remove_older_states(folder)

    @classmethod
    def load(
        cls,
        folder: RunFolder | str | Path,
        expected: Expected | None = None,
        *,
        training: Expected | None = None,
    ) -> "Checkpoint":
        """Read the weights of a run, and with `training` also the state of its training.

        `expected`, `training`: shape and type of each tensor (`tensor_specs`); an empty `training` accepts any.
        Raises `InputError` for a file that is missing, damaged, edited, of another run, or has other tensors.
        """
        folder = _as_folder(folder)
        weights, step = _read(folder, folder.model_file, expected)
        if training is None:
            return cls(step=step, weights=weights)
        states = list_steps(folder.path / "trainer")
        if not states:
            raise InputError(
                f"run {str(folder.path)!r} is incomplete: the state of its training is missing; train it again"
            )
        state, step = _read(folder, states[-1], training or None)
        return cls(step=step, weights=weights, training=state)

    def save_snapshot(self, folder: RunFolder) -> None:
        """Write the weights in half precision as a snapshot; raises `MachineError` if the disk refuses."""
        assert self.weights is not None
        small = {
            name: value.half() if value.is_floating_point() else value for name, value in self.weights.items()
        }
        self._write(folder, folder.path / "snapshots" / f"step-{self.step}.safetensors", small)

    @classmethod
    def load_snapshot(cls, folder: RunFolder, path: Path, expected: Expected | None = None) -> "Checkpoint":
        """Read a snapshot; raises `InputError` if it is damaged or has other tensors than `expected`."""
        tensors, step = _read(folder, path, expected)
        weights = {name: value.float() if value.dtype == torch.half else value for name, value in tensors.items()}
        return cls(step=step, weights=weights)

    def _write(self, folder: RunFolder, path: Path, tensors: Mapping[str, Tensor]) -> None:
        write_inside(folder.path, path, pack_for_run(folder, tensors, self.step))


def pack_for_run(folder: RunFolder, tensors: Mapping[str, Tensor], step: int) -> bytes:
    """Return the bytes of a tensor file of a run; raises `MachineError` if the run was removed."""
    with explain_missing_folder(folder.path):
        return pack_tensors(tensors, step, folder.config_text)


def remove_older_states(folder: RunFolder) -> None:
    """Remove all training states but the last; a killed process may have left several."""
    refuse_links(folder.path / "trainer")
    for older in list_steps(folder.path / "trainer")[:-1]:
        remove_quietly(older)


def _as_folder(folder: RunFolder | str | Path) -> RunFolder:
    return folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))


def _read(folder: RunFolder, path: Path, expected: Expected | None) -> tuple[dict[str, Tensor], int]:
    """Return the tensors of a file of a run and their step, after checking digest, config and step."""
    if not is_file(path) and not is_folder(path):
        raise InputError(f"run {str(folder.path)!r} is incomplete: {path.name} is missing; train it again")
    try:
        file = read_tensors(path, expected)
    except DamageError as error:
        raise folder.damaged_file(path.name, error) from error
    stored = folder.stored()
    if not file.intact:
        folder.refuse_edited(path.name, "it has changed since it was written (its names, shapes, step or values)")
    elif file.digest is None and folder.has_digests:
        folder.refuse_edited(path.name, "its digest is missing")
    elif folder.trust_edited and not is_intact(stored):
        pass  # reading the config has reported the edit
    elif (mismatch := config_mismatch(file, stored, path.name)) is not None:
        folder.refuse_edited(path.name, mismatch)
    if path != folder.model_file and path.stem != f"step-{file.step}":
        raise folder.damaged_file(path.name, f"it is of step {file.step}")
    return file.tensors, file.step
