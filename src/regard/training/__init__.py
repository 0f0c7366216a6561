"""Training: config, kinds of model, recipes, the loop, and the run on disk."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.fast.threads import limit_threads
    from regard.training.building import build_model, load_parameters
    from regard.training.config import PARTS, ModelPart, Origin, RunConfig, TaskPart, TrainingPart
    from regard.training.flags import changed, changed_config, make_config, stored_config
    from regard.training.folder import RunFolder
    from regard.training.freezing import trained_parameters
    from regard.training.kinds import KINDS, ModelKind, find_kind, kinds_for
    from regard.training.learner import Learner, OneLearner
    from regard.training.loop import train_steps
    from regard.training.objective import Objective, exact, objective_of
    from regard.training.presets import PRESETS, sized
    from regard.training.recipes import RECIPES, Recipe
    from regard.training.run_paths import check_free, find_run, new_run
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
    from regard.training.stored import digest, renamed
    from regard.training.tensors import digest_tensors, kept, pack
    from regard.training.trust import trust
    from regard.training.world import ALONE, World, join_world

late(__name__)

__all__ = [
    "ALONE",
    "KINDS",
    "PARTS",
    "PRESETS",
    "RECIPES",
    "Interrupted",
    "Learner",
    "ModelKind",
    "ModelPart",
    "Objective",
    "OneLearner",
    "Origin",
    "OwnAnswerTraining",
    "OwnSequenceTraining",
    "PoolingTraining",
    "QueryTraining",
    "Recipe",
    "RecurrentTraining",
    "RunConfig",
    "RunFolder",
    "StackedLearner",
    "TaskPart",
    "TrainingConfig",
    "TrainingPart",
    "TrainingState",
    "TransformerTraining",
    "TranslationTraining",
    "World",
    "build_model",
    "changed",
    "changed_config",
    "check_free",
    "digest",
    "digest_tensors",
    "exact",
    "find_kind",
    "find_run",
    "join_world",
    "kept",
    "kinds_for",
    "limit_threads",
    "load_parameters",
    "make_config",
    "new_run",
    "objective_of",
    "pack",
    "renamed",
    "sized",
    "stackable",
    "start",
    "stored_config",
    "train_steps",
    "trained_parameters",
    "trust",
]
