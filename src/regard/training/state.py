"""The state of a training: all that a run needs to go on exactly as before.

What a step does depends on the parameters, the optimizer's moments, the generator of the samples and the
number of the step, and a checkpoint holds these four. So a training that was interrupted and resumed makes
the same losses, to the last bit on a CPU, as one that was not.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.models import PoolingModel, QueryModel, RecurrentSeq2Seq, Transformer
from regard.tasks import AnyTask, PairTask
from regard.training.adam import Adam
from regard.training.config import RunConfig
from regard.training.runs import RunFolder
from regard.training.streams import generator_of

MOMENTS = "adam/"
"""Prefix of the optimizer's tensors in the trainer file."""


@dataclass
class TrainingState:
    """All that changes while training, as of `step` finished steps."""

    model: nn.Module
    optimizer: Adam
    generator: torch.Generator
    step: int

    def trainer_tensors(self) -> dict[str, Tensor]:
        """Return optimizer and random state as named tensors."""
        tensors = {"generator": self.generator.get_state()}
        for name, moments in self.optimizer.moments.items():
            tensors |= {f"{MOMENTS}{name}:{moment}": value for moment, value in moments.items()}
        return tensors

    def load_trainer_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take up what `trainer_tensors` returned; raises `KeyError` or `RuntimeError` where it is off."""
        self.generator.set_state(tensors["generator"])
        for name, moments in self.optimizer.moments.items():
            for moment, value in moments.items():
                value.copy_(tensors[f"{MOMENTS}{name}:{moment}"])

    def save(self, folder: RunFolder) -> None:
        """Write a checkpoint."""
        folder.write_checkpoint(self.step, self.model.state_dict(), self.trainer_tensors())


def build_model(config: RunConfig, task: AnyTask) -> nn.Module:
    """Return the model of a run, drawn from its seed; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.training.seed)
        if isinstance(task, PairTask):
            symbols = {
                "source_symbols": len(task.source_vocabulary),
                "target_symbols": len(task.target_vocabulary),
            }
            if config.kind == "transformer":
                longest = max(task.longest_source, task.longest_target) + 1  # and the end of sequence
                return Transformer(config.model, longest=longest, **symbols)
            return RecurrentSeq2Seq(config.model, **symbols)
        if config.kind == "pooling":
            return PoolingModel(
                config.model, letters=len(task.vocabulary), outputs=task.outputs, classes=task.classes
            )
        model = QueryModel(
            config.model,
            letters=len(task.vocabulary),
            input_len=task.input_len,
            outputs=task.outputs,
            classes=task.classes,
            rest=config.training.vary_len,
        )
        start = config.training.how.start
        assert start is not None, "a query model's recipe says how it starts"
        model.initialise(start)
    return model


def start(config: RunConfig, task: AnyTask) -> TrainingState:
    """Return a training before its first step."""
    model = build_model(config, task)
    optimizer = config.training.how.optimizer(model)
    return TrainingState(model, optimizer, generator_of(config.training.seed, "train"), step=0)


def restore(folder: RunFolder, config: RunConfig, task: AnyTask) -> TrainingState:
    """Return the training that `folder` holds; raises `InputError` where its files are missing or damaged."""
    state = start(config, task)
    state.step = load_parameters(state.model, folder)
    try:
        state.load_trainer_tensors(folder.read_trainer(state.step))
    except (KeyError, RuntimeError) as error:
        raise InputError(
            f"run {str(folder.path)!r} is damaged: its trainer state does not fit its config ({error})"
        ) from error
    return state


def load_parameters(model: nn.Module, folder: RunFolder) -> int:
    """Put a run's parameters into its model, and return the step they belong to.

    Raises `InputError` where they are missing, damaged, or do not fit the run's config.
    """
    parameters, step = folder.read_model()
    try:
        model.load_state_dict(parameters)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"run {str(folder.path)!r} is damaged: model and config do not fit ({reason})"
        ) from error
    return step
