"""The begin of a training: a model drawn from its seed or taken from another run, and the state around it."""

from collections.abc import Mapping

from torch import Tensor, nn

from regard.errors import InputError
from regard.models import TaskModel
from regard.streams import make_generator
from regard.tasks import AnyTask
from regard.training.building import build_model
from regard.training.config import RunConfig
from regard.training.freezing import freeze, trained_parameters
from regard.training.objective import objective_of
from regard.training.state import TrainingState
from regard.training.tensors import kept
from regard.training.trial import try_out, try_parts
from regard.training.world import ALONE, World


def start(
    config: RunConfig, task: AnyTask, world: World = ALONE, before: Mapping[str, Tensor] | None = None
) -> TrainingState:
    """Return a training before its first step, with the parameters of the run `before` it where there is one.

    Raises `InputError` where the model cannot be split as asked, these parameters do not fit it, or what of it is
    the user's own does not do what it should.
    """
    settings = config.training
    generator = make_generator(settings.seed, "train")
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
