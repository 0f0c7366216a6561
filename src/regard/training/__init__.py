"""Training: config, kinds of model, recipes, the loop, and the run on disk."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.training.building import build_model, load_weights
    from regard.training.config import PARTS, ModelPart, Origin, RunConfig, TaskPart, TrainingPart
    from regard.training.digests import digest, renamed
    from regard.training.distributed import SINGLE_PROCESS, DistributedContext, join_processes
    from regard.training.flags import changed, changed_config, config_from_json, make_config
    from regard.training.freezing import trained_parameters
    from regard.training.learner import Learner, SingleLearner
    from regard.training.loop import train_steps
    from regard.training.model_sizes import PRESETS, sized
    from regard.training.objective import Objective, exact, make_objective
    from regard.training.optimizers import RECIPES, Recipe
    from regard.training.registry import MODELS, ModelSpec, find_model, models_for
    from regard.training.run_folder import RunFolder
    from regard.training.run_paths import check_run_path, create_run, find_run
    from regard.training.settings import (
        OwnAnswerTraining,
        OwnSequenceTraining,
        PoolingTraining,
        QueryTraining,
        RecurrentTraining,
        TrainingConfig,
        TransformerTraining,
        TranslationTraining,
    )
    from regard.training.stacked import StackedLearner, stackable
    from regard.training.start import start
    from regard.training.state import TrainingState
    from regard.training.stopping import Interrupted
    from regard.training.tensor_file import digest_tensors, kept, pack
    from regard.training.threads import fitting_threads
    from regard.training.trust_code import trust

late(__name__)

__all__ = [
    "MODELS",
    "PARTS",
    "PRESETS",
    "RECIPES",
    "SINGLE_PROCESS",
    "DistributedContext",
    "Interrupted",
    "Learner",
    "ModelPart",
    "ModelSpec",
    "Objective",
    "Origin",
    "OwnAnswerTraining",
    "OwnSequenceTraining",
    "PoolingTraining",
    "QueryTraining",
    "Recipe",
    "RecurrentTraining",
    "RunConfig",
    "RunFolder",
    "SingleLearner",
    "StackedLearner",
    "TaskPart",
    "TrainingConfig",
    "TrainingPart",
    "TrainingState",
    "TransformerTraining",
    "TranslationTraining",
    "build_model",
    "changed",
    "changed_config",
    "check_run_path",
    "config_from_json",
    "create_run",
    "digest",
    "digest_tensors",
    "exact",
    "find_model",
    "find_run",
    "fitting_threads",
    "join_processes",
    "kept",
    "load_weights",
    "make_config",
    "make_objective",
    "models_for",
    "pack",
    "renamed",
    "sized",
    "stackable",
    "start",
    "train_steps",
    "trained_parameters",
    "trust",
]
