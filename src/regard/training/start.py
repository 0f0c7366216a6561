"""The begin of a training: a model drawn from its seed or taken from another run, and the state around it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.attention import find_layer, keep_heads
from regard.errors import InputError
from regard.models import TaskModel
from regard.own import OwnCodeError, told
from regard.streams import generator_of
from regard.tasks import AnyTask
from regard.training.config import RunConfig
from regard.training.folder import RunFolder
from regard.training.freezing import freeze, trained_parameters
from regard.training.objective import objective_of
from regard.training.state import TrainingState
from regard.training.tensors import kept
from regard.training.trial import owned, try_out, try_parts
from regard.training.world import ALONE, World


def build_model(config: RunConfig, task: AnyTask) -> TaskModel:
    """Return the model of a run, drawn from its seed, without the heads that were taken out of it; the global
    random state is left as it was.

    Raises `InputError` where these are not its heads, or a model of one's own cannot be built.
    """
    kind, sizes = config.model_kind, dict(task.sizes)
    if task.answers == "numbers":
        sizes["vary_len"] = config.training.vary_len
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.training.seed)
        try:
            model = kind.model(config.model, **sizes)
        except InputError:
            raise
        except Exception as error:  # a user's class can fail in any way
            if not (own := owned(config)):
                raise
            raise OwnCodeError(f"{' with '.join(own)} cannot be built: {told(error)}; mend it") from error
    for layer, heads in config.kept_heads.items():
        keep_heads(find_layer(model, layer), heads)
    return model


def start(
    config: RunConfig, task: AnyTask, world: World = ALONE, before: Mapping[str, Tensor] | None = None
) -> TrainingState:
    """Return a training before its first step, with the parameters of the run `before` it where there is one.

    Raises `InputError` where the model cannot be split as asked, these parameters do not fit it, or what of it is
    the user's own does not do what it should.
    """
    settings = config.training
    generator = generator_of(settings.seed, "train")
    try_parts(config.model)
    model = _begun(config, task, before)
    try_out(config, task, model)
    objective = objective_of(model.to(world.device), settings, generator)
    if settings.sharded:
        from regard.training.sharding import ShardedState, shard  # brings much of torch.distributed

        shard(objective, world)
        optimizer = settings.how.optimizer(objective.model)
        average = _average(objective.model, settings.average)
        replica = _begun(config, task, before) if world.first else None
        return ShardedState(objective, optimizer, generator, 0, average, replica=replica)
    average = _average(objective.model, settings.average)
    return TrainingState(objective, settings.how.optimizer(objective.model), generator, 0, average)


def _begun(config: RunConfig, task: AnyTask, before: Mapping[str, Tensor] | None) -> TaskModel:
    """Return the model of a run, with the parameters `before` where there are any, frozen in part as asked."""
    model = build_model(config, task)
    if before is not None:
        mine = kept(model.state_dict())
        for name, found in kept(before).items():
            if mine.get(name) != found:
                raise InputError(
                    f"parameter {name} is {found} in the run to begin from, and {mine.get(name, 'missing')} "
                    f"here: its sizes are to be the same, max_len too where positions are learned"
                )
        model.load_state_dict(before)
    freeze(model, config.training.freeze)
    return model


def _average(model: nn.Module, decay: float) -> dict[str, Tensor]:
    """Return where the moving average of the trained parameters begins; nothing where none is kept."""
    return {name: each.detach().clone() for name, each in trained_parameters(model).items()} if decay else {}


def load_parameters(model: nn.Module, folder: RunFolder) -> int:
    """Put a run's parameters into its model, and return the step they belong to.

    Raises `InputError` where they are missing, damaged, or do not fit the run's config.
    """
    parameters, step = folder.read_model(kept(model.state_dict()))
    model.load_state_dict(parameters)
    return step
