"""The model of a run: drawn from its seed, with the parameters that training has given it."""

import torch
from torch import nn

from regard.attention import find_layer, keep_heads
from regard.errors import InputError
from regard.models import TaskModel
from regard.plugins import PluginError, describe_error
from regard.tasks import AnyTask
from regard.training.config import RunConfig
from regard.training.folder import RunFolder
from regard.training.tensors import kept, warn_unfinite


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
            from regard.training.trial import owned

            if not (own := owned(config)):
                raise
            raise PluginError(
                f"{' with '.join(own)} cannot be built: {describe_error(error)}; mend it"
            ) from error
    for layer, heads in config.kept_heads.items():
        keep_heads(find_layer(model, layer), heads)
    return model


def load_parameters(model: nn.Module, folder: RunFolder) -> int:
    """Put a run's parameters into its model, and return the step they belong to.

    Raises `InputError` where they are missing, damaged, or do not fit the run's config.
    """
    parameters, step = folder.read_model(kept(model.state_dict()))
    model.load_state_dict(parameters)
    warn_unfinite(model.state_dict(), str(folder.path))
    return step
