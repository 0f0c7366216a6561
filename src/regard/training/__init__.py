"""Training: configuration, recipes, the loop, and the run on disk."""

from regard.training.config import RunConfig, TrainingConfig, make_config
from regard.training.loop import exact, train_steps
from regard.training.recipes import RECIPES, Recipe
from regard.training.runs import RunFolder, find_run, new_run
from regard.training.state import TrainingState, build_model, load_parameters, restore, start
from regard.training.stopping import Interrupted
from regard.training.streams import generator_of

__all__ = [
    "RECIPES",
    "Interrupted",
    "Recipe",
    "RunConfig",
    "RunFolder",
    "TrainingConfig",
    "TrainingState",
    "build_model",
    "exact",
    "find_run",
    "generator_of",
    "load_parameters",
    "make_config",
    "new_run",
    "restore",
    "start",
    "train_steps",
]
