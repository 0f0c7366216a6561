"""Training state, and its checkpoints in the folder of a run.

    checkpoint = Checkpoint.load(folder)          # weights, checked against their digest and the config
    Checkpoint(step=500, weights=weights, training=training).save(folder)

A training step depends on the parameters, the moments of the optimizer, the generator of the samples, the
position in the corpus and the step number. A checkpoint contains all these values. The losses of a resumed
training run are therefore the same as those of an uninterrupted run, bit for bit on a CPU.

Saving replaces the weights, then writes the training state, then removes older states. Each file is replaced
atomically, so the folder always contains a usable model and a state for resuming. If a training run is
interrupted between these writes, the resumed run repeats the steps since the last state, and produces the same
model. No file is unpickled. `sharding.py` writes the training state of several processes that share a model.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from regard import fast
from regard.errors import InputError
from regard.fast.adam import fused_adam_step, fused_lerp
from regard.io import (
    DamageError,
    explain_missing_folder,
    has_valid_digest,
    is_file,
    is_folder,
    list_steps,
    refuse_links,
    remove_quietly,
    write_inside,
)
from regard.training.config import Recipe
from regard.training.distributed import SINGLE_PROCESS, DistributedContext
from regard.training.objective import Objective
from regard.training.run_folder import Expected, RunFolder, config_mismatch, pack_tensors, read_tensors, tensor_specs


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Tensors of a run after `step` training steps."""

    step: int  # Number of training steps of the training state, or of the weights if there is no training state
    weights: Mapping[str, Tensor] | None = None  # Weights for use; None leaves the stored weights unchanged
    training: Mapping[str, Tensor] | None = None
    """Parameters, optimizer moments, generator, data position, validations. None without resumption."""

    def save(self, folder: RunFolder | str | Path) -> None:
        """Write the checkpoint to a run's folder. On failure, raises `MachineError`, and the last one is intact."""
        folder = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
        files = {}
        if self.weights is not None:
            files["model.safetensors"] = self.weights
        if self.training is not None:
            files[f"trainer/step-{self.step}.safetensors"] = self.training
        _write(folder, files, self.step)
        if self.training is not None:
            remove_older_states(folder)

    @classmethod
    def load(
        cls, folder: RunFolder | str | Path, expected: Expected | None = None, *, training: Expected | None = None
    ) -> Self:
        """Read the weights of a run, and with `training` also its training state.

        `expected`, `training`: shape and dtype of each tensor (`tensor_specs`); an empty `training` accepts all
        tensors. Raises `InputError` for a file that is missing, damaged or edited, that belongs to another run,
        or that contains unexpected tensors.
        """
        folder = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
        weights, step = _read(folder, folder.model_file, expected)
        if training is None:
            return cls(step=step, weights=weights)
        states = list_steps(folder.path / "trainer")
        if not states:
            raise InputError(f"run {str(folder.path)!r} is incomplete: its training state is missing; train it again")
        state, step = _read(folder, states[-1], training or None)
        return cls(step=step, weights=weights, training=state)

    def save_weights(self, folder: RunFolder, kind: Literal["kept", "snapshots"]) -> None:
        """Write the weights as a kept model, or in half precision as a snapshot. Raises `MachineError` if the
        file cannot be written."""
        assert self.weights is not None
        weights = self.weights
        if kind == "snapshots":
            weights = {name: value.half() if value.is_floating_point() else value for name, value in weights.items()}
        _write(folder, {f"{kind}/step-{self.step}.safetensors": weights}, self.step)

    @classmethod
    def load_weights(cls, folder: RunFolder, path: Path, expected: Expected | None = None) -> Self:
        """Read a snapshot or a kept model, in float32. Raises `InputError` if it is damaged or not `expected`."""
        tensors, step = _read(folder, path, expected)
        weights = {name: value.float() if value.dtype == torch.half else value for name, value in tensors.items()}
        return cls(step=step, weights=weights)


def load_snapshots(folder: RunFolder, model: nn.Module) -> Iterator[int]:
    """Load each snapshot of a run into a model, oldest first, and yield its step.

    Raises `InputError` for a run without snapshots, and for a damaged snapshot.
    """
    folder.check_snapshots()
    expected = tensor_specs(model.state_dict(), half=True)
    for path in folder.snapshots:
        snapshot = Checkpoint.load_weights(folder, path, expected)
        model.load_state_dict(snapshot.weights or {})
        yield snapshot.step


def copy_tensors(source: RunFolder, target: RunFolder) -> None:
    files = [source.model_file, *source.snapshots, *list_steps(source.kept_folder)]
    for path in files:
        tensors, step = _read(source, path, None)
        _write(target, {str(path.relative_to(source.path)): tensors}, step)


def remove_older_states(folder: RunFolder) -> None:
    """Remove all training states except the last. A killed process may have left several states."""
    refuse_links(folder.path / "trainer")
    for older in list_steps(folder.path / "trainer")[:-1]:
        remove_quietly(older)


def _write(folder: RunFolder, files: Mapping[str, Mapping[str, Tensor]], step: int) -> None:
    """Write tensor files with the config of the run. Raises `MachineError` if the run was removed."""
    with explain_missing_folder(folder.path):
        config = folder.config_text
    for name, tensors in files.items():
        write_inside(folder.path, folder.path / name, pack_tensors(tensors, step, config))


def _read(folder: RunFolder, path: Path, expected: Expected | None) -> tuple[dict[str, Tensor], int]:
    """Return the tensors of a file and their training step, after checking digest, config and step."""
    if not is_file(path) and not is_folder(path):
        raise InputError(f"run {str(folder.path)!r} is incomplete: {path.name} is missing; train it again")
    try:
        file = read_tensors(path, expected)
    except DamageError as error:
        raise folder.damaged_file(path.name, error) from error
    stored = folder.stored()
    if file.digest is None:
        folder.refuse_edited(path.name, "its digest is missing")
    elif not file.intact:
        folder.refuse_edited(path.name, "the file has changed since it was written (its names, shapes, step or values)")
    elif folder.trust_edited and not has_valid_digest(stored):
        pass  # reading the config has reported the edit
    elif (mismatch := config_mismatch(file.config, stored, path.name)) is not None:
        folder.refuse_edited(path.name, mismatch)
    if path != folder.model_file and path.stem != f"step-{file.step}":
        raise folder.damaged_file(path.name, f"it is of step {file.step}")
    return file.tensors, file.step


# Adam (Kingma and Ba 2015, algorithm 1) over named parameters, with decoupled weight decay (AdamW, Loshchilov
# and Hutter 2019, algorithm 2).
#
# `torch.optim.AdamW` or `fast.adam` computes the updates. This class multiplies the learning rate by a factor for
# each parameter, and stores the moments by parameter name, as in a checkpoint.


EPSILON = 1e-8  # Number added to the square root of the second moment, as in the paper


class Adam:
    """Adam with a learning rate for each training step, multiplied by a factor for each parameter.

    `lr_factors`: factors by parameter name. `weight_decay`: decoupled decay of matrices and embeddings.
    `moments`: `step`, `mean` and `square`, each by parameter name.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        betas: tuple[float, float],
        lr_factors: Mapping[str, float],
        weight_decay: float = 0.0,
    ) -> None:
        self.parameters = dict(parameters)
        self.betas = betas
        self.lr_factors = dict(lr_factors)
        # Biases and the parameters of normalizations do not decay.
        self.decays = {
            name: weight_decay if parameter.dim() > 1 else 0.0 for name, parameter in self.parameters.items()
        }
        self._groups: dict[tuple[float, float], list[str]] = defaultdict(list)
        for name in self.parameters:
            self._groups[self.lr_factors[name], self.decays[name]].append(name)
        # The step counts are views of one tensor, so that one operation increments all counts. On a GPU, the
        # step counts must be in GPU memory.
        device = next((parameter.device for parameter in self.parameters.values()), None)
        self._counts = torch.zeros(len(self.parameters), device=device)
        self.moments = {
            name: {
                "step": count,
                "mean": torch.zeros_like(parameter, requires_grad=False),
                "square": torch.zeros_like(parameter, requires_grad=False),
            }
            for count, (name, parameter) in zip(self._counts.unbind(), self.parameters.items(), strict=True)
        }

    @property
    def param_groups(self) -> list[dict[str, list[nn.Parameter]]]:
        return [{"params": list(self.parameters.values())}]

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def step(self, lr: float) -> None:
        """Update every parameter that has a gradient, with the rate `lr` multiplied by the parameter's factor."""
        names = [name for name, parameter in self.parameters.items() if parameter.grad is not None]
        if fast.enabled():
            self._fused_step(lr, set(names))
        else:
            self._reference_step(lr, names)

    def _reference_step(self, lr: float, names: list[str]) -> None:
        groups = [
            {"params": [self.parameters[name]], "lr": lr * self.lr_factors[name], "weight_decay": self.decays[name]}
            for name in names
        ]
        optimizer = torch.optim.AdamW(groups, betas=self.betas, eps=EPSILON, foreach=False)
        for name in names:
            moments = self.moments[name]
            optimizer.state[self.parameters[name]] = {
                "step": moments["step"],
                "exp_avg": moments["mean"],
                "exp_avg_sq": moments["square"],
            }
        optimizer.step()

    def _fused_step(self, lr: float, with_grad: set[str]) -> None:
        if len(with_grad) == len(self.parameters):
            self._counts += 1
        else:
            for name in with_grad:
                self.moments[name]["step"] += 1
        for (factor, decay), group in self._groups.items():
            names = [name for name in group if name in with_grad]
            parameters = [self.parameters[name] for name in names]
            if names:
                fused_adam_step(
                    parameters,
                    [parameter.grad for parameter in parameters if parameter.grad is not None],
                    [self.moments[name] for name in names],
                    lr=lr * factor,
                    betas=self.betas,
                    epsilon=EPSILON,
                    weight_decay=decay,
                )


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def make_optimizer(model: nn.Module, recipe: Recipe) -> Adam:
    """Return Adam for the trainable parameters of a model, with the recipe's factor for the rate of the output layer.

    >>> from regard.training.config import RECIPES
    >>> make_optimizer(nn.Linear(2, 1), RECIPES["seed"]).lr_factors
    {'weight': 1.0, 'bias': 1.0}
    """
    parameters = trained_parameters(model)
    factors = {name: recipe.output_lr if name.startswith("output.") else 1.0 for name in parameters}
    return Adam(parameters, betas=recipe.betas, lr_factors=factors, weight_decay=recipe.weight_decay)


# The state of a training run.


@dataclass
class Progress:
    """Position in the data and validation history.

    >>> progress = Progress()
    >>> [progress.note(bleu) for bleu in (10.0, 12.0, 11.0)], progress.out_of_patience(1)
    ([True, True, False], True)
    """

    place: tuple[int, int, int] = (0, 0, 0)  # Position of the next batch in the corpus: epoch, pool, batch
    best: float = float("-inf")  # Best criterion of all validations; larger is better
    since_best: int = 0
    """Number of validations since the best validation; -1 until the criterion moves from its first value."""

    def note(self, value: float) -> bool:
        """Record the criterion of a validation, and return whether its model is the best so far.

        Of two equally good models, the later is considered better, because it was trained longer.
        """
        first, best, still = self.best == float("-inf"), value >= self.best, value == self.best
        if first or (still and self.since_best < 0):
            self.since_best = -1
        elif value > self.best:
            self.since_best = 0
        else:
            self.since_best = max(self.since_best, 0) + 1
        self.best = value if best else self.best
        return best

    def out_of_patience(self, patience: int) -> bool:
        """Return whether the criterion did not improve in the last `patience` validations; False if it is 0."""
        return 0 < patience <= self.since_best


@dataclass
class TrainingState:
    """All values that change during training, after `step` training steps."""

    objective: Objective[Any, Any]
    optimizer: Adam
    generator: torch.Generator
    step: int
    average: dict[str, Tensor] = field(default_factory=dict)
    """Moving averages of the trained parameters by name; empty without averaging."""
    progress: Progress = field(default_factory=Progress)
    scaler: torch.amp.GradScaler | None = None  # Scale of the loss in float16 and its history; None for other dtypes

    @property
    def model(self) -> nn.Module:
        model: nn.Module = self.objective.model
        return model

    @torch.no_grad()
    def update_average(self, decay: float) -> None:
        """Update the moving average with the parameters. The decay is smaller in the first training steps, to
        reduce the weight of the initial values."""
        if self.average:
            decay = min(decay, (1 + self.step) / (10 + self.step))
            parameters = dict(self.model.named_parameters())
            if fast.enabled():
                current = [parameters[name] for name in self.average]
                fused_lerp(list(self.average.values()), current, 1 - decay)
            else:
                for name, average in self.average.items():
                    average.lerp_(parameters[name], 1 - decay)

    @contextmanager
    def averaged(self) -> Iterator[nn.Module]:
        """Yield the model with the averaged parameters, in evaluation mode."""
        parameters = dict(self.model.named_parameters())
        current = {name: parameters[name].data for name in self.average}
        for name, value in self.average.items():
            parameters[name].data = value
        for module in self.model.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()  # cuDNN needs the weights of a layer in one block of memory
        training = self.model.training
        try:
            yield self.model.eval()
        finally:
            for name, value in current.items():
                parameters[name].data = value
            self.model.train(training)

    def weights(self) -> dict[str, Tensor]:
        """Return the weights for use after training: the averages, if any, or the parameters."""
        return self.model.state_dict() | self.average

    def release_model(self) -> nn.Module:
        """Return the model for use after training, without gradients and without frozen parts."""
        self.optimizer.zero_grad()
        return self.model.requires_grad_(True)

    def tensors(self) -> dict[str, Tensor]:
        tensors = {"generator": self.generator.get_state()}
        tensors |= {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"average/{name}": value for name, value in self.average.items()}
        for name, moments in self.optimizer.moments.items():
            tensors |= {f"adam/{name}:{moment}": value for moment, value in moments.items()}
        tensors["progress/place"] = torch.tensor(self.progress.place)
        tensors["progress/best"] = torch.tensor(self.progress.best, dtype=torch.float64)
        tensors["progress/since_best"] = torch.tensor(self.progress.since_best)
        if self.scaler is not None:
            scaler = self.scaler.state_dict()
            tensors["scaler/scale"] = torch.tensor(scaler["scale"], dtype=torch.float64)
            tensors["scaler/finite_steps"] = torch.tensor(scaler["_growth_tracker"])
        return tensors

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the state from the result of `tensors`. Raises `RuntimeError` or `ValueError` for impossible values."""
        self.generator.set_state(tensors["generator"])
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_(tensors[f"model/{name}"])
        for name, value in self.average.items():
            value.copy_(tensors[f"average/{name}"])
        for name, moments in self.optimizer.moments.items():
            for moment, value in moments.items():
                value.copy_(tensors[f"adam/{name}:{moment}"])
        epoch, pool, batch = tensors["progress/place"].tolist()
        self.progress = Progress(
            (epoch, pool, batch), tensors["progress/best"].item(), int(tensors["progress/since_best"].item())
        )
        if self.scaler is not None:
            scale, steps = tensors["scaler/scale"].item(), int(tensors["scaler/finite_steps"].item())
            self.scaler.load_state_dict({**self.scaler.state_dict(), "scale": scale, "_growth_tracker": steps})

    def initial(self) -> dict[str, Tensor]:
        """Return the parameters before the first step, unsharded."""
        return self.weights()

    def save_first(self, folder: RunFolder) -> None:
        """Write the first checkpoint of a new run. Called only in the first process."""
        self.save(folder)

    def save(self, folder: RunFolder, context: DistributedContext = SINGLE_PROCESS, *, use: bool = True) -> None:
        """Write a checkpoint in the first process. `use`: also replace the weights for use."""
        if context.first:
            weights = self.weights() if use else None
            Checkpoint(step=self.step, weights=weights, training=self.tensors()).save(folder)

    def restore(self, folder: RunFolder) -> None:
        """Load the last checkpoint. Raises `InputError` if the checkpoint is missing, damaged or incompatible."""
        # The weights are also checked, so that an edited file raises an error before the next checkpoint overwrites it.
        checkpoint = Checkpoint.load(folder, training=tensor_specs(self.tensors()))
        assert checkpoint.training is not None
        self.step = checkpoint.step
        try:
            self.load_tensors(checkpoint.training)
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"run {str(folder.path)!r} is damaged: the state of its training has impossible values; "
                f"restore a copy of the run, or train it again"
            ) from error
