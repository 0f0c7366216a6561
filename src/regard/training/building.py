"""Build the model of a run and its initial training state."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.attention.hooks import find_layer
from regard.attention.multihead import keep_heads
from regard.errors import InputError
from regard.models.base import TaskModel
from regard.plugins import PluginError, describe_error
from regard.streams import make_generator
from regard.tasks.base import AnyTask
from regard.training.adam import make_optimizer, trained_parameters
from regard.training.checkpoint import Checkpoint, TrainingState
from regard.training.config import RunConfig
from regard.training.custom_code import check_custom_model, check_custom_parts
from regard.training.distributed import SINGLE_PROCESS, DistributedContext
from regard.training.freezing import freeze
from regard.training.objective import make_objective
from regard.training.run_folder import RunFolder
from regard.training.tensor_file import tensor_specs


def build_model(config: RunConfig, task: AnyTask) -> TaskModel:
    """Return the model of a run, initialized with the seed of the run and without the pruned heads.

    The global random state is restored. Raises `InputError` for heads that the model does not have, and for a
    custom model that cannot be built.
    """
    sizes = dict(task.sizes)
    if task.answers == "numbers":
        sizes["vary_len"] = config.training.vary_len
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.training.seed)
        try:
            model = config.model_spec.model(config.model, **sizes)
        except InputError:
            raise
        except Exception as error:  # custom code can raise anything
            if not config.custom_parts:
                raise
            raise PluginError(
                f"{' with '.join(config.custom_parts)} cannot be built: {describe_error(error)}; correct it"
            ) from error
    for layer, heads in config.kept_heads.items():
        keep_heads(find_layer(model, layer), heads)
    return model


def load_weights(model: nn.Module, folder: RunFolder) -> int:
    """Load the weights of a run into its model, and return the number of training steps of the weights.

    Raises `InputError` if the weights are missing, damaged, or incompatible with the config.
    """
    checkpoint = Checkpoint.load(folder, tensor_specs(model.state_dict()))
    assert checkpoint.weights is not None
    model.load_state_dict(checkpoint.weights)
    return checkpoint.step


def start(
    config: RunConfig,
    task: AnyTask,
    context: DistributedContext = SINGLE_PROCESS,
    before: Mapping[str, Tensor] | None = None,
) -> TrainingState:
    """Return the initial training state, with the parameters `before` of an earlier run, if any.

    Raises `InputError` if the model cannot be sharded, if these parameters are incompatible, or if custom code
    fails.
    """
    settings = config.training
    if config.custom_parts:
        check_custom_parts(config.model)
    model = _initial_model(config, task, before)
    if config.custom_parts:
        check_custom_model(config, task, model)
    generator = make_generator(settings.seed, "train")
    objective = make_objective(model.to(context.device), settings, generator)
    if settings.sharded:
        from regard.training.sharding import ShardedState, shard  # loads most of torch.distributed

        shard(objective, context)
    optimizer = make_optimizer(objective.model, settings.optimization)
    average = {}
    if settings.average:
        parameters = trained_parameters(objective.model)
        average = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    if settings.sharded:
        replica = _initial_model(config, task, before) if context.first else None
        return ShardedState(objective, optimizer, generator, 0, average, replica=replica)
    scaler = torch.amp.GradScaler(context.device.type) if settings.precision == "float16" else None
    return TrainingState(objective, optimizer, generator, 0, average, scaler=scaler)


def _initial_model(config: RunConfig, task: AnyTask, before: Mapping[str, Tensor] | None) -> TaskModel:
    """Return the model of a run with the parameters `before`, if any, and with frozen parts."""
    model = build_model(config, task)
    if before is not None:
        specs = tensor_specs(model.state_dict())
        for name, spec in tensor_specs(before).items():
            if specs.get(name) != spec:
                raise InputError(
                    f"parameter {name} is {spec} in the earlier run, and {specs.get(name, 'missing')} in this "
                    f"run: use the same sizes, including max_len if positions are learned"
                )
        model.load_state_dict(before)
    if config.training.freeze:
        freeze(model, config.training.freeze)
    return model
