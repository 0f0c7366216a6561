"""Training: configuration, recipes, the loop, and the run on disk."""

from regard.training.batches import Batches
from regard.training.config import (
    MODELS,
    PARTS,
    PoolingTraining,
    QueryTraining,
    RecurrentTraining,
    RunConfig,
    TrainingConfig,
    make_config,
    models_for,
)
from regard.training.loop import train_steps
from regard.training.objective import exact, objective
from regard.training.recipes import RECIPES, Recipe
from regard.training.runs import RunFolder, find_run, new_run
from regard.training.state import TrainingState, build_model, load_parameters, restore, start
from regard.training.stopping import Interrupted
from regard.training.streams import generator_of

__all__ = [
    "MODELS",
    "PARTS",
    "RECIPES",
    "Batches",
    "Interrupted",
    "PoolingTraining",
    "QueryTraining",
    "Recipe",
    "RecurrentTraining",
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
    "models_for",
    "new_run",
    "objective",
    "restore",
    "start",
    "train_steps",
]
