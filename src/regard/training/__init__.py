"""Training: configuration, recipes, the loop, and the run on disk."""

from regard.training.batches import Batches
from regard.training.config import (
    MODELS,
    PARTS,
    PRESETS,
    RunConfig,
    make_config,
    models_for,
)
from regard.training.loop import train_steps
from regard.training.objective import Objective, exact
from regard.training.recipes import RECIPES, Recipe
from regard.training.runs import RunFolder, digest, find_run, new_run
from regard.training.settings import (
    PoolingTraining,
    QueryTraining,
    RecurrentTraining,
    TrainingConfig,
    TranslationTraining,
)
from regard.training.state import TrainingState, build_model, load_parameters, start
from regard.training.stopping import Interrupted
from regard.training.streams import generator_of
from regard.training.together import stackable, train_together
from regard.training.world import ALONE, World, join_world

__all__ = [
    "ALONE",
    "MODELS",
    "PARTS",
    "PRESETS",
    "RECIPES",
    "Batches",
    "Interrupted",
    "Objective",
    "PoolingTraining",
    "QueryTraining",
    "Recipe",
    "RecurrentTraining",
    "RunConfig",
    "RunFolder",
    "TrainingConfig",
    "TrainingState",
    "TranslationTraining",
    "World",
    "build_model",
    "digest",
    "exact",
    "find_run",
    "generator_of",
    "join_world",
    "load_parameters",
    "make_config",
    "models_for",
    "new_run",
    "stackable",
    "start",
    "train_steps",
    "train_together",
]
